"""The measuring session: a worker a job, rounds that go around all of them, and one answer a job whatever happens."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import numpy as np

from compress.console import Console, Progress
from compress.environment import usable_cores
from compress.errors import UsageError
from compress.measure.latency import Job, Latency, Round, timing
from compress.measure.link import Link, Lost, Refused
from compress.measure.messages import Order, Reply, WorkerSpec
from compress.measure.placement import cores_for
from compress.measure.workload import LEAST_CALLS, Call, Text, calls_in_turn, make_calls, spaced
from compress.recipe.schema import Measure

DEFAULTS = Measure()

UNSTABLE = 0.10
"""Spread of the rounds' medians above which a timing is called unstable."""
START_PATIENCE = 600.0
"""Seconds in which a model must have loaded and warmed up."""
TURN_PATIENCE = 60.0
"""Seconds that any turn may take; slow ones may take ten times what was foreseen."""


@dataclass
class Running:
    """A job whose worker answers, with what it has told so far."""

    job: Job
    link: Link
    ready: Reply
    model: list[Round] = field(default_factory=list)
    end_to_end: list[Round] = field(default_factory=list)


def time_jobs(
    jobs: Sequence[Job],
    texts: Sequence[Text],
    settings: Measure = DEFAULTS,
    *,
    seed: int = 0,
    console: Console | None = None,
) -> dict[str, Latency]:
    """Time all jobs and answer for each of them.

    Args:
        jobs: those with the same place, batch and length are timed together and can be compared by ``ratio``.
        texts: rows of the test set, a few hundred at random, for jobs at the data's own lengths.
        settings: rounds, seconds of a turn (shared by the model alone and end to end), resamples behind an interval.
        seed: chooses which rows meet in a batch and the order of turns.
        console: is told of progress.
    """
    keys = [job.key for job in jobs]
    if len(set(keys)) != len(keys):
        raise UsageError(f"two jobs are called {next(key for key in keys if keys.count(key) > 1)}.")
    if not texts and any(job.length is None for job in jobs):
        raise UsageError("jobs at the data's own lengths need texts.")
    sessions: dict[object, list[Job]] = {}
    for job in jobs:
        sessions.setdefault(job.session, []).append(job)
    found: dict[str, Latency] = {}
    turns = len(jobs) * (settings.rounds + 2)
    with (console or Console("quiet")).progress(turns, "measure", "turns") as progress:
        for together in sessions.values():
            found |= _time_session(together, texts, settings, seed, progress)
    return {key: found[key] for key in keys}


def _time_session(
    jobs: Sequence[Job], texts: Sequence[Text], settings: Measure, seed: int, progress: Progress
) -> dict[str, Latency]:
    threads, cores = jobs[0].place.threads, usable_cores()
    if threads > cores:
        reason = f"{threads} threads were asked for and this machine has {cores} cores"
        return {job.key: Latency(status="not measured", reason=reason) for job in jobs}
    calls = make_calls(texts, jobs[0].batch, seed) if jobs[0].length is None else []
    found: dict[str, Latency] = {}
    with ExitStack() as stack:
        running: dict[str, Running] = {}
        for job in jobs:
            with _telling(job.key, found):
                link = stack.enter_context(Link(job.place.threads))
                running[job.key] = Running(job, link, link.ask(_spec(job, calls, seed), START_PATIENCE))
            progress.advance(note=job.key)
        _go_around(running, len(calls) or 1, settings, seed, found, progress)
        for key, one in running.items():
            if key not in found:
                with _telling(key, found):
                    found[key] = _latency(one, one.link.ask(Order(do="close"), TURN_PATIENCE), settings, seed)
    return found


def _spec(job: Job, calls: list[Call], seed: int) -> WorkerSpec:
    return WorkerSpec(
        folder=os.fspath(job.folder),
        variant=job.variant,
        device=job.place.device,
        threads=job.place.threads,
        cores=cores_for(job.place.threads),
        batch=job.batch,
        length=job.length,
        calls=tuple(calls),
        warm=tuple(spaced(min(LEAST_CALLS, len(calls)), len(calls))) or (0,),
        seed=seed,
    )


def _go_around(
    running: dict[str, Running], calls: int, settings: Measure, seed: int, found: dict[str, Latency], progress: Progress
) -> None:
    """All rounds, and a first one that only warms up; who dies leaves, and the others go on."""
    if not running:
        return
    slowest = max(one.ready.call_seconds or 0.0 for one in running.values())
    count = calls_in_turn(calls, slowest, settings.seconds / 2)
    order = Order(do="turn", calls=tuple(spaced(count, calls)), seconds=settings.seconds)
    patience = max(TURN_PATIENCE, 10 * (settings.seconds + 3 * count * slowest))
    random = np.random.default_rng(seed)
    for lap in range(settings.rounds + 1):
        for key in random.permutation(sorted(running)):
            if key in found:
                continue
            one = running[key]
            with _telling(key, found):
                reply = one.link.ask(order, patience)
                if lap > 0:
                    one.model.append(np.asarray(reply.model))
                    one.end_to_end.append(np.asarray(reply.end_to_end))
            progress.advance(note=key)


@contextmanager
def _telling(key: str, found: dict[str, Latency]) -> Iterator[None]:
    """Write down how a job ended instead of ending the session."""
    try:
        yield
    except Refused as end:
        found[key] = Latency(status="not measured", reason=str(end))
    except Lost as end:
        found[key] = Latency(status="failed", reason=str(end))


def _latency(one: Running, last: Reply, settings: Measure, seed: int) -> Latency:
    model = timing(one.model, settings.bootstrap, seed)
    full = timing(one.end_to_end, settings.bootstrap, seed) if one.job.length is None else None
    unstable = model.spread > UNSTABLE
    return Latency(
        status="unstable" if unstable else "measured",
        reason=f"the rounds' medians spread by {model.spread:.0%}, more than {UNSTABLE:.0%}" if unstable else None,
        model=model,
        end_to_end=full,
        rows_per_second=one.job.batch / model.p50.value * 1e3,
        load_seconds=one.ready.load_seconds,
        peak_memory=last.peak_memory,
        device_memory=last.device_memory,
        runs_with=one.ready.runs_with,
    )
