"""The report as a page: a table for each comparison, the ratios with their goals, and the machine."""

from statistics import median

from benchmarks.distill_throughput.race_results import Lane, Race, Ratio, ThroughputReport
from benchmarks.markdown_page import machine, origin, table

LANES = ("contestant", "examples a second", "rounds", "scores")
RATIOS = ("against", "goal", "ratio", "rounds", "verdict")
NUMBERS = frozenset({"examples a second", "goal", "ratio"})


def lane_cells(lane: Lane) -> dict[str, str]:
    """A contestant's line: the median over rounds, and the slowest and fastest."""
    facts = [*([lane.precision] if lane.precision else []), *(["second epoch"] if lane.epochs > 1 else [])]
    about = lane.about + (f" ({', '.join(facts)})" if facts else "")
    speed = f"{median(lane.speeds):.1f}" if lane.speeds else "-"
    rounds = lane.reason or (f"{min(lane.speeds):.1f} to {max(lane.speeds):.1f}" if lane.speeds else "not run")
    score = " ".join(f"{score:.4f}" for score in lane.scores) or "-"
    return dict(zip(LANES, (f"{lane.key}: {about}", speed, rounds, score), strict=True))


def ratio_cells(ratio: Ratio) -> dict[str, str]:
    """A ratio's line."""
    value = "-" if ratio.value is None else f"{ratio.value:.2f}"
    rounds = f"{min(ratio.rounds):.2f} to {max(ratio.rounds):.2f}" if ratio.rounds else "-"
    return dict(zip(RATIOS, (ratio.against, f"{ratio.goal:g}", value, rounds, ratio.verdict), strict=True))


def page(report: ThroughputReport) -> str:
    """Return the page in Markdown."""
    blocks = ["# How fast is distillation?", head(report), *map(race_block, report.races), machine(report)]
    return "\n\n".join(blocks) + "\n"


def head(report: ThroughputReport) -> str:
    """The method and the machine."""
    threads = f"{report.threads} thread{'s' if report.threads > 1 else ''}"
    limit = f", limited to {report.instructions.upper()}" if report.instructions else ""
    rows = f"Rows: {report.data or 'not read'}. Batch {report.batch}, {threads}, on the CPU{limit}."
    lines = [origin(report), rows]
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
    pieces = "" if race.pieces is None else f", {race.pieces:.1f} tokens each on average"
    blocks = [
        f"## {race.title}",
        f"{race.rows} rows{pieces}.",
        table(map(lane_cells, race.lanes), LANES, NUMBERS),
    ]
    if race.ratios:
        blocks.append(table(map(ratio_cells, race.ratios), RATIOS, NUMBERS))
    return "\n\n".join(blocks)
