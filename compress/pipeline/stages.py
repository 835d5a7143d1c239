"""The stages of a run: `STAGES` is the only table from kinds of steps to titles and to what came of them."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from compress import format_numbers as fmt
from compress.data.loading.data_digest import ROLES
from compress.data.splits.prepare_splits import load_prepared
from compress.data.splits.unlabelled_texts import UNLABELLED
from compress.errors import pluralize
from compress.model_folder.model_info import find_info
from compress.pipeline.graph import Step
from compress.pipeline.steps.package_format import PACKAGE_FORMAT
from compress.pipeline.steps.quantized_steps import ADMISSION
from compress.prune.latency_table import LATENCY_STEP
from compress.select.ledger import LEDGER_FILE
from compress.steps import STEPS
from compress.tasks import KINDS, primary_metric


@dataclass(frozen=True)
class StageSteps:
    """The steps of a stage that have a result, each with its folder, in their order."""

    steps: Sequence[Step]
    folders: Mapping[str, Path]

    def last(self, *kinds: str) -> tuple[Step, Path] | None:
        """Return the last step of these kinds, or of any, that has a result, and its folder."""
        made = [(step, self.folders[step.name]) for step in self.steps if step.kind in kinds or not kinds]
        return made[-1] if made else None

    def count(self, kind: str) -> int:
        """Return how many steps of a kind have a result."""
        return sum(step.kind == kind for step in self.steps)


@dataclass(frozen=True)
class Stage:
    """Steps that follow each other and do one thing."""

    title: str
    kinds: tuple[str, ...]
    outcome: Callable[[StageSteps], str]
    """What came of it, with units or scales; empty where there is nothing to say."""


def _rows(made: StageSteps) -> str:
    """`train 2,400, select 300, test 300 rows`."""
    if (data := made.last("data")) is None:
        return ""
    counts = load_prepared(data[1]).info.counts
    return ", ".join(f"{role} {counts[role]:,}" for role in ROLES) + " rows"


def _model(made: StageSteps) -> str:
    """`accuracy 92.3 of 100 on select, 6 layers of 384, 22.7 M parameters`, of the last model that was made."""
    if (last := made.last()) is None or (info := find_info(last[1])) is None:
        return ""
    parts = []
    if info.task and info.training and info.training.score is not None and info.task.kind in KINDS:
        larger = primary_metric(info.task).larger_is_better
        score = fmt.score(info.training.score, larger)
        scale = "of 100" if larger else "(lower is better)"
        parts.append(f"{fmt.metric(info.task.metric)} {score} {scale} on select")
        if info.training.best_at == 0:
            parts.append(
                "no better than the linear probe it starts from" if info.probe else "no better than it started"
            )
    if info.shape:
        size = f"{info.shape.layers} layers of {info.shape.hidden}" if info.shape.heads else f"{info.shape.hidden} wide"
        parts.append(f"{size}, {fmt.count(info.shape.parameters)} parameters")
    count = made.count(last[0].kind)
    return (f"{last[0].name}, the last of {count}: " if count > 1 else "") + ", ".join(parts)


def _pieces(made: StageSteps) -> str:
    """`30,522 → 8,123 word pieces, 12.3 M parameters`."""
    last = made.last()
    info = find_info(last[1]) if last else None
    if info is None or info.vocabulary is None:
        return ""
    kept = f"{info.vocabulary.pieces_before:,} → {info.vocabulary.pieces:,} word pieces"
    return f"{kept}, {fmt.count(info.shape.parameters)} parameters" if info.shape else kept


def _variants(made: StageSteps) -> str:
    return f"{pluralize(made.count('score'), 'variant')} scored"


def _timed(made: StageSteps) -> str:
    last = made.last("measure")
    return pluralize(len(last[0].settings.get("variants", ())), "variant") if last else ""


def _winners(made: StageSteps) -> str:
    """`trimmed/onnx-int8 on cpu`."""
    last = made.last("select")
    if last is None or not (last[1] / LEDGER_FILE).is_file():
        return ""
    verdicts = json.loads((last[1] / LEDGER_FILE).read_bytes())["verdicts"]
    return ", ".join(f"{one['winner'] or 'no winner'} on {one['target']}" for one in verdicts)


def _published(made: StageSteps) -> str:
    last = made.last("publish")
    return "/".join(str(last[0].settings.get(key, "")) for key in ("to", "name")) if last else ""


def _nothing(made: StageSteps) -> str:
    return ""


def _model_stages() -> Iterator[Stage]:
    """Yield the stages of model steps: one each, unless its kinds have titles of their own."""
    for step in STEPS.values():
        titles = dict.fromkeys(kind.title or step.title for kind in step.kinds.values())
        for title in titles:
            kinds = tuple(name for name, kind in step.kinds.items() if (kind.title or step.title) == title)
            yield Stage(title, kinds, _pieces if step.removes_pieces else _model)


STAGES = (
    Stage("reading rows", ("data", UNLABELLED, "slices"), _rows),
    Stage("timing parts of the model", ("workload", LATENCY_STEP, "check-speedup"), _nothing),
    *_model_stages(),
    Stage(
        "building and scoring variants",
        ("export", "quantize", "fallback", "score", "perturb", "tune", "screen", ADMISSION, "cascade", "floor"),
        _variants,
    ),
    Stage("timing variants", ("measure",), _timed),
    Stage("probing the models", ("probe",), _nothing),
    Stage("choosing the winner, report", ("quality", "select", PACKAGE_FORMAT, "package", "report"), _winners),
    Stage("publishing", ("publish",), _published),
    Stage("reading texts", ("pretrain-vocabulary", "pretrain-corpus", "pretrain-packing"), _nothing),
    Stage("pretraining", ("pretrain",), _model),
    Stage("writing the report", ("pretrain-report",), _nothing),
)
_BY_KIND = {kind: stage for stage in STAGES for kind in stage.kinds}


def stage_of(step: Step) -> Stage:
    """Return the stage of a step; a kind that is in no stage is one of its own."""
    stage = _BY_KIND.get(step.kind) or Stage(step.kind, (step.kind,), _nothing)
    return replace(stage, title=step.stage) if step.stage else stage


def stages_of(steps: Sequence[Step]) -> list[tuple[Stage, list[Step]]]:
    """Return the stages of a plan in order, each with its steps."""
    grouped = (list(group) for _, group in groupby(steps, key=lambda step: stage_of(step).title))
    return [(stage_of(group[0]), group) for group in grouped]
