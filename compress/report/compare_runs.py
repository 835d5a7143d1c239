"""Runs side by side: what differs in their recipes and data, their winners' scores, speed and size, and their cost.

All of it comes from their reports. Paired tests need the answers of both, which `paired` has where the runs still do.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import exp, hypot, log
from typing import Any

from compress import format_numbers as fmt
from compress.console import Console
from compress.errors import UsageError, pluralize
from compress.measure.quality.quality_result import Difference
from compress.measure.quality.significance import NORMAL, SESSION_SPREAD
from compress.measure.result_base import ResultModel, Score
from compress.report.report_schema import Report
from compress.report.retention import larger_is_better
from compress.tables import Table, make_table

ABSENT_SETTING = "–"


class Setting(ResultModel):
    """A setting of the resolved recipes that differs."""

    path: str
    """`distill.epochs`."""
    values: tuple[str, ...]
    """One a run; a dash where it has none."""


class Pair(ResultModel):
    """A paired comparison of two winners' answers on the same rows of test."""

    difference: Difference
    """The later run's score minus the first one's; below zero is a loss."""
    changed: int
    """Rows whose answers differ."""
    gained: int | None = None
    """Of those, rows that only the later one got right; None where answers are not right or wrong."""
    lost: int | None = None


class Side(ResultModel):
    """One run's winner on one target."""

    winner: str | None = None
    """The key of its row."""
    score: Score | None = None
    p50: Score | None = None
    unstable: bool = False
    """Whether its timing was disturbed."""
    bytes: int | None = None
    cost_seconds: float | None = None
    """What all steps that lead to it took when they ran."""
    per_class: Mapping[str, float] = {}
    """Recall by class."""
    pair: Pair | None = None
    """With the first run's; None for the first, and where there is a reason not to."""
    not_paired: str | None = None
    """Why there is no paired test."""
    faster: Score | None = None
    """How many times faster than the first run's; None where that is not judged."""
    not_timed_alike: str | None = None
    """Why speeds are not compared."""


class TargetComparison(ResultModel):
    """The winners on one target, one a run."""

    target: str
    sides: tuple[Side, ...]


class Comparison(ResultModel):
    """Runs of one task side by side; the others are compared with the first."""

    names: tuple[str, ...]
    created: tuple[str, ...]
    task: str
    metric: str
    larger_is_better: bool
    recipe: tuple[Setting, ...]
    data: tuple[Setting, ...]
    """Facts of the data that differ."""
    machines: tuple[str, ...]
    seconds: tuple[float, ...]
    """What all steps of each run took when they ran."""
    targets: tuple[TargetComparison, ...]


Paired = Mapping[tuple[str, int], Pair | str]
"""By target and number of the run, the comparison with the first run, or why there is none."""

NOT_KEPT = "their answers are not available"


def compare_reports(reports: Sequence[Report], names: Sequence[str], paired: Paired | None = None) -> Comparison:
    """Compare runs of one task; a UsageError where their tasks differ."""
    first = reports[0]
    check_same_task(reports, names)
    titles = [title for title in first.titles if all(title in report.titles for report in reports)]
    if not titles:
        stated = "; ".join(f"{name}: {', '.join(each.titles)}" for name, each in zip(names, reports, strict=True))
        raise UsageError(f"these runs have no target in common ({stated}).")
    return Comparison(
        names=tuple(names),
        created=tuple(report.created for report in reports),
        task=first.task.name,
        metric=first.task.metric,
        larger_is_better=larger_is_better(first),
        recipe=tuple(differing(*(dict(_flat(_unnamed(report.recipe))) for report in reports))),
        data=tuple(differing(*(_data_facts(report) for report in reports))),
        machines=tuple((report.surroundings or report.machine).cpu for report in reports),
        seconds=tuple(sum(step.seconds or 0.0 for step in report.steps) for report in reports),
        targets=tuple(
            TargetComparison(
                target=title,
                sides=tuple(_side(reports, title, number, paired or {}) for number in range(len(reports))),
            )
            for title in titles
        ),
    )


def check_same_task(reports: Sequence[Report], names: Sequence[str]) -> None:
    """Refuse runs of different tasks, with what differs."""
    for name, report in zip(names[1:], reports[1:], strict=True):
        if reasons := list(task_differences(reports[0], report)):
            raise UsageError(f"{names[0]} and {name} are runs of different tasks: {'; '.join(reasons)}.")


def task_differences(one: Report, other: Report) -> Iterator[str]:
    """Yield what makes the tasks of two runs different ones; their names and data may differ."""
    first, second = one.task, other.task
    if first.kind != second.kind:
        yield f"{first.kind} and {second.kind}"
    elif sorted(first.labels) != sorted(second.labels):
        missing = sorted({*first.labels} ^ {*second.labels})
        yield f"their classes differ ({', '.join(missing[:5])}{' …' if len(missing) > 5 else ''})"
    if first.kind == second.kind and first.metric != second.metric:
        yield f"they are scored by {fmt.metric(first.metric)} and by {fmt.metric(second.metric)}"


def differing(*facts: Mapping[str, str]) -> Iterator[Setting]:
    """Yield the settings that are not the same in all."""
    for path in dict.fromkeys(path for each in facts for path in each):
        values = tuple(each.get(path, ABSENT_SETTING) for each in facts)
        if len(set(values)) > 1:
            yield Setting(path=path, values=values)


def _unnamed(recipe: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in recipe.items() if key != "name"}


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every setting of a recipe with its path; those that are off count as absent."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _flat(each, f"{path}.{key}".lstrip("."))
    elif isinstance(value, (list, tuple)):
        if all(not isinstance(each, (Mapping, list, tuple)) for each in value):
            yield path, f"[{', '.join(map(str, value))}]"
        else:
            for number, each in enumerate(value):
                yield from _flat(each, f"{path}[{number}]")
    elif value is not None:
        yield path, str(value).lower() if isinstance(value, bool) else str(value)


def _data_facts(report: Report) -> dict[str, str]:
    data = report.data
    return {
        "source": data.source,
        "digest": data.digest[:16],
        "split seed": str(data.split_seed),
        **{f"rows of {role}": f"{count:,}" for role, count in data.rows.items()},
    }


def _side(reports: Sequence[Report], title: str, number: int, paired: Paired) -> Side:
    report, first = reports[number], reports[0]
    verdict, base = report.verdict(title), first.verdict(title)
    key = verdict.winner if verdict else None
    row, result = report.row(key), report.result(key, title)
    side = Side(
        winner=key,
        score=result.test.primary if result and result.test else None,
        p50=result.latency.typical() if result else None,
        unstable=result is not None and result.latency.status == "unstable",
        bytes=row.bytes_total if row else None,
        cost_seconds=row.cost_seconds if row else None,
        per_class={} if not (result and result.test) else {n: c.recall for n, c in result.test.per_class.items()},
    )
    if number == 0:
        return side
    pair = paired.get((title, number), NOT_KEPT)
    reason = pair if isinstance(pair, str) else None
    before = first.result(base.winner if base else None, title)
    before_p50 = before.latency.typical() if before else None
    why = _why_not_timed_alike(first, report, title, before_p50, side.p50)
    return side.model_copy(
        update={
            "pair": None if isinstance(pair, str) else pair,
            "not_paired": reason,
            "faster": ratio_between_sessions(before_p50, side.p50) if why is None else None,
            "not_timed_alike": why,
        }
    )


def _why_not_timed_alike(
    one: Report, other: Report, title: str, first: Score | None, second: Score | None
) -> str | None:
    """Return why two speeds do not compare: they are of different machines, or of different ways to call."""
    if first is None or second is None:
        return "one of them was not timed"
    machines = [report.surroundings or report.machine for report in (one, other)]
    if None in (machines[0].fingerprint, machines[1].fingerprint):
        return "the machine of one of them is not recorded"
    if machines[0].fingerprint != machines[1].fingerprint:
        names = [f"{each.cpu} ({pluralize(each.cores, 'core')})" for each in machines]
        alike = ", with other instructions" if names[0] == names[1] else f", and {names[1]}"
        return f"another machine: {names[0]}{alike}"
    uses = [
        report.target(title).model_dump(include={"device", "threads", "batch", "length"}) for report in (one, other)
    ]
    return None if uses[0] == uses[1] else f"{title} is not the same target in both"


def ratio_between_sessions(slower: Score | None, faster: Score | None) -> Score | None:
    """Return how many times faster; its interval has those of both, and how much sessions differ."""
    if slower is None or faster is None:
        return None
    halves = [(log(each.high) - log(each.low)) / 2 for each in (slower, faster)]
    half = hypot(*halves, NORMAL * SESSION_SPREAD)
    value = slower.value / faster.value
    return Score(value=value, low=value * exp(-half), high=value * exp(half))


def tables(comparison: Comparison) -> Iterator[Table]:
    """Yield what is shown of a comparison, in the terminal and on its page."""
    names, larger = comparison.names, comparison.larger_is_better
    for each in comparison.targets:
        yield make_table(
            (_cells(comparison, name, side) for name, side in zip(names, each.sides, strict=True)),
            names=2,
            sentences=("against the first", "speed against the first"),
            title=f"Winners on {each.target}",
            lines=(f"{fmt.metric(comparison.metric)} on test, with 95 % intervals; ≈ a timing that was disturbed",),
        )
        classes = dict.fromkeys(name for side in each.sides for name in side.per_class)
        if len(classes) > 1:
            yield make_table(
                (
                    {"class": label}
                    | {
                        name: fmt.score(side.per_class.get(label), larger)
                        for name, side in zip(names, each.sides, strict=True)
                    }
                    for label in classes
                ),
                names=1,
                title=f"Recall of each class on {each.target}",
            )
    for title, settings in (("What differs in the recipes", comparison.recipe), ("… in the data", comparison.data)):
        if settings:
            rows = ({"setting": each.path} | dict(zip(names, each.values, strict=True)) for each in settings)
            yield make_table(rows, names=1, sentences=names, title=title)
    cost = zip(names, comparison.machines, comparison.seconds, strict=True)
    rows = ({"run": name, "machine": machine, "all steps": fmt.seconds(whole)} for name, machine, whole in cost)
    yield make_table(rows, title="Cost")


def _cells(comparison: Comparison, name: str, side: Side) -> dict[str, str]:
    larger = comparison.larger_is_better
    score = fmt.ABSENT
    if side.score is not None:
        score = f"{fmt.score(side.score.value, larger)} ({fmt.interval(side.score, larger)})"
    return {
        "run": name,
        "winner": side.winner or "none",
        "score": score,
        "against the first": _score_in_words(side, larger),
        "p50": ("≈ " if side.unstable else "") + fmt.milliseconds(side.p50.value if side.p50 else None),
        "speed against the first": _speed_in_words(side),
        "size": fmt.size(side.bytes),
        "cost": fmt.seconds(side.cost_seconds),
    }


def _score_in_words(side: Side, larger: bool) -> str:
    if side.pair is None:
        return f"not tested: {side.not_paired}" if side.not_paired else fmt.ABSENT
    pair, difference = side.pair, side.pair.difference
    state = "significant" if difference.p_value < 0.05 else "within chance"
    text = f"{fmt.signed(difference.value, larger)}, p {fmt.p_value(difference.p_value)} ({state}); "
    rows = f"{pair.changed:,} answers changed"
    if pair.gained is not None and pair.lost is not None:
        rows += f", {pair.gained:,} now right, {pair.lost:,} now wrong"
    return text + rows


def _speed_in_words(side: Side) -> str:
    if side.faster is None:
        return f"not judged: {side.not_timed_alike}" if side.not_timed_alike else fmt.ABSENT
    clear = not side.faster.low <= 1 <= side.faster.high
    return f"{fmt.ratio(side.faster.value)} ({fmt.span(side.faster, fmt.ratio)}){'' if clear else ', within noise'}"


def show_comparison(comparison: Comparison, console: Console) -> None:
    """Show a comparison in the terminal."""
    for table in tables(comparison):
        console.table(table.rows, table.columns, title=table.title)
    if not comparison.recipe:
        console.note("the resolved recipes are equal")
    if not comparison.data:
        console.note("the data is the same")
