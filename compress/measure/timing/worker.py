"""One model in a process of its own, timed on command: JSON lines in on stdin, JSON lines out on stdout.

It receives the model to open (``WorkerSpec``), replies when the model has run once, and then executes commands until
its input ends. It imports only what its own model needs: an exported model is timed without torch in the process.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any

from compress.measure.interference import InterferenceMonitor
from compress.measure.resources.energy import EnergyMeter
from compress.measure.resources.nvml import Nvml
from compress.measure.timing.latency import Latency
from compress.measure.timing.process_limits import device_memory, limit_memory, peak_memory, resident_memory
from compress.measure.timing.schedule import fixed_arrays, tokenize_without_task
from compress.measure.timing.timing_loop import TimedCalls, closed_loop, take_turn, warm_up, with_delay
from compress.measure.timing.worker_protocol import Command, Reply, Send, WorkerSpec, serve
from compress.model_folder.model_info import find_info
from compress.runtime.predictor import TimedOnDevice
from compress.runtimes import RUNTIMES
from compress.tasks.base import Arrays

if TYPE_CHECKING:
    from compress.runtime.text_model import TextModel

SLOW_IMPORTS = ("numpy", "tokenizers", *(module for runtime in RUNTIMES.values() for module in runtime.modules))
"""A later process of the same job imports in advance those of them that the first one needed."""


@dataclass(frozen=True)
class OpenModel:
    """A model with its prepared inputs."""

    calls: TimedCalls
    tokens: Callable[[int], int]
    """Returns the tokens of this call's padded batch."""
    runs_with: Mapping[str, Any]
    by_mean: bool = False
    """Whether the time of a call depends on what its texts say."""
    choose: Callable[[Sequence[int]], tuple[float, ...]] = lambda calls: ()
    """Prepares for these calls, and returns the weight of each; none where all count alike."""


def open_model(spec: WorkerSpec) -> OpenModel:
    """Open the model and prepare its calls."""
    from compress.runtime.text_model import TextModel

    job, info = spec.job, find_info(spec.job.folder)
    if job.length is None and info is not None and info.task is not None:
        return _reading_texts(spec, TextModel.open(job.folder, job.placement, job.variant))
    return _without_texts(spec)


def _without_texts(spec: WorkerSpec) -> OpenModel:
    """Return the model alone, on random pieces or on texts of an unknown task."""
    from compress.runtime import open_predictor

    job = spec.job
    predictor = open_predictor(job.folder, job.placement, job.variant)
    if job.length is not None:
        arrays = [fixed_arrays(job.folder, job.batch, job.length, spec.seed, spec.vocabulary)]
    else:
        arrays = [*tokenize_without_task(job.folder, spec.calls)]
    on_device = predictor if isinstance(predictor, TimedOnDevice) and job.placement.device == "cuda" else None
    calls = TimedCalls(
        model=with_delay(lambda call: predictor.predict(arrays[call]), job.delay),
        device=(lambda call: on_device.device_milliseconds(arrays[call])) if on_device else None,
    )
    return OpenModel(calls, lambda call: arrays[call]["input_ids"].shape[1], predictor.describe())


def _reading_texts(spec: WorkerSpec, model: TextModel) -> OpenModel:
    """Return a model that is timed alone and from text to answer."""
    from compress.runtime.cascade import Cascade

    job, cascade = spec.job, model if isinstance(model, Cascade) else None
    timed = [model]  # of a cascade, another for other calls
    prepared: dict[int, tuple[Callable[[], object], int]] = {}

    def prepare(call: int) -> tuple[Callable[[], object], int]:
        if call not in prepared:
            prepared[call] = timed[0].timed_call(spec.calls[call])
        return prepared[call]

    def choose(calls: Sequence[int]) -> tuple[float, ...]:
        if cascade is None or job.batch > 1:  # a batch has texts of both kinds, as they come
            return ()
        timed[0], weights = cascade.for_timing([spec.calls[call][0] for call in calls])
        prepared.clear()
        return tuple(weights.tolist())

    @cache
    def arrays(call: int) -> Arrays:
        return model.arrays(model.prepare(spec.calls[call]).examples[: job.batch])

    def on_device(call: int) -> float:
        assert isinstance(model.predictor, TimedOnDevice)
        return model.predictor.device_milliseconds(arrays(call))

    has_clock = job.placement.device == "cuda" and isinstance(model.predictor, TimedOnDevice)
    calls = TimedCalls(
        model=with_delay(lambda call: prepare(call)[0](), job.delay),
        end_to_end=with_delay(lambda call: timed[0].predict(spec.calls[call], batch=job.batch), job.delay),
        device=on_device if has_clock else None,
    )
    return OpenModel(calls, lambda call: prepare(call)[1], model.describe(), cascade is not None, choose)


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
                runs_with=model.runs_with,
                by_mean=model.by_mean,
                energy=meter.source,
                reason=None if watched else f"not watched on CUDA: {nvml.missing}",
            ),
            imports=tuple(name for name in SLOW_IMPORTS if sys.modules.get(name)),
        )
    )
    for line in commands:
        command = Command.model_validate_json(line)
        if command.do == "warm_up":
            weights = model.choose(command.calls)
            seconds, steady = warm_up(model.calls.model, command.calls)
            latency = Latency(status="measured", lengths=tuple(map(model.tokens, command.calls)))
            send(Reply(latency=latency, call_seconds=seconds, steady=steady, weights=weights))
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
