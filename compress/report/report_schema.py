"""report.json: the facts of one run. Everything that is drawn or published comes from here and from nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ValidationError

from compress.errors import CompressError, first_error
from compress.measure.interference.machine_snapshot import MachineSnapshot
from compress.measure.quality.quality_result import Quality
from compress.measure.resources.footprint import Footprint
from compress.measure.resources.serving_memory import ServingMemory
from compress.measure.result_base import ResultModel, Score
from compress.measure.roofline.roofline import LimitShares, MachineLimits
from compress.measure.timing.latency import Latency
from compress.model_info import LayerMap, TaskInfo, VariantInfo
from compress.schema_version import up_to
from compress.select.selection import GateResult, Rules

REPORT_FILE = "report.json"

Status = Literal["ok", "failed", "not measured"]


class DataFacts(ResultModel):
    """What the scores were learned and measured on."""

    source: str
    """As a reader names it: `glue/sst2`, or the names of the files."""
    digest: str
    rows: Mapping[str, int]
    """By role: train, select, test."""
    classes: Mapping[str, Mapping[str, int]] = {}
    """By role and label, the number of rows."""
    documents: int | None = None
    """How many documents are searched on test, for kinds that search: a score is worth more among more of them."""
    duplicates: int | None = None
    """Texts that stand in both train and test."""
    skipped: int = 0
    """Rows that were left out because they do not fit the task."""
    truncated: Mapping[str, float] = {}
    """By role, the share of rows of which the teacher does not see everything; of train as 10,000 of its rows tell.

    Where documents are searched also the share of those, as `test's documents`.
    """
    examples_per_row: float | None = None
    """How many examples (choices, candidates, windows) the model is given of a row of test, on average."""


class TargetFacts(ResultModel):
    """A place of use, as the recipe asked for it."""

    title: str
    device: str
    threads: int
    batch: int
    length: int | Literal["data"]
    present: bool = True
    reason: str | None = None
    """Why it is not present."""


class StepCost(ResultModel):
    """One step of the run."""

    name: str
    fingerprint: str
    seconds: float | None
    """What it took when it ran, be that in this run or an earlier one that shares it."""
    reused: bool = False
    status: Literal["ok", "failed", "skipped"] = "ok"
    reason: str | None = None


class TargetResult(ResultModel):
    """One row of the ledger at one target: answers and speed there."""

    select: Quality | None = None
    test: Quality | None = None
    latency: Latency
    shares: LimitShares | None = None
    """Of the machine's limits, while it answers there."""
    serving: tuple[ServingMemory, ...] = ()
    """Memory of a process that serves it on that device, by batch."""
    gate: GateResult | None = None
    """Filled in by the judge; None for the reference, which is no candidate."""


class ReportModel(ResultModel):
    """One model of the run."""

    name: str
    parent: str | None = None
    """The model it was made from; None for the first."""
    section: str
    """The recipe's section with its settings: `finetune`, `distill`, `prune`."""


class LedgerRow(ResultModel):
    """One model in one variant."""

    model: str
    """`teacher`, `student`, `pruned`: which model of the run."""
    step: str
    """The step that made that model: `finetune`, `distill`, `prune`."""
    variant: VariantInfo
    status: Status = "ok"
    reason: str | None = None
    """Why there is nothing to measure."""
    shape: str | None = None
    """`6x384, 12 heads, FFN 1536`."""
    footprint: Footprint | None = None
    cost_seconds: float | None = None
    """What making it took: all steps that lead to it."""
    targets: Mapping[str, TargetResult] = {}
    """By target title."""

    @property
    def key(self) -> str:
        """`student/onnx-int8`."""
        return f"{self.model}/{self.variant.name}"


class Comparison(ResultModel):
    """The winner beside one baseline at one target."""

    against: str
    """What the baseline is to the reader: `the teacher as it runs today`."""
    key: str
    """Its row."""
    speedup: Score | None
    """How many times faster the winner is, from the same rounds."""
    smaller: float | None
    """How many times fewer bytes."""
    kept: float | None
    """The winner's test score over the baseline's; None where the metric has no zero to speak of."""
    kept_above_floor: float | None = None
    """The same of what is above the floor; None where the teacher is not clearly above it."""


class Provenance(ResultModel):
    """How a model was made from another, beside what the recipe tells."""

    start: str
    """`layers 1, 3, 5 of the teacher`."""
    augmented: int | None = None
    """Changed copies of rows of train that it learned from; None where that is not known."""


class Verdict(ResultModel):
    """Who won at one target, and why."""

    target: str
    winner: str | None
    """The key of a row."""
    why: str
    comparisons: tuple[Comparison, ...] = ()


class GridCell(ResultModel):
    """All variants at one batch and length, timed together; nothing is won there."""

    batch: int
    length: int | Literal["data"]
    latencies: Mapping[str, Latency]
    """By row key."""


class Machine(ResultModel):
    """The machine that measured."""

    name: str
    """Processor or accelerator, as it names itself."""
    system: str
    cores: int
    instructions: tuple[str, ...] = ()
    """Those that decide how fast small numbers are: avx2, avx512_vnni, amx_int8 …"""
    memory: int | None = None
    accelerator: str | None = None
    fingerprint: str | None = None


class Report(ResultModel):
    """One run, whole."""

    schema_version: Annotated[int, up_to(2)] = 2
    """2: `models` names every model's parent; in 1 each model is made from the one before."""
    name: str
    created: str
    """UTC, ISO 8601."""
    versions: Mapping[str, str]
    machine: Machine
    recipe: Mapping[str, Any]
    task: TaskInfo
    data: DataFacts
    rules: Rules
    targets: tuple[TargetFacts, ...]
    steps: tuple[StepCost, ...] = ()
    models: tuple[ReportModel, ...] = ()
    """Every model after its parent; empty in reports of schema version 1, which list them in a line (`all_models`)."""
    rows: tuple[LedgerRow, ...] = ()
    """In the order of the pipeline: the teacher's variants first, the final student's last."""
    teacher: str
    """The key of the reference: the row that candidates are compared with and judged against, `teacher/torch-fp32`."""
    unquantized: Mapping[str, str] = {}
    """For each quantized row, the key of the row it was quantized from."""
    floor: Quality | None = None
    """What something simple reaches on test; `versus_teacher` compares it with the reference."""
    floor_name: str = "a bag of words"
    """What that is."""
    floor_reason: str | None = None
    grid: Mapping[str, tuple[GridCell, ...]] = {}
    """By target title, the batches and lengths beside the target's own."""
    surroundings: MachineSnapshot | None = None
    """The machine and how it was set when the timings were taken."""
    limits: tuple[MachineLimits, ...] = ()
    """What the machine can do at most, for every device and number of threads that a target has."""
    layer_maps: Mapping[str, LayerMap] = {}
    """By model, which teacher layers its own followed while it was distilled."""
    makings: Mapping[str, Provenance] = {}
    """By model, how it was made from another; empty in reports of before it was told."""
    verdicts: tuple[Verdict, ...] = ()
    remarks: tuple[str, ...] = ()

    def row(self, key: str) -> LedgerRow | None:
        """The row called ``key``."""
        return next((row for row in self.rows if row.key == key), None)

    @property
    def all_models(self) -> tuple[ReportModel, ...]:
        """The models of the run; for an older report one after another, as its rows list them."""
        if self.models:
            return self.models
        steps = {row.model: row.step for row in self.rows}
        parents = [None, *steps]
        return tuple(
            ReportModel(name=name, parent=parent, section=section)
            for (name, section), parent in zip(steps.items(), parents, strict=False)
        )

    def lineage(self, name: str) -> list[ReportModel]:
        """The models from the first one to ``name``, each followed by one made from it."""
        models = {model.name: model for model in self.all_models}
        line: list[ReportModel] = []
        model = models.get(name)
        while model is not None and model not in line:
            line.insert(0, model)
            model = models.get(model.parent or "")
        return line

    def target(self, title: str) -> TargetFacts:
        """The target called ``title``."""
        return next(target for target in self.targets if target.title == title)

    def verdict(self, title: str) -> Verdict | None:
        """The verdict on one target, once winners are selected."""
        return next((verdict for verdict in self.verdicts if verdict.target == title), None)

    def results(self, title: str) -> list[tuple[LedgerRow, TargetResult]]:
        """The rows that run on a target, with their results there."""
        return [(row, row.targets[title]) for row in self.rows if title in row.targets]

    def passing(self, title: str) -> list[LedgerRow]:
        """The rows that passed the gate on a target, timed or not."""
        return [row for row, result in self.results(title) if result.gate and result.gate.passed]

    @property
    def titles(self) -> tuple[str, ...]:
        """The targets' names."""
        return tuple(target.title for target in self.targets)


def find_limits(limits: Iterable[MachineLimits], device: str, threads: int) -> MachineLimits | None:
    """Those of a device and a number of threads."""
    return next((each for each in limits if each.device == device and each.threads == threads), None)


def write_report(folder: Path, report: Report) -> Path:
    """Write report.json into ``folder``."""
    path = folder / REPORT_FILE
    path.write_text(report_json(report), encoding="utf-8")
    return path


def report_json(report: Report) -> str:
    """The content of report.json."""
    return report.model_dump_json(indent=1) + "\n"


def read_report(path: Path) -> Report:
    """Read report.json, or the one in a folder."""
    file = path / REPORT_FILE if path.is_dir() else path
    if not file.is_file():
        raise CompressError(f"there is no report at {file}.", hint="compress run writes one into runs/<name>/")
    try:
        return Report.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise CompressError(f"{file} cannot be read as a report: {first_error(error)}") from error
