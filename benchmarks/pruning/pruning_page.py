"""The comparison as a page: one table a set, the goals, and a picture of score against speed."""

import re
from collections.abc import Iterator, Sequence

from benchmarks.markdown_page import machine, origin, table
from benchmarks.pruning.pruning_cases import CUT_ALONE, TARGETS, VARIANTS
from benchmarks.pruning.pruning_results import Entry, PruningReport
from compress.report.charts.score_and_speed_charts import Point, Series, xy_chart
from compress.report.charts.svg import Frame, element
from compress.report.pages.render import TEMPLATES

KEPT = {variant: f"kept, {variant}" for variant in VARIANTS}
SPEEDS = [f"{variant} {target}" for variant in VARIANTS for target in TARGETS]
COLUMNS = ("case", "parameters", *KEPT.values(), *SPEEDS, "cut", "trained", "not run because")
GOALS = ("goal", "result", "verdict")
METHOD = (
    "MiniLM, fine-tuned by default settings, is cut by every criterion to a share of its layers' parameters, with and"
    " without recovery, or distilled into fewer layers; its half-depth student is cut to goals of latency (INT8)."
    " Scores are those on test over those of the model before pruning in the same variant; speeds likewise, at batch 1"
    " on one thread."
)
LOST, MINUTES, HALF = 0.02, 3.0, 0.5
RECOVERED = 0.985
WITHIN, GOALS_MET = 0.1, 9
CHART = (680, 380)


def page(report: PruningReport) -> str:
    """Return the page in Markdown."""
    blocks = [
        "# What does pruning cost, and what does it gain?",
        origin(report),
        f"{METHOD} At most {report.rows:,} rows.",
    ]
    for name in dict.fromkeys(entry.set for entry in report.entries):
        ran = _of(report, name)
        blocks += [f"## {name}", f"{len(ran)} of {report.cases} cases ran."]
        blocks += [table(map(table_row, ran), COLUMNS, COLUMNS[1:-1])]
        blocks += [f"![score against speed](pruning-{name}.svg)"]
    blocks += ["## Goals", table(goals(report), GOALS), machine(report)]
    return "\n\n".join(blocks) + "\n"


def picture(report: PruningReport, name: str) -> str | None:
    """Return share of the score kept against speed-up, INT8 at own lengths, as SVG; None without results.

    Goals of latency are left out: they are compared with the student, the others with the teacher.
    """
    lines: dict[str, list[Entry]] = {}
    for entry in _of(report, name):
        is_of_teacher = not entry.case.startswith("speedup")
        if is_of_teacher and SPEEDS[-2] in entry.speedups and entry.kept(VARIANTS[-1]):
            lines.setdefault(_family(entry.case), []).append(entry)
    if not lines:
        return None
    names = list(dict.fromkeys(family.removesuffix(CUT_ALONE) for family in lines))
    series = [
        Series(
            family,
            tuple(_point(entry) for entry in sorted(entries, key=lambda entry: entry.speedups[SPEEDS[-2]])),
            names.index(family.removesuffix(CUT_ALONE)),
            names.index(family.removesuffix(CUT_ALONE)),
            filled=not family.endswith(CUT_ALONE),
            labelled=True,
        )
        for family, entries in lines.items()
    ]
    points = [point for one in series for point in one.points]
    lowest, highest = min(point.y for point in points), max(point.y for point in points)
    x_range = (min(point.x for point in points) / 1.1, max(point.x for point in points) * 1.3)
    frame = Frame(*CHART, x_range, (lowest - 1, highest + 1))
    drawing = xy_chart(series, frame, "times faster, INT8 at own lengths", "% of the score kept")
    style = element("style", (TEMPLATES / "report.css").read_text(encoding="utf-8"))
    return drawing.replace("</svg>", f"{style}</svg>")


def goals(report: PruningReport) -> Iterator[dict[str, str]]:
    """Yield every goal with its best result."""
    halved = [each for each in report.entries if each.case.endswith(f" {HALF:g}{CUT_ALONE}") and each.cut_seconds]
    for name in dict.fromkeys(entry.set for entry in halved):
        entry = min((each for each in halved if each.set == name), key=_points_lost)
        criterion, lost, minutes = entry.case.partition(" ")[0], _points_lost(entry), (entry.cut_seconds or 0.0) / 60
        yield _goal(
            f"{name}: half of the layers' operations without training, in under {MINUTES:g} minutes, losing under"
            f" {100 * LOST:g} points",
            f"{criterion}: {minutes:.1f} min, {100 * lost:.1f} points",
            minutes < MINUTES and lost < LOST,
        )
    for target, asked in zip(TARGETS, (2.0, 3.0), strict=True):
        for entry in report.entries:
            if entry.case == f"speedup {asked:g} at {target}":
                kept, speed = entry.kept(VARIANTS[-1]) or 0.0, entry.speedups.get(f"{VARIANTS[-1]} {target}", 0.0)
                reached = kept >= RECOVERED and speed >= asked * (1 - WITHIN)
                text = f"{speed:.2f} times, {100 * kept:.1f} % kept" if speed else entry.reason or "not measured"
                yield _goal(
                    f"{entry.set}: {asked:g} times faster at {target}, {RECOVERED:.1%} kept",
                    text,
                    reached,
                )
    for name in dict.fromkeys(entry.set for entry in report.entries):
        asked_for = [
            each for each in _of(report, name) if each.case.startswith("speedup") and each.case.endswith(CUT_ALONE)
        ]
        met = sum(_is_met(entry) for entry in asked_for)
        if asked_for:
            words = f"the latency asked for within {WITHIN:.0%}, in {GOALS_MET} of 10 cases"
            is_open = met < GOALS_MET and len(asked_for) - met <= 10 - GOALS_MET
            yield _goal(f"{name}: {words}", f"{met} of {len(asked_for)}", None if is_open else met >= GOALS_MET)


def _points_lost(entry: Entry) -> float:
    """Return the largest loss of score in any variant."""
    return max((entry.before[key] - entry.scores[key] for key in entry.scores), default=1.0)


def _is_met(entry: Entry) -> bool:
    """Whether a goal of latency was met, or refused as unreachable."""
    match = re.fullmatch(rf"speedup ([\d.]+) at (.*){CUT_ALONE}", entry.case)
    assert match
    measured = entry.speedups.get(f"{VARIANTS[-1]} {match[2]}")
    if measured is None:
        return "cannot be reached" in (entry.reason or "")
    return abs(measured / float(match[1]) - 1) <= WITHIN


def _goal(goal: str, result: str, is_met: bool | None) -> dict[str, str]:
    """Return a row of the table of goals; ``is_met`` is None where cases that decide it have not run."""
    verdict = "not all cases ran" if is_met is None else "met" if is_met else "missed"
    return dict(zip(GOALS, (goal, result, verdict), strict=True))


def table_row(entry: Entry) -> dict[str, str]:
    """Return the cells of one case."""
    kept = {title: f"{100 * share:.1f} %" if (share := entry.kept(key)) else "" for key, title in KEPT.items()}
    speeds = {key: f"{entry.speedups[key]:.2f}" if key in entry.speedups else "" for key in SPEEDS}
    facts = {"set": entry.set, "case": entry.case, "parameters": f"{entry.parameters:.2f}" if entry.parameters else ""}
    seconds = {"cut": entry.cut_seconds, "trained": entry.recover_seconds}
    times = {key: f"{value:.0f} s" if value is not None else "" for key, value in seconds.items()}
    return {**facts, **kept, **speeds, **times, "not run because": entry.reason or ""}


def _family(case: str) -> str:
    """The line of a picture to which a case belongs: its name without the amount."""
    return " ".join(word for word in case.split() if not re.fullmatch(r"[\d.]+", word))


def _point(entry: Entry) -> Point:
    speed, kept = entry.speedups[SPEEDS[-2]], 100 * (entry.kept(VARIANTS[-1]) or 0.0)
    return Point(speed, kept, f"{entry.case}: {speed:.2f} times faster, {kept:.1f} % kept")


def _of(report: PruningReport, name: str) -> Sequence[Entry]:
    return [entry for entry in report.entries if entry.set == name]
