"""One model in a process of its own, timed on command: JSON lines in on stdin, JSON lines out on stdout.

It is told what to open (``WorkerSpec``), answers when the model has answered once, and then does as it is ordered until
told to close. It loads nothing but what its own model needs: an exported model is timed without torch in the process.
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
from compress.measure.interference.interference import InterferenceMonitor
from compress.measure.resources.energy import EnergyMeter
from compress.measure.timing.process_limits import (
    device_memory,
    ignore_sigint,
    limit_memory,
    peak_memory,
    resident_memory,
)
from compress.measure.timing.timing_inputs import fixed_arrays
from compress.measure.timing.timing_loop import TimedCalls, closed_loop, take_turn, warm_up, with_delay
from compress.measure.timing.worker_protocol import Order, Reply, WorkerSpec
from compress.model_info import TaskInfo, VariantInfo, find_info
from compress.runtime.predictor import Placement, Predictor, TimedOnDevice
from compress.tasks.base import Arrays

if TYPE_CHECKING:
    from compress.runtime.text_model import TextModel

HEAVY = tuple(dict.fromkeys(("numpy", "tokenizers", *(name for each in RUNTIMES.values() for name in each.modules))))
"""Modules that take long to import; a later process of the same job imports those that the first one needed ahead."""


@dataclass(frozen=True)
class Opened:
    """A model with its inputs made ready."""

    predictor: Predictor
    ways: TimedCalls
    lengths: Callable[[Sequence[int]], tuple[int, ...]]
    """Padded pieces of these calls."""


def open_model(spec: WorkerSpec) -> Opened:
    """Open the model and prepare its calls."""
    folder, place = Path(spec.folder), Placement(spec.device, spec.threads)
    tokenized: dict[int, Arrays] = {}
    if spec.length is not None:
        from compress.runtime import open_predictor

        predictor = open_predictor(folder, place, spec.variant)
        tokenized[0] = fixed_arrays(folder, spec.batch, spec.length, spec.seed, spec.vocabulary)
        texts = None
    elif read_task(folder) is None:
        from compress.measure.timing.untasked_texts import tokenize
        from compress.runtime import open_predictor

        predictor, texts = open_predictor(folder, place, spec.variant), None
        tokenized = dict(enumerate(tokenize(folder, spec.calls)))
    else:
        texts = open_texts(folder, place, spec.variant)
        predictor = texts.predictor

    def arrays(call: int) -> Arrays:
        if texts is not None and call not in tokenized:
            # A call of so many rows may be of more examples, of which the model alone is given as many.
            tokenized[call] = texts.arrays(texts.prepare(spec.calls[call]).examples[: spec.batch])
        return tokenized[call]

    def answer(call: int) -> object:
        assert texts is not None
        return texts.predict(spec.calls[call], batch=spec.batch)

    on_device = predictor if isinstance(predictor, TimedOnDevice) and spec.device == "cuda" else None
    ways = TimedCalls(
        model=with_delay(lambda call: predictor.predict(arrays(call)), spec.slowed),
        end_to_end=with_delay(answer, spec.slowed) if texts is not None else None,
        device=(lambda call: on_device.device_milliseconds(arrays(call))) if on_device else None,
    )
    return Opened(predictor, ways, lambda calls: tuple(arrays(call)["input_ids"].shape[1] for call in calls))


def read_task(folder: Path) -> TaskInfo | None:
    """The task that a model answers; None for one that others made and that does not say."""
    info = find_info(folder)
    return info.task if info is not None else None


def open_texts(folder: Path, place: Placement, variant: VariantInfo | None) -> TextModel:
    """Everything between texts and answers, in one variant of the folder."""
    from compress.data.tokenizer import TextTokenizer
    from compress.runtime import open_predictor
    from compress.runtime.text_model import TextModel
    from compress.tasks import kind_of

    task = read_task(folder)
    if task is None:
        raise ModelError(f"{folder} does not say which task it answers; only a fixed length can be timed.")
    return TextModel(task, kind_of(task), TextTokenizer.load(folder), open_predictor(folder, place, variant))


def serve(orders: IO[str], answer: Callable[[Reply], None]) -> None:
    """Open what the first line tells of and do as ordered until told to close or left alone."""
    spec = WorkerSpec.model_validate_json(orders.readline())
    limit_memory(spec.memory)
    for name in spec.imports:
        import_module(name)
    if spec.cores is not None and sys.platform == "linux":
        os.sched_setaffinity(0, spec.cores)
    gc.disable()  # a collection in the middle of a call would count as the model's time
    try:
        opened, tools = _start(spec, answer)
        for line in orders:
            order = Order.model_validate_json(line)
            answer(_obey(order, spec, opened, tools))
            if order.do == "close":
                return
    except MemoryError as error:
        rows = "1 row" if spec.batch == 1 else f"{spec.batch} rows"
        pieces = "" if spec.length is None else f" of {spec.length} pieces"
        raise ModelError(f"a batch of {rows}{pieces} does not fit in memory.") from error


@dataclass(frozen=True)
class Tools:
    """What is read around calls."""

    meter: EnergyMeter
    listener: InterferenceMonitor


def _start(spec: WorkerSpec, answer: Callable[[Reply], None]) -> tuple[Opened, Tools]:
    start = time.perf_counter()
    opened = open_model(spec)
    loaded = time.perf_counter()
    (opened.ways.end_to_end or opened.ways.model)(0)
    first = None if spec.launched is None else time.time() - spec.launched
    watch = GpuMonitor.find(spec.device)
    tools = Tools(EnergyMeter.find(spec.device), InterferenceMonitor(spec.cores or (), spec.beside, watch))
    gc.collect()
    gc.freeze()  # what is there now stays: collections between turns need not look at it again
    answer(
        Reply(
            load_seconds=loaded - start,
            first_answer_seconds=first,
            runs_with=opened.predictor.describe(),
            imports=tuple(name for name in HEAVY if name in sys.modules),
            energy=tools.meter.source,
            unwatched=watch.missing,
        )
    )
    return opened, tools


def _obey(order: Order, spec: WorkerSpec, opened: Opened, tools: Tools) -> Reply:
    if order.do == "warm":
        seconds, steady = warm_up(opened.ways.model, order.calls)
        return Reply(call_seconds=seconds, steady=steady, lengths=opened.lengths(order.calls))
    if order.do == "turn":
        return take_turn(opened.ways, order, tools.listener, tools.meter)
    if order.do == "load":
        return closed_loop(opened.ways.model, order, tools.listener)
    return Reply(
        resident_memory=resident_memory(), peak_memory=peak_memory(), device_memory=device_memory(spec.device).bytes
    )


def main() -> None:
    """Serve on this process's own stdin and stdout; whatever libraries print goes to stderr."""
    ignore_sigint()
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(reply: Reply) -> None:
        replies.write(reply.model_dump_json() + "\n")
        replies.flush()

    try:
        serve(sys.stdin, answer)
    except (DeviceUnavailable, MissingExtra) as error:
        answer(Reply(refused=error.full_message))
    except CompressError as error:
        answer(Reply(failed=error.full_message))
    sys.stderr.flush()
    os._exit(0)  # tearing a runtime down takes time that the session pays, and frees nothing that the system does not


if __name__ == "__main__":
    main()
