"""Rounds of a comparison: A B C D, A B C D … so that a disturbance of the machine affects all contestants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.distill_throughput import race_cases, race_results
from benchmarks.distill_throughput.contestants import Contestant, Failed, Place, run
from benchmarks.distill_throughput.environments import NotInstalled
from benchmarks.distill_throughput.race_inputs import Material, Workshop
from benchmarks.distill_throughput.race_job import STUDENT, Job

WARM_UP = 3
"""Steps that are not timed."""


@dataclass(frozen=True)
class Setting:
    """How this run races."""

    workshop: Workshop
    place: Place
    rounds: int
    rows: int
    batch: int


def planned(case: race_cases.Case, only: tuple[str, ...], requested: int, batch: int) -> race_results.Race:
    """The race before anybody has run."""
    return race_results.Race(
        key=case.key,
        title=case.title,
        rows=case.rows(requested, batch),
        epochs=case.epochs,
        goals=case.goals,
        reason=case.missing,
        lanes=tuple(
            race_results.Lane(key=lane.key, about=about(lane)) for lane in case.lanes if lane.contestant.name in only
        ),
    )


def about(lane: race_cases.Lane) -> str:
    """What a reader should know of a lane."""
    about = lane.contestant.about
    return about if lane.key == lane.contestant.name else f"{about}, teacher {lane.key}"


def race(case: race_cases.Case, found: race_results.Race, setting: Setting) -> Iterator[race_results.Race]:
    """Run all rounds; yields the race anew after every turn. Who fails is left out of the rounds that follow."""
    if found.reason is not None or not found.lanes:
        return
    material = setting.workshop.material(case.material)
    lanes = {lane.key: lane for lane in case.lanes}
    found = found.model_copy(update={"pieces": material.pieces})
    for number in range(setting.rounds):
        for lane in found.lanes:
            if lane.reason is None:
                scored = case.scored and number == setting.rounds - 1
                after = turn(lane, lanes[lane.key], job_of(case, lane.key, number, material, setting), setting, scored)
                found = found.with_lane(after)
                yield found


def job_of(case: race_cases.Case, lane: str, number: int, material: Material, setting: Setting) -> Job:
    """The job of one turn; the round is the seed."""
    count = case.rows(setting.rows, setting.batch)
    earlier = (case.epochs - 1) * count
    return Job(
        teacher=material.teacher,
        student=material.student,
        rows=material.rows,
        output=setting.workshop.work / f"{case.key}-{lane}-{number}",
        pairs=material.pairs,
        count=count,
        batch=setting.batch,
        epochs=case.epochs,
        untimed=earlier + min(WARM_UP, count // setting.batch - 1) * setting.batch,
        seed=number,
        cache={each.key: each for each in case.lanes}[lane].cache,
    )


def turn(
    lane: race_results.Lane, given: race_cases.Lane, job: Job, setting: Setting, scored: bool
) -> race_results.Lane:
    """Run one contestant once; return its lane with the result, or with the reason why there is none."""
    try:
        install(given.contestant)
        result = run(given.contestant, job, setting.place)
    except (Failed, NotInstalled) as error:
        return lane.model_copy(update={"reason": f"not run: {error}"})
    score = setting.workshop.score(job.student, job.output / STUDENT) if scored else lane.score
    setting.workshop.forget(job.output)
    speeds = (*lane.speeds, result["rows"] / result["seconds"])
    return lane.model_copy(update={"speeds": speeds, "precision": result["precision"], "score": score})


def install(contestant: Contestant) -> None:
    """Make its environment, where it has one."""
    if contestant.environment is not None:
        contestant.environment.install()
