"""The comparison as a page: one table a model, the goals, and a picture of score against speed."""

from collections.abc import Iterator, Sequence

from benchmarks.int8.int8_results import FP32, TORCH, Entry, Int8Report
from benchmarks.int8.int8_timing import sessions
from benchmarks.markdown_page import machine, origin, table
from compress.report.charts.score_and_speed_charts import Point, Series, xy_chart
from compress.report.charts.svg import Frame, element
from compress.report.pages.render import TEMPLATES

SESSIONS = [title for title, _ in sessions()]
FIRST, LONG = SESSIONS[0], "1 thread, batch 8, 128 pieces"
SHORT = {title: title.replace(" threads", "t").replace(" thread", "t").replace("batch ", "b") for title in SESSIONS}
COLUMNS = ("file", "MB", "of fp32", "score", "agrees", *SHORT.values(), "against PyTorch", "not made because")
GOALS = ("goal", "result", "verdict")
METHOD = (
    "MiniLM fine-tuned on SST-2 with a plain [CLS] head, its 3-layer student, and the student with two thirds of its"
    " heads and three quarters of its neurons removed: every INT8 file that can be made of each, and those of other"
    " tools from the same weights. Sizes are those of graph and weights; scores on test, rows one by one. Columns of"
    " threads (t), batch (b) and length: times faster than plain ONNX Runtime in fp32, all files of a session in turns."
    " Other tools' files run with ONNX Runtime's default options."
)
EQUAL = 0.005
FASTER_THAN_OTHERS, FASTER_WITH_VNNI, FASTER_WITHOUT = 1.3, 3.0, 2.2
RATE_SHARE = 0.5
SIZES = {"onnx-int8": 0.26, "onnx-int8-embeddings-4bit": 0.20}
OTHERS = "optimum "
DOT_PRODUCTS = {"avx512_vnni", "avx_vnni", "amx_int8"}
CHART = (680, 380)


def page(report: Int8Report) -> str:
    """Return the page in Markdown."""
    blocks = ["# Which INT8 file is the fastest that keeps its score?", origin(report)]
    blocks.append(f"{METHOD} At most {report.rows:,} rows.")
    for model in dict.fromkeys(entry.model for entry in report.entries):
        rows = (table_row(report, entry) for entry in report.entries if entry.model == model)
        blocks += [f"## {model}", table(rows, COLUMNS, COLUMNS[1:-1]), f"![score against speed](int8-{model}.svg)"]
    return "\n\n".join([*blocks, "## Goals", table(goals(report), GOALS), machine(report)]) + "\n"


def table_row(report: Int8Report, entry: Entry) -> dict[str, str]:
    """Return the cells of one file."""
    plain, torch = report.entry(entry.model, FP32), report.speedup(entry, FIRST, TORCH)
    share = entry.megabytes / plain.megabytes if entry.megabytes and plain and plain.megabytes else None
    speeds = {short: _ratio(report.speedup(entry, title, FP32)) for title, short in SHORT.items()}
    return {
        "model": entry.model,
        "file": entry.file,
        "MB": f"{entry.megabytes:.1f}" if entry.megabytes else "",
        "of fp32": f"{100 * share:.0f} %" if share else "",
        "score": f"{100 * entry.score:.1f}" if entry.score is not None else "",
        "agrees": f"{100 * entry.agreement:.1f} %" if entry.agreement is not None else "",
        **speeds,
        "against PyTorch": _ratio(torch),
        "not made because": entry.reason or "",
    }


def picture(report: Int8Report, model: str) -> str | None:
    """Return score against speed at batch 1 and own lengths, as SVG; None without results."""
    timed = [entry for entry in report.entries if entry.model == model and report.speedup(entry, FIRST, FP32)]
    if not timed:
        return None
    series = []
    for number, entry in enumerate(timed):
        speed, score = report.speedup(entry, FIRST, FP32) or 0.0, 100 * (entry.score or 0.0)
        point = Point(speed, score, f"{entry.file}: {speed:.2f} times faster, {score:.1f}")
        series.append(Series(entry.file, (point,), number, number, labelled=True))
    xs, ys = ([getattr(one.points[0], axis) for one in series] for axis in ("x", "y"))
    frame = Frame(*CHART, (min(xs) / 1.1, max(xs) * 1.3), (min(ys) - 0.5, max(ys) + 0.5))
    drawing = xy_chart(series, frame, "times faster than ONNX Runtime fp32, batch 1, own lengths", "accuracy")
    style = element("style", (TEMPLATES / "report.css").read_text(encoding="utf-8"))
    return drawing.replace("</svg>", f"{style}</svg>")


def goals(report: Int8Report) -> Iterator[dict[str, str]]:
    """Yield every goal with its result."""
    instructions = set((report.surroundings and report.surroundings.instructions) or ())
    with_vnni = bool(instructions & DOT_PRODUCTS)
    asked = FASTER_WITH_VNNI if with_vnni else FASTER_WITHOUT
    for model in dict.fromkeys(entry.model for entry in report.entries):
        ours = _best(report, model, [each for each in _files(report, model) if _is_ours(each)])
        theirs = _best(report, model, [each for each in _files(report, model) if each.file.startswith(OTHERS)])
        if ours is None:
            continue
        speed = report.speedup(ours, FIRST, FP32) or 0.0
        name = f"{model}: best file with an equal score (within {100 * EQUAL:g} points)"
        yield _goal(f"{name}, {asked:g} times ONNX Runtime fp32", f"{ours.file}, {speed:.2f}", speed >= asked)
        if theirs is not None:
            ratio = theirs.milliseconds[FIRST] / ours.milliseconds[FIRST]
            text = f"{ours.file} {ratio:.2f} times {theirs.file}"
            yield _goal(f"{name}, {FASTER_THAN_OTHERS} times optimum-onnx's", text, ratio >= FASTER_THAN_OTHERS)
        integer = [each for each in _files(report, model) if _is_ours(each) and LONG in each.rate_shares]
        shares = [(each.rate_shares[LONG], each.file) for each in integer]
        if shares and with_vnni:
            share, file = max(shares)
            text = f"{file}, {100 * share:.0f} %"
            yield _goal(f"{model}: {100 * RATE_SHARE:g} % of the INT8 rate at {LONG}", text, share >= RATE_SHARE)
    for file, most in SIZES.items():
        for entry in report.entries:
            plain = report.entry(entry.model, FP32)
            if entry.file == file and entry.megabytes and plain and plain.megabytes:
                share = entry.megabytes / plain.megabytes
                goal = f"{entry.model}: {file} at most {100 * most:g} % of fp32's size"
                yield _goal(goal, f"{100 * share:.1f} %", share <= most)


def _files(report: Int8Report, model: str) -> list[Entry]:
    return [each for each in report.entries if each.model == model and FIRST in each.milliseconds]


def _is_ours(entry: Entry) -> bool:
    return "int8" in entry.file and not entry.file.startswith(("optimum", "olive"))


def _best(report: Int8Report, model: str, entries: Sequence[Entry]) -> Entry | None:
    """Return the fastest file at batch 1 and own lengths that scores like the fp32 one."""
    plain = report.entry(model, FP32)
    if plain is None or plain.score is None:
        return None
    equal = [each for each in entries if each.score is not None and plain.score - each.score <= EQUAL + 1e-9]
    return min(equal, key=lambda each: each.milliseconds[FIRST], default=None)


def _ratio(value: float | None) -> str:
    return f"{value:.2f}" if value else ""


def _goal(goal: str, result: str, is_met: bool) -> dict[str, str]:
    return dict(zip(GOALS, (goal, result, "met" if is_met else "missed"), strict=True))
