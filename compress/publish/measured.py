"""measured.json: what was measured of a published variant, and measuring it again (`compress verify --measure`).

It lies in the variant's own folder and is among its checksums, and so covered by its signature. Speed is judged where
the CPU and the versions are those of the measurement, and the calls have the same lengths; elsewhere both are shown.
Scores need the rows of test. A figure that is worse than its published interval, beyond what sessions differ by, is a
miss.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import ValidationError

from compress import format_numbers as fmt
from compress.console import Console
from compress.data.loading.raw_rows import EXTENSIONS
from compress.data.loading.row_sources import part_source, valid_rows
from compress.environment import LIBRARIES, versions
from compress.environment.cpu import describe_cpu
from compress.errors import DataError, ModelError, UsageError, first_error
from compress.measure import BootstrapScorer, Job, time_jobs
from compress.measure.quality.bootstrap_scorer import to_score
from compress.measure.result_base import Score
from compress.measure.timing.latency import Latency
from compress.model_folder.model_info import FolderInfo, TaskInfo, read_info
from compress.publish.entry import Entry, PublishedVariant
from compress.recipe.measure_schema import Measure
from compress.recipe.task_schema import Task
from compress.report.compare_runs import ratio_between_sessions
from compress.report.run_facts import TargetFacts
from compress.runtime import runtime_of
from compress.runtime.predictor import Placement
from compress.storage.atomic_write import write_model
from compress.storage.stored_info import Info, up_to
from compress.tasks import TASK_NAMES, kind_of
from compress.tasks.base import Row, TaskInput

MEASURED_FILE = "measured.json"


class Measured(Info):
    """What was measured of one variant on one target."""

    schema_version: Annotated[int, up_to(1)] = 1
    row: str
    """Its key in the report: `student/onnx-int8`."""
    target: TargetFacts
    metric: str
    score: Score | None = None
    """On test."""
    test_rows: int | None = None
    batch: int | None = None
    """Rows of a batch when scored, where answers depend on it."""
    p50: Score | None = None
    """Milliseconds of one call of the model alone."""
    cpu: str
    accelerator: str | None = None
    versions: Mapping[str, str] = {}
    """Of the libraries that decide the speed."""

    def section(self, larger_is_better: bool) -> str:
        """Return what README.md of the variant's folder says of it."""
        parts, where = [], self.cpu if self.target.device == "cpu" else self.accelerator or self.target.device
        if self.score is not None:
            value = fmt.score(self.score.value, larger_is_better)
            parts.append(f"{fmt.metric(self.metric)} {value} on {self.test_rows or 0:,} rows of test")
        if self.p50 is not None:
            parts.append(f"p50 {fmt.milliseconds(self.p50.value)} a call on {where}")
        listing = "; ".join(parts) or "nothing"
        return (
            f"## Measured\n\n{listing} (target {self.target.title}). `compress verify --measure` measures it again.\n"
        )


def measured_of(entry: Entry, variant: PublishedVariant) -> Measured:
    """Return what the report says of a variant."""
    report, result = entry.report, variant.result
    machine = report.surroundings or report.machine
    return Measured(
        row=variant.row.key,
        target=report.target(result.target),
        metric=report.task.metric,
        score=result.test.primary if result.test else None,
        test_rows=result.test.rows if result.test else None,
        batch=result.test.batch if result.test else None,
        p50=result.latency.typical(),
        cpu=machine.cpu,
        accelerator=machine.accelerator,
        versions=report.versions,
    )


def write_measured(folder: Path, measured: Measured) -> None:
    """Write measured.json into the folder of a variant."""
    write_model(folder / MEASURED_FILE, measured)


def read_measured(folder: Path) -> Measured:
    """Read what was measured of a published variant."""
    path = folder / MEASURED_FILE
    if not path.is_file():
        raise ModelError(
            f"{folder} has no {MEASURED_FILE}, so there is nothing to compare new measurements with.",
            hint="published models have it since versions of entries exist",
        )
    try:
        return Measured.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ModelError(f"{path} cannot be read: {first_error(error)}.") from error


READING = ("quoting", "header", "encoding", "bad_rows")
"""Settings of a recipe's data that say how a file is read."""
SECONDS = 20.0
"""Budget of a timing."""


@dataclass(frozen=True)
class MeasuredFigure:
    """One figure that was measured again."""

    name: str
    """`p50`, or the metric."""
    published: Score | None
    now: Score | None
    missed: bool = False
    """Whether it is judged, and worse than its interval."""
    not_judged: str | None = None
    """Why it is only shown."""

    def line(self, show: Any) -> str:
        """`p50: 0.91 ms (0.89 ms to 0.93 ms) published, 0.92 ms now; agrees`."""

        def text(score: Score | None) -> str:
            return "none" if score is None else f"{show(score.value)} ({fmt.span(score, show)})"

        state = "worse than what was published" if self.missed else "agrees"
        verdict = f"not judged: {self.not_judged}" if self.not_judged else state
        return f"{self.name}: {text(self.published)} published, {text(self.now)} now; {verdict}"


@dataclass(frozen=True)
class MeasuredAgain:
    """What was measured again of a published variant."""

    row: str
    target: str
    speed: MeasuredFigure
    score: MeasuredFigure | None
    larger_is_better: bool

    @property
    def misses(self) -> list[str]:
        """The names of figures that are worse than what was published."""
        return [each.name for each in (self.speed, self.score) if each and each.missed]

    @property
    def text(self) -> str:
        """Return it in lines."""
        lines = [f"{self.row} on {self.target}", self.speed.line(fmt.milliseconds)]
        if self.score is not None:
            lines.append(self.score.line(lambda value: fmt.score(value, self.larger_is_better)))
        return "\n  ".join(lines)

    def record(self) -> dict[str, Any]:
        """Return it for json."""
        return asdict(self)


def measure_again(folder: Path, rows: Path | None, console: Console) -> MeasuredAgain:
    """Time a published variant again, and score it on the rows of test where they are given."""
    measured, info = read_measured(folder), read_info(folder)
    if info.task is None:
        raise ModelError(f"{folder} states no task.")
    read = read_test_rows(info, rows) if rows else []
    texts = [kind_of(info.task).to_input(row) for row in read]
    speed = _timed(folder, info, measured, texts, console)
    score = _scored(folder, info, measured, read) if rows else None
    metric = next(each for each in kind_of(info.task).metrics if each.name == info.task.metric)
    return MeasuredAgain(measured.row, measured.target.title, speed, score, metric.larger_is_better)


def read_test_rows(info: FolderInfo, path: Path) -> list[Row]:
    """Return the rows of a file as the model's recipe read those of test."""
    if not path.is_file():
        raise UsageError(f"there is no file {path}.")
    stated = dict((info.recipe or {}).get("task") or {})
    if not stated or info.task is None:
        raise ModelError("this model states no recipe, so how its rows are read is unknown.")
    if kind_of(info.task).searches:
        raise UsageError(f"{info.task.kind} is scored with its corpus, which rows alone do not have.")
    data = {key: value for key, value in stated.get("data", {}).items() if key in READING}
    named = EXTENSIONS.get(Path(path.name.removesuffix(".gz")).suffix.removeprefix("."))
    if named in (None, "txt") and (given := stated.get("data", {}).get("format")):  # else the name decides
        data["format"] = given
    stated |= {
        "name": None,
        "data": {**data, "train": str(path), "test": str(path)},
        "labels": info.task.labels or None,
    }
    task = Task.model_validate(stated, context=TASK_NAMES)
    rows = [row for _, row in valid_rows(part_source(task, "test"), task, info.task.labels, "test")]
    if not rows:
        raise DataError(f"{path} has no rows.")
    return rows


def _timed(
    folder: Path, info: FolderInfo, measured: Measured, texts: Sequence[TaskInput], console: Console
) -> MeasuredFigure:
    from compress.export.comparison.golden_inputs import golden_inputs

    target = measured.target
    length = None if target.length == "data" else target.length
    assert info.task is not None
    given = list(texts) or golden_inputs(info.task)["sentences"]
    placement = Placement("cuda" if target.device == "cuda" else "cpu", target.threads)
    job = Job(measured.row, folder, info.variant, placement, target.batch, length)
    latency = time_jobs([job], given, Measure(), console=console, budget=SECONDS)[measured.row]
    now = latency.typical()
    reasons = _why_not_judged(info, measured, latency, has_lengths=bool(texts) or length is not None)
    reason = next(reasons, None)
    ratio = ratio_between_sessions(measured.p50, now)
    missed = reason is None and ratio is not None and ratio.high < 1
    return MeasuredFigure("p50", measured.p50, now, missed, reason)


def _why_not_judged(info: FolderInfo, measured: Measured, latency: Latency, *, has_lengths: bool) -> Iterator[str]:
    """Yield why a time is only shown; nothing where it is of the same machine, libraries and lengths, and stable."""
    if not latency.timed:
        yield latency.reason or "it could not be timed here"
    if measured.p50 is None:
        yield "none was published"
    cpu = describe_cpu().model
    if measured.target.device != "cpu":
        yield f"it was measured on {measured.accelerator or measured.target.device}"
    elif cpu != measured.cpu:
        yield f"another CPU: {measured.cpu}, and here {cpu}"
    here = versions(LIBRARIES)
    for name in runtime_of(info.variant).libraries if info.variant else ("torch",):
        if name in measured.versions and measured.versions[name] != here.get(name):
            yield f"{name} {measured.versions[name]}, and here {here.get(name, 'none')}"
    if latency.status == "unstable":
        yield f"an unstable timing ({latency.reason})"
    if not has_lengths:
        yield "it was measured at the lengths of the data; --rows FILE times those"


def _scored(folder: Path, info: FolderInfo, measured: Measured, rows: Sequence[Row]) -> MeasuredFigure:
    from compress.runtime.text_model import TextModel

    task: TaskInfo | None = info.task
    assert task is not None
    kind = kind_of(task)
    answers = TextModel.open(folder).predict_rows(rows)
    scorer = BootstrapScorer(kind, task)
    now = to_score(scorer.primary(answers, kind.gold(rows)))
    published = measured.score
    if published is None:
        return MeasuredFigure(task.metric, None, now, not_judged="none was published")
    reason = None
    if measured.test_rows != len(rows):
        reason = f"it was scored on {measured.test_rows:,} rows, and this file has {len(rows):,}"
    worse = now.value < published.low if scorer.metric.larger_is_better else now.value > published.high
    return MeasuredFigure(task.metric, published, now, reason is None and worse, reason)
