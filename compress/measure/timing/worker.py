"""One model in a process of its own, timed on command: JSON lines in on stdin, JSON lines out on stdout.

It receives the model to open (``WorkerSpec``), replies when the model has run once, and then executes commands until
its input ends. It imports only what its own model needs: an exported model is timed without torch in the process.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import IO

from compress.measure.interference import InterferenceMonitor
from compress.measure.resources.energy import EnergyMeter
from compress.measure.resources.nvml import Nvml
from compress.measure.timing.latency import Latency
from compress.measure.timing.process_limits import device_memory, limit_memory, peak_memory, resident_memory
from compress.measure.timing.schedule import fixed_arrays, tokenize_without_task
from compress.measure.timing.timing_loop import TimedCalls, closed_loop, take_turn, warm_up, with_delay
from compress.measure.timing.worker_protocol import Command, Reply, Send, WorkerSpec, serve
from compress.model_folder.model_info import find_info
from compress.runtime.predictor import Predictor, TimedOnDevice
from compress.runtimes import RUNTIMES
from compress.tasks.base import Arrays

SLOW_IMPORTS = ("numpy", "tokenizers", *(module for runtime in RUNTIMES.values() for module in runtime.modules))
"""A later process of the same job imports in advance those of them that the first one needed."""


@dataclass(frozen=True)
class OpenModel:
    """A model with its prepared inputs."""

    predictor: Predictor
    calls: TimedCalls
    arrays: Callable[[int], Arrays]
    """Returns the padded batch of this call."""


def open_model(spec: WorkerSpec) -> OpenModel:
    """Open the model and prepare its calls."""
    from compress.runtime import open_predictor

    job = spec.job
    predictor = open_predictor(job.folder, job.placement, job.variant)
    tokenized: dict[int, Arrays] = {}
    info, texts = find_info(job.folder), None
    if job.length is not None:
        tokenized[0] = fixed_arrays(job.folder, job.batch, job.length, spec.seed, spec.vocabulary)
    elif info is None or info.task is None:
        tokenized = dict(enumerate(tokenize_without_task(job.folder, spec.calls)))
    else:
        from compress.data.tokenizer import TextTokenizer
        from compress.runtime.text_model import TextModel
        from compress.tasks import kind_of

        texts = TextModel(info.task, kind_of(info.task), TextTokenizer.load(job.folder), predictor)

    def arrays(call: int) -> Arrays:
        if texts is not None and call not in tokenized:
            # A call's rows may have more examples than rows; the model alone gets as many as rows.
            tokenized[call] = texts.arrays(texts.prepare(spec.calls[call]).examples[: job.batch])
        return tokenized[call]

    def predict_texts(call: int) -> object:
        assert texts is not None
        return texts.predict(spec.calls[call], batch=job.batch)

    on_device = predictor if isinstance(predictor, TimedOnDevice) and job.placement.device == "cuda" else None
    calls = TimedCalls(
        model=with_delay(lambda call: predictor.predict(arrays(call)), job.delay),
        end_to_end=with_delay(predict_texts, job.delay) if texts is not None else None,
        device=(lambda call: on_device.device_milliseconds(arrays(call))) if on_device else None,
    )
    return OpenModel(predictor, calls, arrays)


def serve_model(commands: IO[str], send: Send) -> None:
    """Open the model of the first line and execute the commands of the others."""
    spec = WorkerSpec.model_validate_json(commands.readline())
    limit_memory(spec.memory)
    for name in spec.imports:
        import_module(name)
    spec.cores.pin()
    gc.disable()  # a collection in the middle of a call would count as the model's time
    start = time.perf_counter()
    model = open_model(spec)
    loaded = time.perf_counter()
    (model.calls.end_to_end or model.calls.model)(0)
    first = time.time() - spec.launched
    device = spec.job.placement.device
    nvml = Nvml.open() if device == "cuda" else Nvml()
    watched = device == "cpu" or nvml.clock_limits() is not None
    monitor, meter = InterferenceMonitor(spec.cores, nvml), EnergyMeter.find(device)
    gc.collect()
    gc.freeze()  # collections between turns need not visit what is loaded now
    send(
        Reply(
            latency=Latency(
                status="measured",
                load_seconds=loaded - start,
                first_answer_seconds=first,
                runs_with=model.predictor.describe(),
                energy=meter.source,
                reason=None if watched else f"not watched on CUDA: {nvml.missing}",
            ),
            imports=tuple(name for name in SLOW_IMPORTS if sys.modules.get(name)),
        )
    )
    for line in commands:
        command = Command.model_validate_json(line)
        if command.do == "warm_up":
            seconds, steady = warm_up(model.calls.model, command.calls)
            lengths = tuple(model.arrays(call)["input_ids"].shape[1] for call in command.calls)
            send(Reply(latency=Latency(status="measured", lengths=lengths), call_seconds=seconds, steady=steady))
        elif command.do == "turn":
            send(take_turn(model.calls, command, monitor, meter))
        elif command.do == "load":
            send(closed_loop(model.calls.model, command, monitor))
        else:
            held, _ = device_memory(device)
            memory = {"resident_memory": resident_memory(), "peak_memory": peak_memory(), "device_memory": held}
            send(Reply(latency=Latency(status="measured", **memory)))


def main() -> None:
    """Serve one model."""
    serve(serve_model)


if __name__ == "__main__":
    main()
