"""One job's result from what its worker processes recorded: statistics, interference, and whether it is stable."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compress.measure.interference.verdict import (
    aggregate,
    instabilities,
    lap_instabilities,
    wait_share,
    warm_up_instabilities,
)
from compress.measure.timing.cpu_affinity import Cores
from compress.measure.timing.latency import Latency, Round, Timing, UnderLoad, throughput, timing
from compress.measure.timing.schedule import MIN_CALLS_FOR_P95
from compress.measure.timing.worker_pool import Worker
from compress.measure.timing.worker_protocol import Reply
from compress.recipe.measure_schema import Measure


def job_result(worker: Worker, last: Reply, settings: Measure, seed: int, cores: Cores | None, width: int) -> Latency:
    """Return the result of one job.

    Args:
        worker: the job with everything its processes recorded.
        last: the reply to `close`, with the memory of the last process.
        settings: resamples behind an interval, and numbers of callers.
        seed: of the resamples.
        cores: of the worker and its neighbours; None where processes are not pinned.
        width: number of different calls in a pass.
    """

    def summarise(rounds: Sequence[Round], waits: Sequence[Round]) -> Timing:
        return timing(rounds, settings.bootstrap, seed, worker.processes, width, waits)

    model = summarise(worker.model, worker.model_waits)
    full = summarise(worker.end_to_end, worker.end_to_end_waits) if worker.end_to_end else None
    device = summarise(worker.device, []) if worker.device else None
    noise = aggregate(worker.interference, cores)
    if noise is not None:
        waits = [*worker.model_waits, *worker.end_to_end_waits]
        noise = noise.model_copy(update={"waited": wait_share([*worker.model, *worker.end_to_end], waits)})
    unstable = instabilities(noise, model, full, device)
    unstable += warm_up_instabilities(worker.unsteady, len(set(worker.processes)))
    replaced = [f"a worker process was lost and restarted: {reason}" for reason in worker.lost]
    notes = [*unstable, *replaced, *filter(None, [worker.ready.unwatched])]
    measured = len(worker.joules) == len(worker.model)
    return Latency(
        status="unstable" if unstable else "measured",
        reason="; ".join(notes) or None,
        model=model,
        end_to_end=full,
        device=device,
        rows_per_second=throughput(worker.model, worker.job.batch),
        under_load=tuple(_under_load(worker, callers, cores) for callers in settings.callers),
        load_seconds=worker.ready.load_seconds,
        first_answer_seconds=worker.ready.first_answer_seconds,
        resident_memory=last.resident_memory,
        peak_memory=last.peak_memory,
        device_memory=last.device_memory,
        joules_per_row=sum(worker.joules) / (worker.energy_calls * worker.job.batch) if measured else None,
        energy=worker.ready.energy,
        noise=noise,
        precision=model.p50.relative_half_width,
        lengths=worker.lengths,
        seconds=worker.seconds,
        runs_with=worker.ready.runs_with,
    )


def _under_load(worker: Worker, callers: int, cores: Cores | None) -> UnderLoad:
    laps = worker.laps[callers]
    waits = np.concatenate([lap.waits for lap in laps])
    rows, seconds = [len(lap.waits) * worker.job.batch for lap in laps], [lap.seconds or 0.0 for lap in laps]
    rates = [count / duration for count, duration in zip(rows, seconds, strict=True)]
    unstable = lap_instabilities([lap.interference for lap in laps if lap.interference], rates, cores)
    return UnderLoad(
        callers=callers,
        rows_per_second=sum(rows) / sum(seconds),
        p50=float(np.median(waits)),
        p95=float(np.quantile(waits, 0.95)) if len(waits) >= MIN_CALLS_FOR_P95 else None,
        calls=len(waits),
        unstable="; ".join(unstable) or None,
    )
