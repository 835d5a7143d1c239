"""`python -m benchmarks.quickstart`: does the quickstart show what it is meant to show, whatever the seed?

The shipped recipe is run with several seeds, unchanged otherwise. With --work, a killed benchmark goes on where it
stopped: results are stored seed by seed, and finished steps of the interrupted run in that folder.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.markdown_page import machine, origin, table
from benchmarks.report_store import Report, Store, beginning, carry_out, positive, run
from compress import format_numbers as fmt
from compress.console import Console, duration
from compress.environment import describe_cpu
from compress.measure.result_base import ResultModel
from compress.pipeline.run import run as run_recipe
from compress.report.report_schema import Report as RunReport
from compress.report.retention import quality_on_test

RECIPE = "quickstart"
SIGNIFICANT, PRODUCT, FASTER = 0.01, 0.80, 12.0
BAG, PROBE = "bag of words", "probe"
TRIAL = ("task.data.limit=64", "finetune.epochs=1", "distill.epochs=1", "prune.recover.epochs=1", "measure.budget=10s")
"""Overrides of a trial."""

COLUMNS = (
    "seed",
    BAG,
    PROBE,
    "teacher",
    "student",
    "pruned",
    "winner",
    "kept",
    "gate",
    "faster",
    "smaller",
    "fine-tuning",
)
GOALS = ("goal", "result", "verdict")


class Entry(ResultModel):
    """The results of one seed."""

    seed: int
    processor: str
    metric: str
    scores: Mapping[str, float]
    """On test: of the baselines, of each model's first variant that was scored, and of the winner."""
    p_values: Mapping[str, float] = {}
    """Of the paired test on the rows of test between the teacher and each baseline."""
    winner: str | None = None
    """Its row."""
    gate: str | None = None
    """The winner's outcome on select."""
    faster: float | None = None
    """The winner than the teacher in PyTorch fp32, in the same rounds."""
    smaller: float | None = None
    training: float
    """Seconds of fine-tuning."""
    seconds: float
    """Of all steps."""

    @property
    def key(self) -> str:
        """Its name in the report."""
        return str(self.seed)


class QuickstartReport(Report):
    """The results of all seeds."""

    about: str = "quickstart"
    entries: tuple[Entry, ...] = ()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every seed; 130 where it was interrupted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quickstart", description=__doc__)
    parser.add_argument("--seeds", type=positive, help="(default: 5; 1 in a trial)")
    parser.add_argument("--out", type=Path, help="folder of the report (default: reports/quickstart; none in a trial)")
    parser.add_argument("--work", type=Path, help="folder of the runs, kept (default: a temporary one)")
    parser.add_argument("--trial", action="store_true", help="everything in small, to see that it runs")
    given = parser.parse_args(arguments)
    given.out = given.out or (None if given.trial else Path("reports/quickstart"))
    command = "python -m benchmarks.quickstart" + (" --trial" if given.trial else "")
    store = Store(QuickstartReport(**beginning(command, given.trial)), given.out, page)
    if store.resume():
        store.earlier = sum(entry.seconds for entry in store.report.entries)
    seeds = range(given.seeds or (1 if given.trial else 5))
    work = partial(run_seeds, store, seeds, TRIAL if given.trial else ())
    return carry_out(store, Console("human"), work, show, given.work)


def run_seeds(store: Store[QuickstartReport], seeds: Sequence[int], overrides: Sequence[str], work: Path) -> None:
    """Run every seed that has no result yet, storing each result."""
    for seed in seeds:
        if seed in {entry.seed for entry in store.report.entries}:
            continue
        settings = (f"seed={seed}", "publish=null", *overrides)
        report = run_recipe(RECIPE, overrides=settings, runs=work / "runs", console=Console("human"))
        store.update(entries=(*store.report.entries, entry_of(report, seed)))


def entry_of(report: RunReport, seed: int) -> Entry:
    """Return the results of one run."""
    title = report.titles[0]
    verdict = report.verdict(title)
    baselines = {BAG: report.floor, PROBE: report.probe}
    scores = {name: quality.primary.value for name, quality in baselines.items() if quality}
    for model in report.models:
        rows = (quality_on_test(report, row.key, title) for row in report.rows if row.model == model.name)
        if first := next(filter(None, rows), None):
            scores[model.name] = first.primary.value
    best = report.result(verdict.winner, title) if verdict else None
    if best and (test := best.test):
        scores["winner"] = test.primary.value
    gate = best.gate if best else None
    versus = verdict.comparison_with(report.teacher) if verdict else None
    seconds = {step.name: step.seconds or 0.0 for step in report.steps}
    return Entry(
        seed=seed,
        processor=describe_cpu().model,
        metric=report.task.metric,
        scores=scores,
        p_values={
            name: each.versus_teacher.p_value for name, each in baselines.items() if each and each.versus_teacher
        },
        winner=best.key if best else None,
        gate=gate.outcome if gate else None,
        faster=versus.speedup.value if versus and versus.speedup else None,
        smaller=versus.smaller if versus else None,
        training=seconds["finetune"],
        seconds=sum(seconds.values()),
    )


def page(report: QuickstartReport) -> str:
    """Return the page in Markdown."""
    metric = report.entries[0].metric if report.entries else "the metric"
    blocks = [
        "# Does the quickstart show what it is meant to show?",
        origin(report),
        f"Scores on test in {metric}. `kept`: the winner's score over the teacher's. `faster` and `smaller`: than the"
        " teacher in PyTorch fp32. `fine-tuning`: of the teacher.",
        table(map(cells, report.entries), COLUMNS, COLUMNS),
        "## Goals",
        table(goals(report), GOALS),
    ]
    others = {entry.seed: entry.processor for entry in report.entries}
    here = report.surroundings and report.surroundings.cpu
    if moved := [f"{seed} ({name})" for seed, name in others.items() if here and name != here]:
        blocks += [f"Seeds that ran on another processor than the one below: {', '.join(moved)}."]
    return "\n\n".join([*blocks, machine(report)]) + "\n"


def cells(entry: Entry) -> dict[str, str]:
    """Return the row of one seed."""
    scores = {name: f"{entry.scores[name]:.4f}" if name in entry.scores else "" for name in COLUMNS[1:7]}
    kept = entry.scores.get("winner", 0.0) / entry.scores["teacher"] if entry.scores.get("teacher") else None
    speeds = {"faster": fmt.ratio(entry.faster), "smaller": fmt.ratio(entry.smaller)}
    times = {"fine-tuning": duration(entry.training)}
    return {
        "seed": entry.key,
        **scores,
        "kept": fmt.percent(kept),
        "gate": entry.gate or "no winner",
        **speeds,
        **times,
    }


def goals(report: QuickstartReport) -> Iterator[dict[str, str]]:
    """Yield every goal with how many seeds meet it."""
    entries = report.entries
    for name in (BAG, PROBE):
        met = [
            entry.scores["teacher"] > entry.scores[name] and entry.p_values[name] < SIGNIFICANT
            for entry in entries
            if name in entry.p_values
        ]
        yield _goal(f"the teacher is better than the {name} (paired, p < {SIGNIFICANT})", met)
    yield _goal(f"the teacher scores {PRODUCT:.0%} or more", [entry.scores["teacher"] >= PRODUCT for entry in entries])
    yield _goal("the winner is within the gate", [entry.gate == "passed" for entry in entries])
    yield _goal(f"the winner is {FASTER:g} times faster", [(entry.faster or 0.0) >= FASTER for entry in entries])


def _goal(goal: str, met: Sequence[bool]) -> dict[str, str]:
    verdict = "not measured" if not met else "met" if all(met) else "missed"
    return dict(zip(GOALS, (goal, f"{sum(met)} of {len(met)} seeds", verdict), strict=True))


def show(report: QuickstartReport, console: Console) -> None:
    """Print the tables."""
    console.table([cells(entry) for entry in report.entries], COLUMNS)
    console.table(list(goals(report)), GOALS)


if __name__ == "__main__":
    run(main)
