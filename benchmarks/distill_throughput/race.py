"""Rounds of a comparison: A B C D, A B C D … so that a disturbance of the machine affects all contestants."""

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.distill_throughput import race_cases, race_results
from benchmarks.distill_throughput.contestants import Contestant, CpuPlacement, Failed, run
from benchmarks.distill_throughput.environments import NotInstalled
from benchmarks.distill_throughput.race_inputs import InputsBuilder, RaceInputs
from benchmarks.distill_throughput.race_job import STUDENT, Job

WARM_UP = 3
"""Steps that are not timed."""


@dataclass(frozen=True)
class Setting:
    """The settings of this run."""

    inputs_builder: InputsBuilder
    placement: CpuPlacement
    rounds: int
    rows: int
    batch: int


def planned(case: race_cases.Case, only: tuple[str, ...], requested: int, batch: int) -> race_results.Race:
    """Return the race without results."""
    return race_results.Race(
        key=case.key,
        title=case.title,
        rows=case.rows(requested, batch),
        goals=case.goals,
        fp32_goals=case.fp32_goals,
        reason=case.missing,
        lanes=tuple(
            race_results.Lane(key=lane.key, about=about(lane), epochs=lane.epochs)
            for lane in case.lanes
            if lane.contestant.name in only
        ),
    )


def about(lane: race_cases.Lane) -> str:
    """Return the description of a lane."""
    about = lane.contestant.about
    return about if lane.key == lane.contestant.name else f"{about}, teacher {lane.key}"


def race(case: race_cases.Case, state: race_results.Race, setting: Setting) -> Iterator[race_results.Race]:
    """Run all rounds; yields the updated race after every turn. A contestant that fails runs no further rounds."""
    if state.reason is not None or not state.lanes:
        return
    inputs = setting.inputs_builder.inputs_for(case.inputs)
    lanes = {lane.key: lane for lane in case.lanes}
    state = state.model_copy(update={"pieces": inputs.pieces})
    for number in range(setting.rounds):
        for lane in state.lanes:
            if lane.reason is None:
                scored = case.scored and lane.epochs == 1
                job = job_of(case, lanes[lane.key], number, inputs, setting)
                after = turn(lane, lanes[lane.key], job, setting, scored)
                state = state.with_lane(after)
                yield state


def job_of(case: race_cases.Case, lane: race_cases.Lane, number: int, inputs: RaceInputs, setting: Setting) -> Job:
    """The job of one turn; the round is the seed."""
    count = case.rows(setting.rows, setting.batch)
    earlier = (lane.epochs - 1) * count
    return Job(
        teacher=inputs.teacher,
        student=inputs.student,
        rows=inputs.rows,
        output=setting.inputs_builder.work / f"{case.key}-{lane.key}-{number}",
        pairs=inputs.pairs,
        count=count,
        batch=setting.batch,
        epochs=lane.epochs,
        untimed=earlier + min(WARM_UP, count // setting.batch - 1) * setting.batch,
        seed=number,
        cache=lane.cache,
    )


def turn(
    lane: race_results.Lane, given: race_cases.Lane, job: Job, setting: Setting, scored: bool
) -> race_results.Lane:
    """Run one contestant once; return its lane with the result, or with the reason why there is none."""
    try:
        install(given.contestant)
        result = run(given.contestant, job, setting.placement)
    except (Failed, NotInstalled) as error:
        return lane.model_copy(update={"reason": f"not run: {error}"})
    scores = (setting.inputs_builder.score(job.student, job.output / STUDENT),) if scored else ()
    setting.inputs_builder.delete_files(job.output)
    speeds = (*lane.speeds, result["rows"] / result["seconds"])
    return lane.model_copy(
        update={"speeds": speeds, "precision": result["precision"], "scores": (*lane.scores, *scores)}
    )


def install(contestant: Contestant) -> None:
    """Create its environment, where it has one."""
    if contestant.environment is not None:
        contestant.environment.install()
