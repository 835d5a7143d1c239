"""The comparison as a page: one table of scores, one of time, and the goals."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from benchmarks.defaults.comparison import DefaultsReport, Entry
from benchmarks.markdown_page import machine, origin, table

SCORES = ("bag of words", "probe", "teacher", "pruned", "winner", "trainer", "grid", "setfit")
COLUMNS = ("set", "seeds", *SCORES)
RATIOS = ("teacher / best", "whole run / best")
TIMES = ("set", "whole run", "teacher's training", "best of the grid", "best settings", *RATIOS, "trainer", "setfit")
GOALS = ("set", "teacher - grid", "not worse than the grid", "above baselines", "pruned", "winner", "time", "goals")
WITHIN, PRUNED, WINNER, LONGER = 0.005, 0.99, 0.985, 3.0
SIGNIFICANT = 0.05
METHOD = (
    "The default recipe is what `compress init` writes. The others train on the same rows: the Trainer of transformers"
    " with its defaults, the best on select of a grid of fine-tunings{grid}, and SetFit (single texts only)."
)
MEANS = (
    "Scores on test in each set's metric, means over the seeds that ran (how many is in brackets where they are not all"
    " of the set's)"
)
GOAL_TEXT = (
    "The default recipe's teacher is within 0.5 points of the grid's best or not significantly worse (paired, every"
    " seed; by scores alone where the recipe ran again after the grid), and not below its baselines; the pruned model"
    " keeps 99 % and the winner 98.5 % of the teacher; the teacher's training takes at most three times as long as one"
    " training at the grid's best settings (same seed and processor). Open: met as far as it was measured."
)


def page(report: DefaultsReport) -> str:
    """Return the page in Markdown."""
    limit = f"at most {report.limit:,} rows of each role"
    grid = f" (learning rates and epochs: {report.grid})" if report.grid else ""
    head = f"{METHOD.format(grid=grid)} {MEANS}; {limit}."
    blocks = ["# Are the defaults good?", origin(report), head, table(scores(report), COLUMNS, COLUMNS[2:])]
    blocks += ["## Goals", GOAL_TEXT, table(goals(report), GOALS, GOALS[1:2])]
    blocks += ["## Time", table(times(report), TIMES, TIMES[1:]), *reasons(report), *elsewhere(report), machine(report)]
    return "\n\n".join(blocks) + "\n"


def scores(report: DefaultsReport) -> Iterator[dict[str, str]]:
    """Yield one row a set."""
    for name in _sets(report):
        entries = _of(report, name)
        seeds = len({each.seed for each in entries})
        values = {score: [each.scores[score] for each in entries if score in each.scores] for score in SCORES}
        yield {"set": name, "seeds": str(seeds), **{score: _mean(values[score], seeds) for score in SCORES}}


def goals(report: DefaultsReport) -> Iterator[dict[str, str]]:
    """Yield one row for each set on which the default recipe ran; empty cells where no grid did."""
    for name in _sets(report):
        ours = [each.scores for each in _of(report, name, "ours") if "teacher" in each.scores]
        if not ours:
            continue
        gains = list(_gains(report, name))
        gained = f"{100 * fmean(gain for gain, _ in gains):+.1f}" if gains else ""
        ratio = _times_as_long(report, name)[0]
        not_worse = _all([is_not_worse for _, is_not_worse in gains])
        above = all(each["teacher"] >= max(each.get("probe", 0.0), each.get("bag of words", 0.0)) for each in ours)
        pruned, winner = _share(ours, "pruned"), _share(ours, "winner")
        is_met = [not_worse, above, pruned >= PRUNED, winner >= WINNER, ratio <= LONGER if ratio else None]
        cells = [
            gained,
            _word(not_worse),
            _word(above),
            f"{pruned:.3f}",
            f"{winner:.3f}",
            f"{ratio:.1f}" if ratio else "",
        ]
        yield dict(zip(GOALS, (name, *cells, _verdict(is_met)), strict=True))


def _gains(report: DefaultsReport, name: str) -> Iterator[tuple[float, bool | None]]:
    """Yield the teacher's score minus that of the grid's best, and whether it is not worse; None: unknown.

    Where the default recipe ran again after the grid, their answers are not paired, and a lower score proves nothing.
    """
    teachers = {each.seed: each.scores["teacher"] for each in _of(report, name, "ours") if "teacher" in each.scores}
    for entry in _of(report, name, "grid"):
        if entry.versus:
            is_close = entry.versus.value >= -WITHIN
            yield entry.versus.value, is_close or entry.versus.p_value > SIGNIFICANT
        elif entry.seed in teachers and "grid" in entry.scores:
            gain = teachers[entry.seed] - entry.scores["grid"]
            yield gain, True if gain >= -WITHIN else None


def times(report: DefaultsReport) -> Iterator[dict[str, str]]:
    """Yield one row a set, in minutes."""
    for name in _sets(report):
        ours, grid = (_of(report, name, contestant) for contestant in ("ours", "grid"))
        trained, best = ([each.training for each in group] for group in (ours, grid))
        settings = "; ".join(dict.fromkeys(each.settings for each in grid if each.settings))
        ratios = [f"{ratio:.1f}" if ratio else "" for ratio in _times_as_long(report, name)]
        others = [_minutes([each.seconds for each in _of(report, name, key)]) for key in ("trainer", "setfit")]
        minutes = [_minutes([each.seconds for each in ours]), _minutes(trained), _minutes(best)]
        yield dict(zip(TIMES, (name, *minutes, settings, *ratios, *others), strict=True))


def _times_as_long(report: DefaultsReport, name: str) -> tuple[float, float]:
    """Return the duration of the teacher's training and of the whole run over that of the grid's best; 0: unknown.

    Only runs with the same seed on the same processor are compared.
    """
    own = report.surroundings.cpu if report.surroundings else None
    best = {(each.seed, each.processor or own): each.training for each in _of(report, name, "grid") if each.training}
    ours = [each for each in _of(report, name, "ours") if (each.seed, each.processor or own) in best]
    total = sum(best[each.seed, each.processor or own] for each in ours)
    trained, whole = sum(each.training or 0.0 for each in ours), sum(each.seconds or 0.0 for each in ours)
    return (trained / total, whole / total) if total else (0.0, 0.0)


def reasons(report: DefaultsReport) -> list[str]:
    """Return what was not measured, and why."""
    missing = [f"- {each.key}: {each.reason}" for each in report.entries if each.reason]
    return ["## Not measured", "\n".join(missing)] if missing else []


def elsewhere(report: DefaultsReport) -> list[str]:
    """Return which results are of another processor than the report's."""
    own = report.surroundings.cpu if report.surroundings else None
    others = {each.processor for each in report.entries} - {None, own}
    lines = [
        f"- {name}: {', '.join(each.key for each in report.entries if each.processor == name)}"
        for name in sorted(filter(None, others))
    ]
    return ["## Run on another processor than the one below", "\n".join(lines)] if lines else []


def _sets(report: DefaultsReport) -> tuple[str, ...]:
    return tuple(dict.fromkeys(entry.set for entry in report.entries))


def _of(report: DefaultsReport, name: str, contestant: str | None = None) -> list[Entry]:
    return [each for each in report.entries if each.set == name and contestant in (None, each.contestant)]


def _share(ours: Sequence[Mapping[str, float]], model: str) -> float:
    """Return the share of the teacher's score that a model keeps; 0 where a seed has none."""
    return fmean(each.get(model, 0.0) / each["teacher"] for each in ours)


def _mean(values: Sequence[float], seeds: int) -> str:
    """Return the mean, with the number of values where not all seeds have one."""
    fewer = f" ({len(values)})" if len(values) < seeds else ""
    return f"{fmean(values):.4f}{fewer}" if values else ""


def _minutes(seconds: Sequence[float | None]) -> str:
    measured = [each for each in seconds if each is not None]
    return f"{fmean(measured) / 60:.1f} min" if measured else ""


def _word(is_met: bool | None) -> str:
    return "" if is_met is None else "yes" if is_met else "no"


def _all(answers: Sequence[bool | None]) -> bool | None:
    """Return whether all are true; None where that is unknown, or there are none."""
    if False in answers:
        return False
    return None if None in answers or not answers else True


def _verdict(is_met: Sequence[bool | None]) -> str:
    """Return `missed` where one goal is, else `met`, or `open` where not all were measured."""
    return {True: "met", False: "missed", None: "open"}[_all(is_met)]
