"""Checks what the models of a recipe cannot do, before hours go into training them.

Read are their configs, and the header of their weights, whose sizes must be those of the config.
"""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from compress.data.tokenizer import check_length
from compress.errors import ModelError, UsageError
from compress.families import family_named, max_positions
from compress.model_folder.model_info import ShapeInfo, TaskInfo
from compress.model_sources import local_folder
from compress.pipeline.torchrun_launch import Launch
from compress.recipe.schema import Recipe
from compress.recipe.yaml_lines import KeyPath
from compress.steps import distillations, own_distillations, steps_of
from compress.steps.distillations import check_observable_parts
from compress.steps.model_configs import Check, ModelConfigs, configs_of, shape_made_of
from compress.storage.safetensors_file import read_header
from compress.train.distillation.layer_pairs import check_local_batch_size
from compress.train.distillation.phases import settings_warnings


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
    learnt, processes = dict(own_distillations(recipe)), Launch.from_environment().world
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


WEIGHTS_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"


def check_layer_sizes(folder: Path | None, shape: ShapeInfo | None) -> None:
    """Refuse a checkpoint in which a layer has more or fewer heads or neurons than ``shape``, which is its config's.

    That is how tools leave a pruned model whose config cannot describe it. Other formats are checked when they load.
    """
    if folder is None or shape is None:
        return
    family, size = family_named(shape.family), shape.head_size or shape.hidden // max(shape.heads)
    if not family.prunable or family.query is None:
        return
    rows = {name: count for file in _weight_files(folder) for name, count in _rows_of_weights(file)}
    for layer, (heads, ffn) in enumerate(zip(shape.heads, shape.ffn, strict=True)):
        for part, path, wanted in (("queries", family.query, heads * size), ("FFN neurons", family.ffn_in, ffn)):
            ending = f"{family.layers}.{layer}.{path}.weight"
            stored = next((count for name, count in rows.items() if name.endswith(ending)), wanted)
            if stored != wanted:
                raise ModelError(
                    f"{folder}: layer {layer} has {stored} {part}, and its config.json states {wanted}.",
                    hint="another tool pruned it and did not record how: prune the model from before that here",
                )


def _weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a checkpoint, of which there are several where they have an index."""
    if (folder / WEIGHTS_FILE).is_file():
        return [folder / WEIGHTS_FILE]
    try:
        names = json.loads((folder / INDEX_FILE).read_bytes())["weight_map"].values()
        return [folder / name for name in sorted(set(names))]
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return []


def _rows_of_weights(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the name and the first dimension of every tensor of a safetensors file; nothing of one that is damaged."""
    try:
        with path.open("rb") as file:
            header = read_header(file)
        yield from [(name, entry["shape"][0]) for name, entry in header.items() if entry.get("shape")]
    except (OSError, ValueError, AttributeError, TypeError, OverflowError, MemoryError):
        return  # loading it says what is wrong
