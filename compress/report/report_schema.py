"""report.json: the results of one run, the only source of pages, charts and model cards."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ValidationError

from compress.errors import CompressError, first_error
from compress.measure.machine_snapshot import Machine
from compress.measure.quality.quality_result import Quality
from compress.measure.resources.footprint import Footprint
from compress.measure.result_base import ResultModel
from compress.model_folder.model_history import ChosenSetting, EvaluationInfo, LayerMap, TrialInfo, VocabularyInfo
from compress.model_folder.model_info import TaskInfo, VariantInfo
from compress.pretrain.pretrain_report import read_pretrain_report
from compress.report.run_facts import DataFacts, Provenance, PrunedStructure, ServiceFacts, StepCost, TargetFacts
from compress.select.cascade_threshold import CascadeFacts
from compress.select.ledger import Ledger, Outcome, Rules, TargetResult, Verdict
from compress.select.quantized_files import Fallback
from compress.storage.stored_info import up_to

REPORT_FILE = "report.json"
ROWS_PAGE = "rows.html"
PROBE_FILE, PROBE_PAGE = "probe.json", "probe.html"
"""The rows that winners got wrong, with texts of the user's data: never published, and in the run's folder alone."""

Status = Literal["ok", "failed", "not measured"]


class ReportModel(ResultModel):
    """One model of the run."""

    name: str
    parent: str | None = None
    """The model it was made from; None for the first."""
    section: str
    """The recipe's section with its settings: `finetune`, `distill`, `prune`, `quantize`."""


class LedgerRow(ResultModel):
    """One model in one variant."""

    model: str
    """The name of the model: `teacher`, `student`, `pruned`."""
    step: str
    """The step that made the model: `finetune`, `distill`, `prune`, `quantize`."""
    variant: VariantInfo
    status: Status = "ok"
    reason: str | None = None
    """Why it was not measured."""
    shape: str | None = None
    """`6x384, 12 heads, FFN 1536`."""
    footprint: Footprint | None = None
    cost_seconds: float | None = None
    """Duration of all steps that lead to it."""
    steps: tuple[str, ...] = ()
    """Their names."""
    fallback: Fallback | None = None
    """Of a quantized variant: what it lost, and which layers returned to fp32. None where that was not judged."""

    @property
    def key(self) -> str:
        """`student/onnx-int8`."""
        return f"{self.model}/{self.variant.name}"

    @property
    def bytes_total(self) -> int | None:
        """Bytes of all its files."""
        return self.footprint.bytes_total if self.footprint else None

    @property
    def names(self) -> dict[str, str]:
        """The first two cells of its row in tables."""
        return {"model": self.model, "variant": self.variant.name}


class Report(Ledger):
    """The ledger of one run, with what the run was made of."""

    schema_version: Annotated[int, up_to(4)] = 4
    name: str
    created: str
    """UTC, ISO 8601."""
    versions: Mapping[str, str]
    machine: Machine
    """The machine that the report was made on."""
    recipe: Mapping[str, Any]
    task: TaskInfo
    data: DataFacts
    rules: Rules
    targets: tuple[TargetFacts, ...]
    steps: tuple[StepCost, ...] = ()
    models: tuple[ReportModel, ...] = ()
    """Every model after its parent."""
    rows: tuple[LedgerRow, ...] = ()
    """In the order of the pipeline: the teacher's variants first."""
    teacher: str
    """The key of the reference, with which candidates are compared: `teacher/torch-fp32`."""
    unquantized: Mapping[str, str] = {}
    """For each quantized row, the key of the row it was quantized from."""
    floor_name: str = "a bag of words"
    """The name of the simple baseline, with an article."""
    floor_reason: str | None = None
    probe_name: str = "a linear probe"
    """The name of the probe, with an article."""
    layer_maps: Mapping[str, LayerMap] = {}
    """By distilled model, the teacher's layer of each of its layers."""
    pruned: Mapping[str, PrunedStructure] = {}
    """By pruned model, what it kept of each layer."""
    vocabularies: Mapping[str, VocabularyInfo] = {}
    """By model, what pruning its vocabulary kept."""
    makings: Mapping[str, Provenance] = {}
    """By model, how it was made from another."""
    chosen: Mapping[str, Mapping[str, ChosenSetting]] = {}
    """By model, the values of settings that the recipe left to `auto`."""
    precisions: Mapping[str, str] = {}
    """By model, the precision of its training where the recipe left it to `auto`, with the reason."""
    trials: Mapping[str, tuple[TrialInfo, ...]] = {}
    """By model, the trainings of which the best on select was used, where there were several."""
    cascades: Mapping[str, CascadeFacts] = {}
    """By row, what a cascade is made of, and how its threshold was found."""
    curves: Mapping[str, tuple[EvaluationInfo, ...]] = {}
    """By trained model, its evaluations during training."""
    service: ServiceFacts | None = None
    """The service whose answers the models learn, where the recipe names one."""
    remarks: tuple[str, ...] = ()

    def row(self, key: str | None) -> LedgerRow | None:
        """Return the row with this key; None without one."""
        return next((row for row in self.rows if row.key == key), None)

    @property
    def baselines(self) -> dict[str, Quality]:
        """Return the simple methods that were scored, by name."""
        named = {self.floor_name: self.floor, self.probe_name: self.probe}
        return {name: quality for name, quality in named.items() if quality}

    def lineage(self, name: str) -> list[ReportModel]:
        """Return the models from the first one to ``name``, each made from the one before."""
        models = {model.name: model for model in self.models}
        line: list[ReportModel] = []
        model = models.get(name)
        while model is not None and model not in line:
            line.insert(0, model)
            model = models.get(model.parent or "")
        return line

    def target(self, title: str) -> TargetFacts:
        """Return the target with this title."""
        return next(target for target in self.targets if target.title == title)

    def verdict(self, title: str) -> Verdict | None:
        """Return the verdict on one target; None before selection."""
        return next((verdict for verdict in self.verdicts if verdict.target == title), None)

    def detailed(self, title: str) -> str:
        """Return the key of the row that pages show in detail on a target: the winner, or else the last one scored."""
        verdict = self.verdict(title)
        if verdict and self.row(verdict.winner):
            return verdict.winner or self.teacher
        return [self.teacher, *(row.key for row, result in self.rows_at(title) if result.test)][-1]

    def rows_at(self, title: str) -> list[tuple[LedgerRow, TargetResult]]:
        """Return the rows that run on a target, with their results there."""
        return [(row, result) for row in self.rows if (result := self.result(row.key, title))]

    def with_outcome(self, outcome: Outcome, title: str) -> list[LedgerRow]:
        """Return the rows whose gate on a target has this outcome, timed or not."""
        return [row for row, result in self.rows_at(title) if result.gate and result.gate.state == outcome]

    def is_undecided(self, verdict: Verdict) -> bool:
        """Whether the select rows leave the winner on a target undecided."""
        return any(row.key == verdict.winner for row in self.with_outcome("undecided", verdict.target))

    @property
    def titles(self) -> tuple[str, ...]:
        """The titles of all targets."""
        return tuple(target.title for target in self.targets)


def write_report(folder: Path, report: Report) -> Path:
    """Write report.json into ``folder``."""
    path = folder / REPORT_FILE
    path.write_text(report_json(report), encoding="utf-8")
    return path


def report_json(report: Report) -> str:
    """Return the content of report.json."""
    return report.model_dump_json(indent=1) + "\n"


def read_report(path: Path) -> Report:
    """Read a report from report.json or its folder."""
    file = path / REPORT_FILE if path.is_dir() else path
    if not file.is_file():
        raise CompressError(f"there is no report at {file}.", hint="compress run writes one into runs/<name>/")
    if read_pretrain_report(file):
        raise CompressError(f"{file} is the report of a pretraining, where one of a task's run is expected.")
    return parse_report(file.read_bytes(), str(file))


def parse_report(content: bytes, source: str) -> Report:
    """Parse the content of report.json; ``source`` names it in errors."""
    try:
        return Report.model_validate_json(content)
    except ValidationError as error:
        raise CompressError(f"{source} cannot be read as a report: {first_error(error)}") from error
