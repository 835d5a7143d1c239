"""The result of one job: what its processes recorded as statistics, with interference, and whether it is stable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from compress.measure import interference
from compress.measure.timing.latency import CallTimes, Latency, Timing, UnderLoad
from compress.measure.timing.process_limits import Cores
from compress.measure.timing.round_statistics import throughput, timing
from compress.measure.timing.schedule import MIN_CALLS_FOR_P95
from compress.recipe.measure_schema import Measure

if TYPE_CHECKING:
    from compress.measure.timing.worker_pool import Worker


def job_result(worker: Worker, last: Latency, settings: Measure, seed: int, cores: Cores, width: int) -> Latency:
    """Return the result of one job.

    Args:
        worker: the job with everything its processes recorded.
        last: of the reply to `close`, with the memory of the last process.
        settings: resamples behind an interval, and numbers of callers.
        seed: of the resamples.
        cores: of the worker and its neighbours.
        width: number of different calls in a pass.
    """

    def summarise(rounds: Sequence[CallTimes]) -> Timing | None:
        """Return the statistics of one part of the turns; None where it does not apply."""
        if not rounds[0].total:
            return None
        waits = [np.array(times.waits) for times in rounds]
        totals = [np.array(times.total) for times in rounds]
        return timing(totals, settings.bootstrap, seed, worker.processes, width, waits, worker.weights)

    turns, batch, loaded = worker.turns, worker.job.batch, worker.ready.latency
    model_rounds, full_rounds = [turn.model for turn in turns], [turn.end_to_end for turn in turns]
    model, full, device = map(summarise, (model_rounds, full_rounds, [turn.device for turn in turns]))
    noise = interference.aggregate([turn.interference for turn in turns], cores)
    if noise is not None:
        noise = noise.model_copy(update={"waited": interference.wait_share([*model_rounds, *full_rounds])})
    unstable = interference.instabilities(noise, model, full, device)
    unstable += interference.warm_up_instabilities(worker.unsteady, len(set(worker.processes)))
    replaced = [f"a worker process was lost and restarted: {reason}" for reason in worker.lost]
    energy = [(turn.joules, turn.energy_calls * batch) for turn in turns if turn.joules is not None]
    joules, rows = (sum(part) for part in zip(*energy, strict=True)) if energy else (0.0, 0)
    # Where calls count differently, as those of a cascade do, so they do in the time that all of them take.
    per_second = batch * 1e3 / model.mean.value if worker.weights and model and model.mean else None
    overloaded = [f"{callers} callers at once were not timed: {why}" for callers, why in worker.overloaded.items()]
    changes = {
        "status": "unstable" if unstable else "measured",
        "reason": "; ".join([*unstable, *replaced, *overloaded, *filter(None, [loaded.reason])]) or None,
        "model": model,
        "end_to_end": full,
        "device": device,
        "rows_per_second": per_second or throughput(model_rounds, batch),
        "under_load": tuple(
            _under_load(worker, callers, cores) for callers in settings.callers if callers in worker.laps
        ),
        "resident_memory": last.resident_memory,
        "peak_memory": last.peak_memory,
        "device_memory": last.device_memory,
        # 0 where the counter did not move in turns so short; it counts all calls alike
        "joules_per_row": joules / rows if joules and not worker.weights else None,
        "noise": noise,
        "precision": model.p50.relative_half_width if model else None,
        "lengths": worker.lengths,
        "seconds": worker.seconds,
    }
    return loaded.model_copy(update=changes)


def _under_load(worker: Worker, callers: int, cores: Cores) -> UnderLoad:
    laps = worker.laps[callers]
    waits = [wait for lap in laps for wait in lap.waits]
    rates = [len(lap.waits) * worker.job.batch / lap.seconds for lap in laps]
    return UnderLoad(
        callers=callers,
        rows_per_second=len(waits) * worker.job.batch / sum(lap.seconds for lap in laps),
        p50=float(np.median(waits)),
        p95=float(np.quantile(waits, 0.95)) if len(waits) >= MIN_CALLS_FOR_P95 else None,
        calls=len(waits),
        unstable="; ".join(interference.lap_instabilities([lap.interference for lap in laps], rates, cores)) or None,
    )
