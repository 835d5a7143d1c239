"""The step that removes the word pieces and positions that a task does not need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compress.data.tokenizer import TOKENIZER_FILE, read_tokenizer
from compress.data.tokenizer_subset import check_file, check_rule
from compress.errors import ModelError
from compress.model_sources import local_folder
from compress.recipe.schema import Recipe, Teacher
from compress.recipe.student_schema import Student, Vocabulary, VocabularyRule
from compress.steps.distillations import unlabelled_inputs, unlabelled_steps
from compress.steps.model_configs import Check, ModelConfigs
from compress.steps.model_step import ModelStep, PlannedModel, Smoke, StepKind, settings_at, with_settings

if TYPE_CHECKING:
    from compress.pipeline.graph import Plan
    from compress.pipeline.step_context import StepContext

PATH = ("prune", "vocabulary")
KIND = "vocabulary"


def add_trimmed(plan: Plan, cards: Sequence[Path], parent: str, *, name: str = "trimmed", step: str = KIND) -> None:
    """``parent`` without the word pieces that its texts do not use, and positions beyond the longest text."""
    recipe, source = plan.recipe, plan.model(parent).step
    lengths = [
        *(target.length for target in recipe.targets),
        *(recipe.measure.grid.length if recipe.measure.grid else ()),
    ]
    longest = max([recipe.task.max_length, *(length for length in lengths if isinstance(length, int))])
    add_vocabulary(plan, settings_at(recipe, PATH), longest, source, step)
    plan.models.append(PlannedModel(name, step, parent, "vocabulary"))


def add_vocabulary(plan: Plan, rule: Vocabulary, longest: int | None, source: str, step: str) -> str:
    """The step that removes pieces from what ``source`` makes, and positions where ``longest`` is given."""
    hashed = rule if rule == "seen" else dict(rule)
    settings = {"vocabulary": hashed, "longest": longest, "parent": source}
    run = partial(vocabulary, parent=source, rule=rule, longest=longest)
    return plan.add(step, KIND, settings, ["data", source, *unlabelled_steps(plan)], run, optional=True)


def vocabulary(context: StepContext, parent: str, rule: Vocabulary, longest: int | None) -> None:
    """Remove the word pieces and positions that the parent model does not need for the task."""
    from compress.prune.prune_vocabulary import prune_vocabulary

    options: dict[str, Any] = {"unlabelled_rows": unlabelled_inputs(context), "console": context.console}
    prune_vocabulary(context.inputs[parent], context.inputs["data"], rule, longest, context.work, **options)


def check_vocabulary(rule: Vocabulary, configs: ModelConfigs, named: Teacher | Student | None = None) -> None:
    """Refuse a tokenizer whose vocabulary cannot be pruned, and a number of pieces that it cannot keep.

    It is that of the recipe's student, unless another model is ``named``.
    """
    recipe = configs.recipe
    named = named or (recipe.student if recipe.student and recipe.student.source else recipe.teacher)
    source, revision = str(named.source), named.revision
    folder = local_folder(source, revision, configs.cards)
    if folder is None:
        return
    if (folder / TOKENIZER_FILE).is_file():
        check_file(read_tokenizer(folder).to_str(), rule, source)
        return
    from compress.models.load_save import load_tokenizer

    check_rule(load_tokenizer(folder), rule, source)  # which transformers may make from other files


def smoke_rule(rule: Vocabulary | None) -> Vocabulary | None:
    """Return a rule that fits the tiny model's pieces; None without one."""
    return "seen" if isinstance(rule, VocabularyRule) and rule.keep else rule


def _checks(configs: ModelConfigs) -> Iterator[Check]:
    yield "prune", partial(check_vocabulary, settings_at(configs.recipe, PATH), configs)
    yield "prune", partial(_check_kept_pieces, configs.recipe)


def _check_kept_pieces(recipe: Recipe) -> None:
    """Refuse to keep more pieces of the pruned model than the student has after its own vocabulary is pruned."""
    student, prune = (section.vocabulary if section else None for section in (recipe.student, recipe.prune))
    check_pieces_left(prune, student, "student")


def check_pieces_left(rule: Vocabulary | None, before: Vocabulary | None, section: str) -> None:
    """Refuse to keep more pieces than a ``section`` of the recipe left ``before``."""
    wanted, left = (each.keep if isinstance(each, VocabularyRule) else None for each in (rule, before))
    if left is not None and wanted is not None and wanted > left:
        raise ModelError(
            f"vocabulary: {wanted:,} pieces cannot be kept: {section}.vocabulary leaves {left:,}.",
            hint=f"keep: {left} or less, or vocabulary: seen",
        )


def _in_effect(recipe: Recipe) -> bool:
    return settings_at(recipe, PATH) is not None


def _shrink(recipe: Recipe, smoke: Smoke) -> Recipe:
    return with_settings(recipe, PATH, smoke_rule(settings_at(recipe, PATH))) if _in_effect(recipe) else recipe


VOCABULARY = ModelStep(
    title="removing word pieces",
    path=PATH,
    kinds={KIND: StepKind(version=2, seconds=6.0)},
    in_effect=_in_effect,
    plan=add_trimmed,
    reads_unlabelled=_in_effect,
    checks=_checks,
    shrink=_shrink,
    start=lambda settings, parent, folder: f"the {parent} model with fewer word pieces",
    removes_pieces=True,
)
