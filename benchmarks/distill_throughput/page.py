"""The report as a page: a table a race, the ratios with their goals, and what it was run on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from benchmarks.distill_throughput.rows import Lane, Race, Ratio, ThroughputReport
from compress.console import duration

LANES = ("contestant", "examples a second", "rounds", "score")
RATIOS = ("against", "goal", "ratio", "rounds", "verdict")
NUMBERS = frozenset({"examples a second", "score", "goal", "ratio"})


def lane_cells(lane: Lane) -> dict[str, str]:
    """A contestant's line: the median over rounds, and the slowest and fastest."""
    told = lane.about + (f" ({lane.precision})" if lane.precision else "")
    speed = f"{median(lane.speeds):.1f}" if lane.speeds else "-"
    rounds = lane.reason or (f"{min(lane.speeds):.1f} to {max(lane.speeds):.1f}" if lane.speeds else "not run")
    score = "-" if lane.score is None else f"{lane.score:.4f}"
    return dict(zip(LANES, (f"{lane.key}: {told}", speed, rounds, score), strict=True))


def ratio_cells(ratio: Ratio) -> dict[str, str]:
    """A ratio's line."""
    value = "-" if ratio.value is None else f"{ratio.value:.2f}"
    rounds = f"{min(ratio.rounds):.2f} to {max(ratio.rounds):.2f}" if ratio.rounds else "-"
    return dict(zip(RATIOS, (ratio.against, f"{ratio.goal:g}", value, rounds, ratio.verdict), strict=True))


def page(report: ThroughputReport) -> str:
    """The whole page in Markdown."""
    blocks = ["# How fast is distillation?", head(report), *map(race_block, report.races), machine(report)]
    return "\n\n".join(blocks) + "\n"


def head(report: ThroughputReport) -> str:
    """How it was made and on what."""
    took = f"took {duration(report.seconds)}." if report.seconds is not None else "**did not come to its end.**"
    lines = [f"Made by {report.made_by} with `{report.command}`; begun {report.begun_at}, {took}"]
    if report.trial:
        lines.append("**A trial of the benchmark itself: far too short for its figures to mean anything.**")
    threads = f"{report.threads} thread{'s' if report.threads > 1 else ''}"
    lines.append(f"Rows: {report.data or 'not read'}. Batch {report.batch}, {threads}, on the CPU.")
    if report.teacher_score is not None and report.start_score is not None:
        lines.append(
            f"On dev ({report.metric}) the teacher has {report.teacher_score:.4f}, and the student before it learns "
            f"{report.start_score:.4f}."
        )
    return "\n\n".join(lines)


def race_block(race: Race) -> str:
    """One race."""
    if race.reason is not None:
        return f"## {race.title}\n\n{race.reason}"
    pieces = "" if race.pieces is None else f", {race.pieces:.1f} pieces each on average"
    epochs = "" if race.epochs == 1 else f", {race.epochs} epochs, of which the last is timed"
    blocks = [f"## {race.title}", f"{race.rows} rows{pieces}{epochs}.", _table(map(lane_cells, race.lanes), LANES)]
    if race.ratios:
        blocks.append(_table(map(ratio_cells, race.ratios), RATIOS))
    return "\n\n".join(blocks)


def machine(report: ThroughputReport) -> str:
    """What it ran on: nothing that names the machine."""
    found = report.surroundings
    if found is None:
        return "## Machine\n\nNothing was written down about it."
    facts = {
        "processor": found.cpu,
        "instructions": ", ".join(found.instructions or ()),
        "cores": f"{found.cores} of {found.cores_of_machine}",
        "load before": None if found.load is None else f"{found.load:.2f}",
        "load after": None if report.load_after is None else f"{report.load_after:.2f}",
        "system": found.system,
        "Python": found.python,
        "libraries": ", ".join(f"{name} {version}" for name, version in found.versions.items()),
    }
    return "## Machine\n\n" + "\n".join(f"- {name}: {_cell(value or 'not told')}" for name, value in facts.items())


def _table(rows: Iterable[dict[str, str]], columns: Sequence[str]) -> str:
    lines = [f"| {' | '.join(columns)} |"]
    lines.append(f"| {' | '.join('---:' if column in NUMBERS else '---' for column in columns)} |")
    lines += [f"| {' | '.join(_cell(row[column]) for column in columns)} |" for row in rows]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
