"""The steps that make cascades: choose both models' files, find the threshold on select, combine their answers."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.data.splits.prepare_splits import PreparedData, load_prepared
from compress.errors import CompressError, ScreenedOut
from compress.export.runners import cascade_readme
from compress.measure import BootstrapScorer, Quality, score_model
from compress.model_folder.cascade_info import CASCADE, FIRST, THEN, CascadeInfo, read_cascade, write_cascade
from compress.model_folder.model_info import FolderInfo, VariantInfo, read_info, write_info
from compress.pipeline.step_context import StepContext
from compress.pipeline.step_store import share_folder
from compress.pipeline.steps.scoring_steps import LENGTHS, SCORED_FILE
from compress.select.cascade_threshold import CascadeFacts, check_classes, find_threshold, passed
from compress.select.gate import gate
from compress.select.ledger import GateResult, Rules
from compress.select.quantized_files import Fallback
from compress.storage.file_names import ANSWERS_FILE, RECORD_FILE
from compress.tasks import kind_of
from compress.variants import Variant

CASCADE_VARIANT = Variant(
    name=CASCADE, format=CASCADE, precision="mixed", runtime=CASCADE, devices=("cpu",), batch_sensitive=False
)
"""Where the second model's answers depend on the batch, it reads its texts one by one."""


@dataclass(frozen=True)
class CascadePart:
    """A file that may be one of the two models."""

    key: str
    """Of its row: `pruned/onnx-int8`."""
    step: str
    """Whose folder serves it."""
    scored: str
    """The step with its outputs, each text by itself where they depend on the batch."""
    perturbed: str | None = None
    """The same for changed texts."""
    judged: str | None = None
    """The step that judged its loss by quantization."""


@dataclass(frozen=True)
class CascadeSettings:
    """How a cascade is judged."""

    rules: Rules
    bootstrap: int
    seed: int
    compared: int
    """Variants among which the winner is chosen."""


def cascade(
    context: StepContext,
    first: Sequence[CascadePart],
    then: Sequence[CascadePart],
    reference: str,
    settings: CascadeSettings,
) -> dict[str, Any]:
    """Make the folder of a cascade; returns `CascadeFacts`.

    Args:
        context: of the step.
        first: files of the first model, the preferred one first.
        then: files of the second one.
        reference: the step that scored the teacher in PyTorch.
        settings: of the judgement.
    """
    roles = load_prepared(context.inputs["data"])
    check_classes(roles.info)
    small, large = (choose_file(context, files) for files in (first, then))
    steps = (small.scored, large.scored, reference)
    of_small, of_large, of_teacher = (read_answers(context.inputs[step])["select"] for step in steps)
    judge = judge_of(roles, of_small, of_large, of_teacher, settings)
    points = find_threshold(kind_of(roles.info.task_info).certainty(of_small), judge)
    chosen = passed(points)
    found = {"first": small.key, "then": large.key, "threshold": chosen.threshold, "share": chosen.share}
    for part, folder in ((small, FIRST), (large, THEN)):
        share_folder(context.inputs[part.step], context.work / folder)
        for name in (RECORD_FILE, ANSWERS_FILE):
            (context.work / folder / name).unlink(missing_ok=True)
    write_info(context.work, _folder_info(context.work, roles))
    write_cascade(context.work, CascadeInfo.model_validate(found))
    (context.work / "README.md").write_text(cascade_readme(context.work), encoding="utf-8")
    context.console.note(f"{small.key} answers {chosen.share:.0%} of select, and {large.key} the rest")
    return CascadeFacts.model_validate({**found, "points": points}).model_dump(mode="json")


def choose_file(context: StepContext, parts: Sequence[CascadePart]) -> CascadePart:
    """Return the preferred file that was built and, if it is quantized, did not lose too much by that."""
    built = [part for part in parts if {part.step, part.scored} <= context.inputs.keys()]
    if not built:
        raise CompressError(f"{parts[0].key} was not built or not scored, so there is no cascade of it.")
    return next((part for part in built if not _lost_too_much(context, part)), built[-1])


def _lost_too_much(context: StepContext, part: CascadePart) -> bool:
    record = context.records.get(part.judged or "")
    if record is None or not record.measured:
        return False
    return Fallback.model_validate(record.measured).final.outcome == "missed"


def read_answers(folder: Path) -> dict[str, NDArray[Any]]:
    """Return the outputs that a step stored."""
    with np.load(folder / ANSWERS_FILE, allow_pickle=False) as stored:
        return dict(stored)


def judge_of(
    roles: PreparedData,
    first: NDArray[Any],
    then: NDArray[Any],
    teacher: NDArray[Any],
    settings: CascadeSettings,
) -> Callable[[NDArray[np.bool_]], GateResult]:
    """Return the function that judges a cascade, of the rows that its first model answers, as any candidate."""
    task = roles.info.task_info
    kind = kind_of(task)
    gold = kind.gold(roles.rows("select"))
    scorer = BootstrapScorer(kind, task, settings.bootstrap, settings.seed)

    def scored(answers: NDArray[Any]) -> Quality:
        return score_model(kind, task, answers, gold, role="select", teacher_answers=teacher, scorer=scorer)

    classes = scored(teacher).per_class

    def judge(answered: NDArray[np.bool_]) -> GateResult:
        quality = scored(combine(answered, first, then))
        return gate(settings.rules, quality, classes, quantized=False, compared=settings.compared)

    return judge


def combine(answered: NDArray[np.bool_], first: NDArray[Any], then: NDArray[Any]) -> NDArray[Any]:
    """Return the answers of a cascade: the first model's where it answers, and the second's elsewhere."""
    return np.where(answered.reshape(-1, *[1] * (first.ndim - 1)), first, then)


def _folder_info(folder: Path, roles: PreparedData) -> FolderInfo:
    held = [read_info(folder / part).variant for part in (FIRST, THEN)]
    needed = sorted({name for each in held if each for name in each.instructions})
    variant = VariantInfo.model_validate({**dict(CASCADE_VARIANT.info), "instructions": tuple(needed)})
    return FolderInfo(step=CASCADE, task=roles.info.task_info, inputs=(), variant=variant)


def score_cascade(
    context: StepContext, made: str, first: Mapping[str, str], then: Mapping[str, str], *, changed: bool
) -> None:
    """Store the outputs of a cascade: those of its models, which earlier steps stored.

    Args:
        context: of the step.
        made: the step with its folder.
        first: by row key, the steps with the outputs of the files that may be its first model.
        then: the same of its second one.
        changed: whether these are outputs for changed texts, of which nothing else is known.
    """
    if made not in context.inputs:
        raise ScreenedOut(f"needs {made}, which has no result")
    info = read_cascade(context.inputs[made])
    stored_by = first[info.first], then[info.then]
    if missing := [step for step in stored_by if step not in context.inputs]:
        raise ScreenedOut(f"needs {missing[0]}, which has no result")
    folders = context.inputs[stored_by[0]], context.inputs[stored_by[1]]
    task = load_prepared(context.inputs["data"]).info.task_info
    small, large = map(read_answers, folders)
    answered = {name: kind_of(task).certainty(small[name]) >= info.threshold for name in small if name != LENGTHS}
    stored = {name: combine(sure, small[name], large[name]) for name, sure in answered.items()}
    if LENGTHS in small:
        stored[LENGTHS] = small[LENGTHS]
    np.savez(context.work / ANSWERS_FILE, allow_pickle=False, **stored)
    if not changed:
        facts = json.loads((folders[0] / SCORED_FILE).read_bytes())
        shares = {name: float(sure.mean()) for name, sure in answered.items()}
        context.write_json(SCORED_FILE, {**facts, "answered": shares})


def share_on_test(folder: Path) -> float:
    """Return the share of test that the first model of a cascade answers, of the step that scored it."""
    return float(json.loads((folder / SCORED_FILE).read_bytes())["answered"]["test"])
