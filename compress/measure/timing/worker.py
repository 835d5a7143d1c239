"""One model in a process of its own, timed on command: JSON lines in on stdin, JSON lines out on stdout.

It receives the model to open (``WorkerSpec``), replies when the model has run once, and then executes commands until it
is closed. It imports only what its own model needs: an exported model is timed without torch in the process.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING

from compress.errors import CompressError, DeviceUnavailable, MissingExtra, ModelError
from compress.formats import RUNTIMES
from compress.measure.interference.gpu_monitor import GpuMonitor
from compress.measure.interference.monitor import InterferenceMonitor
from compress.measure.resources.energy import EnergyMeter
from compress.measure.timing.process_limits import (
    device_memory,
    ignore_sigint,
    limit_memory,
    peak_memory,
    resident_memory,
)
from compress.measure.timing.timing_inputs import fixed_arrays, tokenize_without_task
from compress.measure.timing.timing_loop import TimedCalls, closed_loop, take_turn, warm_up, with_delay
from compress.measure.timing.worker_protocol import Command, Reply, WorkerSpec
from compress.model_info import TaskInfo, find_info
from compress.runtime.predictor import Placement, Predictor, TimedOnDevice
from compress.tasks.base import Arrays

if TYPE_CHECKING:
    from compress.runtime.text_model import TextModel

RUNTIME_MODULES = tuple(name for runtime in RUNTIMES.values() for name in runtime.modules)
SLOW_IMPORTS = tuple(dict.fromkeys(("numpy", "tokenizers", *RUNTIME_MODULES)))
"""A later process of the same job imports in advance those of them that the first one needed."""


@dataclass(frozen=True)
class OpenModel:
    """A model with its prepared inputs."""

    predictor: Predictor
    calls: TimedCalls
    lengths: Callable[[Sequence[int]], tuple[int, ...]]
    """Returns the padded pieces of these calls."""


@dataclass(frozen=True)
class Instruments:
    """What is read around calls."""

    meter: EnergyMeter
    monitor: InterferenceMonitor


def open_model(spec: WorkerSpec) -> OpenModel:
    """Open the model and prepare its calls."""
    from compress.runtime import open_predictor

    folder = Path(spec.folder)
    predictor = open_predictor(folder, Placement(spec.device, spec.threads), spec.variant)
    tokenized: dict[int, Arrays] = {}
    task, texts = read_task(folder), None
    if spec.length is not None:
        tokenized[0] = fixed_arrays(folder, spec.batch, spec.length, spec.seed, spec.vocabulary)
    elif task is None:
        tokenized = dict(enumerate(tokenize_without_task(folder, spec.calls)))
    else:
        texts = _text_model(folder, task, predictor)

    def arrays(call: int) -> Arrays:
        if texts is not None and call not in tokenized:
            # A call's rows may have more examples than rows; the model alone gets as many as rows.
            tokenized[call] = texts.arrays(texts.prepare(spec.calls[call]).examples[: spec.batch])
        return tokenized[call]

    def predict_texts(call: int) -> object:
        assert texts is not None
        return texts.predict(spec.calls[call], batch=spec.batch)

    on_device = predictor if isinstance(predictor, TimedOnDevice) and spec.device == "cuda" else None
    calls = TimedCalls(
        model=with_delay(lambda call: predictor.predict(arrays(call)), spec.delay),
        end_to_end=with_delay(predict_texts, spec.delay) if texts is not None else None,
        device=(lambda call: on_device.device_milliseconds(arrays(call))) if on_device else None,
    )
    return OpenModel(predictor, calls, lambda ids: tuple(arrays(call)["input_ids"].shape[1] for call in ids))


def read_task(folder: Path) -> TaskInfo | None:
    """Return the task of a model; None for one made elsewhere, whose folder does not say."""
    info = find_info(folder)
    return info.task if info is not None else None


def _text_model(folder: Path, task: TaskInfo, predictor: Predictor) -> TextModel:
    from compress.data.tokenizer import TextTokenizer
    from compress.runtime.text_model import TextModel
    from compress.tasks import kind_of

    return TextModel(task, kind_of(task), TextTokenizer.load(folder), predictor)


def serve(commands: IO[str], send: Callable[[Reply], None]) -> None:
    """Open the model of the first line and execute commands until `close` or the end of input."""
    spec = WorkerSpec.model_validate_json(commands.readline())
    limit_memory(spec.memory)
    for name in spec.imports:
        import_module(name)
    if spec.cores is not None and sys.platform == "linux":
        os.sched_setaffinity(0, spec.cores)
    gc.disable()  # a collection in the middle of a call would count as the model's time
    try:
        model, instruments = _start(spec, send)
        for line in commands:
            command = Command.model_validate_json(line)
            send(_execute(command, spec, model, instruments))
            if command.do == "close":
                return
    except MemoryError as error:
        rows = "1 row" if spec.batch == 1 else f"{spec.batch} rows"
        pieces = "" if spec.length is None else f" of {spec.length} pieces"
        raise ModelError(f"a batch of {rows}{pieces} does not fit in memory.") from error


def _start(spec: WorkerSpec, send: Callable[[Reply], None]) -> tuple[OpenModel, Instruments]:
    start = time.perf_counter()
    model = open_model(spec)
    loaded = time.perf_counter()
    (model.calls.end_to_end or model.calls.model)(0)
    first = None if spec.launched is None else time.time() - spec.launched
    monitor = InterferenceMonitor(spec.cores or (), spec.neighbours, GpuMonitor.find(spec.device))
    instruments = Instruments(EnergyMeter.find(spec.device), monitor)
    gc.collect()
    gc.freeze()  # collections between turns need not visit what is loaded now
    send(
        Reply(
            load_seconds=loaded - start,
            first_answer_seconds=first,
            runs_with=model.predictor.describe(),
            imports=tuple(name for name in SLOW_IMPORTS if name in sys.modules),
            energy=instruments.meter.source,
            unwatched=monitor.gpu.missing,
        )
    )
    return model, instruments


def _execute(command: Command, spec: WorkerSpec, model: OpenModel, instruments: Instruments) -> Reply:
    if command.do == "warm_up":
        seconds, steady = warm_up(model.calls.model, command.calls)
        return Reply(call_seconds=seconds, steady=steady, lengths=model.lengths(command.calls))
    if command.do == "turn":
        return take_turn(model.calls, command, instruments.monitor, instruments.meter)
    if command.do == "load":
        return closed_loop(model.calls.model, command, instruments.monitor)
    return Reply(
        resident_memory=resident_memory(), peak_memory=peak_memory(), device_memory=device_memory(spec.device).bytes
    )


def main() -> None:
    """Serve on this process's own stdin and stdout; output of libraries goes to stderr."""
    ignore_sigint()
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def send(reply: Reply) -> None:
        replies.write(reply.model_dump_json() + "\n")
        replies.flush()

    try:
        serve(sys.stdin, send)
    except (DeviceUnavailable, MissingExtra) as error:
        send(Reply(unsupported=error.full_message))
    except CompressError as error:
        send(Reply(failed=error.full_message))
    sys.stderr.flush()
    os._exit(0)  # shutting a runtime down takes the session's time and frees nothing that the system does not


if __name__ == "__main__":
    main()
