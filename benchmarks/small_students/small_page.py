"""The comparison as a page: a table for each set, the goals, and a picture of score against speed."""

from collections.abc import Iterator, Sequence
from statistics import fmean

from benchmarks.markdown_page import machine, origin, table
from benchmarks.small_students.small_case import NAMES
from benchmarks.small_students.small_results import SINGLE_TEXTS, TEACHER, WITH_TEXTS, Entry, SmallReport
from compress.report.charts.score_and_speed_charts import Point, Series, xy_chart
from compress.report.charts.svg import Frame, element
from compress.report.pages.render import TEMPLATES

COLUMNS = (
    "student",
    "file",
    "seeds",
    "score",
    "kept",
    "model",
    "faster",
    "from text",
    "faster from text",
    "rows/s",
    "size",
    "training",
)
GOALS = ("goal", "on", "reached", "outcome")
MODEL, END_TO_END, SMALLER, KEPT = 400.0, 100.0, 40.0, 0.95
CONV, CONV_KEPT = 100.0, 0.97
CASCADE, CASCADE_KEPT = 40.0, 0.99
SIGNIFICANT = 0.05
CHART = (760, 420)
METHOD = (
    "One teacher for each set, fine-tuned by the default recipe; students of it with several seeds. Three sizes of"
    " each kind: as it is by default, with vectors of 128 numbers and a hidden layer of 512 (`wide`), and with"
    " n-grams too or 256 numbers (`wider`). Score: on test, in the set's metric, the mean over the seeds; kept: of"
    " the teacher's. Times are of one text on one thread, all files of a set in turns in one session: the median, of"
    " a cascade the mean; faster: than the teacher in PyTorch fp32. Rows a second: in bulk on one core. Size: of all"
    " files, the tokenizer's too. Training: of this model alone, in minutes. model2vec distils the same encoder and"
    " trains with its defaults; fastText searches its settings for five minutes; both choose on the same rows of"
    " select, and time themselves. In sets whose name ends in `_texts` the students learn from more texts of train,"
    " of up to 20,000 rows, of which only the labels of as many as in the others are used; the transformer is left"
    " out."
)


def page(report: SmallReport) -> str:
    """Return the page in Markdown."""
    blocks = ["# Students without attention", origin(report), f"{METHOD} At most {report.rows:,} rows of each role."]
    for name in report.sets:
        processors = sorted({each.processor for each in report.of(name) if each.processor})
        blocks += [f"## {name}", f"On {', '.join(processors)}.", table(lines(report, name), COLUMNS, COLUMNS[2:])]
    blocks += ["## Goals", table(goals(report), GOALS), *_reasons(report), machine(report)]
    return "\n\n".join(blocks) + "\n"


def lines(report: SmallReport, name: str) -> Iterator[dict[str, str]]:
    """Yield one row a contestant, means over its seeds."""
    for contestant in dict.fromkeys(each.contestant for each in report.of(name)):
        own = [each for each in report.of(name) if each.contestant == contestant]
        model, _, file = contestant.partition("/")
        figures = {
            "seeds": str(len(own)),
            "score": _mean(own, "score", 100, 1),
            "kept": _mean(own, "kept", 100, 1, " %"),
            "model": _mean(own, "milliseconds", 1, 3, " ms"),
            "faster": _mean(own, "faster", 1, 0, "×"),
            "from text": _mean(own, "end_to_end", 1, 3, " ms"),
            "faster from text": _mean(own, "faster_end_to_end", 1, 0, "×"),
            "rows/s": _mean(own, "rows_per_second", 1, 0),
            "size": _mean(own, "megabytes", 1, 1, " MB"),
            "training": _mean(own, "minutes", 1, 1),
        }
        yield {"student": title_of(model), "file": file, **figures}


def title_of(model: str) -> str:
    """Return what the page calls a model: `static, then half the layers`."""
    return ", then ".join(NAMES.get(part, part) for part in model.split("-then-"))


def goals(report: SmallReport) -> Iterator[dict[str, str]]:
    """Yield every goal for each set of single texts, and that of all cascades."""
    with_texts = tuple(f"{name}{WITH_TEXTS}" for name in SINGLE_TEXTS)
    for name in (*SINGLE_TEXTS, *with_texts):
        yield from _static_goals(report, name)
        yield from _best_goal(report, name, "conv", CONV, CONV_KEPT)
        yield from _best_goal(report, name, "cascade", CASCADE, CASCADE_KEPT)
    for sets, goal in ((SINGLE_TEXTS, "2 of 3 sets"), (with_texts, "sets with more texts")):
        wins = [won for name in sets if (won := _beats_model2vec(report, name)) is not None]
        if wins:
            yield _goal("static better than model2vec, paired", goal, f"{sum(wins)} of {len(wins)}", sum(wins) >= 2)
    cascades = [each for each in report.entries if each.is_cascade and each.loss is not None]
    if cascades:
        within = sum((each.loss or 0.0) <= report.allowed + (each.error or 0.0) for each in cascades)
        share = f"{within} of {len(cascades)} cascades"
        goal = "loss on test at most a standard error over the allowance"
        yield _goal(goal, "13 of 15", share, within / len(cascades) >= 13 / 15)


def _static_goals(report: SmallReport, name: str) -> Iterator[dict[str, str]]:
    """Yield the goals of static students: speed, size and score, each of the file that comes nearest to all."""
    own = _means(report, name, "static")
    teacher = next((each for each in report.of(name, 0) if each.contestant == TEACHER), None)
    if not own or teacher is None or not teacher.megabytes:
        return
    timed = [each for each in own if each.faster and each.faster_end_to_end]
    if timed:
        keeping = [each for each in timed if (each.kept or 0.0) >= KEPT] or timed
        fast = max(keeping, key=lambda each: each.faster or 0.0)
        kept = f"{title_of(fast.contestant.partition('/')[0])}: {100 * (fast.kept or 0):.1f} % kept"
        met = (fast.kept or 0.0) >= KEPT
        yield _goal(
            f"static {MODEL:g} times faster, {100 * KEPT:g} % kept",
            name,
            f"{fast.faster:.0f}, {kept}",
            met and (fast.faster or 0) >= MODEL,
        )
        full = max(keeping, key=lambda each: each.faster_end_to_end or 0.0)
        yield _goal(
            f"static {END_TO_END:g} times faster from text",
            name,
            f"{full.faster_end_to_end:.0f}",
            (full.faster_end_to_end or 0) >= END_TO_END,
        )
    keeping = [each for each in own if (each.kept or 0.0) >= KEPT]
    small = (
        min(keeping, key=lambda each: each.megabytes or 1e9) if keeping else max(own, key=lambda each: each.kept or 0.0)
    )
    if small.megabytes:
        share = teacher.megabytes / small.megabytes
        yield _goal(
            f"static a {SMALLER:g}th of the size, {100 * KEPT:g} % kept",
            name,
            f"a {share:.0f}th, {100 * (small.kept or 0.0):.1f} % kept",
            bool(keeping) and share >= SMALLER,
        )


def _best_goal(report: SmallReport, name: str, kind: str, speed: float, kept: float) -> Iterator[dict[str, str]]:
    """Yield the goal of speed at a share of the score, of the fastest that keeps it, else of the best one."""
    own = [each for each in _means(report, name, kind) if each.faster]
    if not own:
        return
    keeping = [each for each in own if (each.kept or 0.0) >= kept]
    best = max(keeping, key=lambda each: each.faster or 0.0) if keeping else max(own, key=lambda each: each.kept or 0.0)
    reached = f"{best.faster:.0f} times, {100 * (best.kept or 0.0):.1f} % kept"
    yield _goal(
        f"{kind} {speed:g} times faster, {100 * kept:g} % kept",
        name,
        reached,
        bool(keeping) and (best.faster or 0.0) >= speed,
    )


def _means(report: SmallReport, name: str, kind: str) -> list[Entry]:
    """Return one entry for each file of a kind, with the means over its seeds."""
    found = []
    for contestant in dict.fromkeys(each.contestant for each in report.of(name)):
        own = [each for each in report.of(name) if each.contestant == contestant]
        is_kind = own[0].is_cascade if kind == "cascade" else not own[0].is_cascade and contestant.startswith(kind)
        if is_kind and "/" in contestant:
            fields = ("score", "kept", "megabytes", "milliseconds", "faster", "faster_end_to_end")
            values = {field: [value for each in own if (value := getattr(each, field)) is not None] for field in fields}
            found.append(own[0].model_copy(update={field: fmean(each) for field, each in values.items() if each}))
    return found


def _beats_model2vec(report: SmallReport, name: str) -> bool | None:
    """Whether the static student is significantly better than model2vec with every seed; None: not compared."""
    compared = [each.versus_model2vec for each in report.of(name) if each.versus_model2vec]
    if not compared:
        return None
    return all(each.value > 0 and each.p_value < SIGNIFICANT for each in compared)


def picture(report: SmallReport, name: str) -> str | None:
    """Return score against speed from text, as SVG; None without times."""
    timed = [each for each in report.of(name, 0) if each.end_to_end]
    if not timed:
        return None
    series = [
        Series(
            f"{title_of(each.contestant.partition('/')[0])} {each.contestant.partition('/')[2]}".strip(),
            (
                Point(
                    each.end_to_end or 0.0,
                    100 * (each.score or 0.0),
                    f"{each.contestant}: {100 * (each.score or 0):.1f}",
                ),
            ),
            number,
            number,
            labelled=True,
        )
        for number, each in enumerate(timed)
    ]
    xs, ys = ([getattr(one.points[0], axis) for one in series] for axis in ("x", "y"))
    frame = Frame(*CHART, (min(xs) / 1.3, max(xs) * 2.0), (min(ys) - 0.5, max(ys) + 0.5))
    drawing = xy_chart(series, frame, "milliseconds from one text to its answer", "score")
    style = element("style", (TEMPLATES / "report.css").read_text(encoding="utf-8"))
    return drawing.replace("</svg>", f"{style}</svg>")


def _mean(own: Sequence[Entry], field: str, factor: float, digits: int, unit: str = "") -> str:
    values = [value for each in own if (value := getattr(each, field)) is not None]
    return f"{factor * fmean(values):,.{digits}f}{unit}" if values else ""


def _reasons(report: SmallReport) -> list[str]:
    missing = [f"- {each.key}: {each.reason}" for each in report.entries if each.reason]
    return ["## Not measured", "\n".join(missing)] if missing else []


def _goal(goal: str, on: str, reached: str, is_met: bool) -> dict[str, str]:
    return dict(zip(GOALS, (goal, on, reached, "met" if is_met else "missed"), strict=True))
