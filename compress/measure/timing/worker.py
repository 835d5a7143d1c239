"""One model in a process of its own, timed on command: JSON lines in on stdin, JSON lines out on stdout.

It receives the model to open (``WorkerSpec``), replies when the model has run once, and then executes commands until
its input ends. It imports only what its own model needs: an exported model is timed without torch in the process.
"""

import gc
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import IO, Any

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

SLOW_IMPORTS = ("numpy", "tokenizers", *(module for runtime in RUNTIMES.values() for module in runtime.modules))
"""A later process of the same job imports in advance those of them that the first one needed."""


class TimedModel:
    """A model with its prepared calls."""

    calls: TimedCalls
    runs_with: Mapping[str, Any]
    by_mean = False
    """Whether the time of a call depends on what its texts say."""

    def choose(self, calls: Sequence[int]) -> tuple[float, ...]:
        """Prepare for these calls, and return how much each counts; no weights where all count alike."""
        return ()

    def tokens(self, call: int) -> int:
        """Return the tokens of this call's padded batch."""
        raise NotImplementedError


def open_model(spec: WorkerSpec) -> TimedModel:
    """Open the model and prepare its calls."""
    job, info = spec.job, find_info(spec.job.folder)
    reads_texts = job.length is None and info is not None and info.task is not None
    return TimedTexts(spec) if reads_texts else TimedArrays(spec)


class TimedArrays(TimedModel):
    """A model alone, on random pieces or on texts of an unknown task."""

    def __init__(self, spec: WorkerSpec) -> None:
        from compress.runtime import open_predictor

        job = spec.job
        predictor = open_predictor(job.folder, job.placement, job.variant)
        self.runs_with = predictor.describe()
        if job.length is not None:
            self._arrays = [fixed_arrays(job.folder, job.batch, job.length, spec.seed, spec.vocabulary)]
        else:
            self._arrays = [*tokenize_without_task(job.folder, spec.calls)]
        on_device = predictor if isinstance(predictor, TimedOnDevice) and job.placement.device == "cuda" else None
        self.calls = TimedCalls(
            model=with_delay(lambda call: predictor.predict(self._arrays[call]), job.delay),
            device=(lambda call: on_device.device_milliseconds(self._arrays[call])) if on_device else None,
        )

    def tokens(self, call: int) -> int:
        """Return the length of its arrays."""
        return int(self._arrays[call]["input_ids"].shape[1])


class TimedTexts(TimedModel):
    """A model that is timed alone and from text to answer."""

    def __init__(self, spec: WorkerSpec) -> None:
        from compress.runtime.text_model import TextModel

        job = spec.job
        self._spec, self._opened = spec, TextModel.open(job.folder, job.placement, job.variant)
        self._model, self._prepared = self._opened, dict[int, tuple[Callable[[], object], int]]()
        self.by_mean, self.runs_with = self._opened.depends_on_text, self._opened.describe()
        predictor = self._opened.predictor
        on_device = predictor if isinstance(predictor, TimedOnDevice) and job.placement.device == "cuda" else None
        self.calls = TimedCalls(
            model=with_delay(lambda call: self._call(call)[0](), job.delay),
            end_to_end=with_delay(lambda call: self._model.predict(spec.calls[call], batch=job.batch), job.delay),
            device=(lambda call: on_device.device_milliseconds(self._arrays(call))) if on_device else None,
        )

    def choose(self, calls: Sequence[int]) -> tuple[float, ...]:
        """Return the weights of calls of one text; larger ones have texts as they come."""
        if self._spec.job.batch > 1:
            return ()
        self._prepared.clear()
        self._model, weights = self._opened.for_timing([self._spec.calls[call][0] for call in calls])
        return weights

    def tokens(self, call: int) -> int:
        """Return the length of the arrays that the call's texts become."""
        return self._call(call)[1]

    def _call(self, call: int) -> tuple[Callable[[], object], int]:
        if call not in self._prepared:
            self._prepared[call] = self._model.timed_call(self._spec.calls[call])
        return self._prepared[call]

    @cache  # noqa: B019  # one lives in the process
    def _arrays(self, call: int) -> Arrays:
        return self._model.arrays(self._model.prepare(self._spec.calls[call]).examples[: self._spec.job.batch])


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
