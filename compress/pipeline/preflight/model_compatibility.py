"""Checks from configs what the models of a recipe cannot do, before hours go into training them.

torch is loaded only for what files do not show: whether tokenizers agree, heads of further teachers, cross-encoders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from compress.data.tokenizer import check_length
from compress.errors import ModelError, UsageError
from compress.families import family_named, max_positions
from compress.model_info import TaskInfo
from compress.model_sources import local_folder
from compress.pipeline.preflight.checkpoint_sizes import check_layer_sizes
from compress.pipeline.torchrun_launch import Launch
from compress.recipe.schema import Recipe
from compress.recipe.yaml_lines import KeyPath
from compress.steps import distillations, steps_of
from compress.steps.distillations import check_observable_parts
from compress.steps.model_configs import Check, ModelConfigs, configs_of, shape_made_of
from compress.train.distillation.layer_pairs import check_local_batch_size
from compress.train.distillation.sanity_warnings import settings_warnings


def compatibility_errors(recipe: Recipe, cards: Sequence[Path] = (), task: TaskInfo | None = None) -> Iterator[str]:
    """Yield every requirement of the recipe that its models do not meet, as far as their configs show.

    ``task`` has the labels, where they are known before the data are prepared.
    """
    try:
        configs = configs_of(recipe, cards, task)
    except ModelError as error:
        yield error.full_message
        return
    teacher, origin = configs.teacher, configs.origin
    learnt, processes = dict(distillations(recipe)), Launch.from_environment().world
    checks: list[Check] = [
        ("teacher", lambda: teacher and family_named(teacher["model_type"])),
        *_checks_of_sizes(configs),
        ("task", lambda: _check_lengths(configs)),
        ("targets", lambda: _check_timed_lengths(configs)),
        *(check for step in steps_of(recipe) for check in step.checks(configs)),
        *((_title(path), partial(check_local_batch_size, each, processes)) for path, each in learnt.items()),
        ("distill", lambda: check_observable_parts([*learnt.values()], [teacher, origin])),
    ]
    for section, check in checks:
        try:
            check()
        except (ModelError, UsageError) as error:
            yield f"{section}: {error.full_message}"


def compatibility_warnings(recipe: Recipe, cards: Sequence[Path] = ()) -> Iterator[str]:
    """Yield warnings about valid settings that are probably unintended."""
    for path, settings in distillations(recipe):
        yield from (f"{_title(path)}: {warning}" for warning in settings_warnings(settings))
    configs = configs_of(recipe, cards)
    for step in steps_of(recipe):
        yield from step.warnings(configs)


def _checks_of_sizes(configs: ModelConfigs) -> Iterator[Check]:
    """Yield the checks that the weights of the teacher, and of the student's own checkpoint, are as large as stated."""
    teacher, student = configs.recipe.teacher, configs.recipe.student
    for section, named, config in (("teacher", teacher, configs.teacher), ("student", student, configs.origin)):
        if named and named.source:
            folder, shape = local_folder(named.source, named.revision, configs.cards), shape_made_of(config, None)
            yield section, partial(check_layer_sizes, folder, shape)


def _check_lengths(configs: ModelConfigs) -> None:
    """Refuse texts longer than the teacher, or the student's own checkpoint, has positions for."""
    recipe, own = configs.recipe, configs.recipe.student and configs.recipe.student.source
    for model, source in ((configs.teacher, recipe.teacher.source), (configs.origin, own)):
        check_length(recipe.task.max_length, max_positions(model, model.get("pad_token_id") or 0), str(source))


def _check_timed_lengths(configs: ModelConfigs) -> None:
    """Refuse targets and grids with inputs longer than the models, which are all timed there, can read."""
    recipe, models = configs.recipe, (configs.teacher, configs.origin)
    known = [max_positions(model, model.get("pad_token_id") or 0) for model in models]
    longest = min((positions for positions in known if positions is not None), default=None)
    grid = recipe.measure.grid.length if recipe.measure.grid else ()
    for title, length in [(each.title, each.length) for each in recipe.targets] + [
        ("measure.grid", each) for each in grid
    ]:
        if longest is not None and length != "data" and length > longest:
            raise UsageError(
                f"{title} has inputs of {length} word pieces, and the models have {longest} positions.",
                hint=f"length: {longest} or less",
            )


def _title(path: KeyPath) -> str:
    return ".".join(map(str, path))
