"""The formats that a recipe's `export` names: those that compete, and those that are built for winners only."""

from __future__ import annotations

from collections.abc import Iterator

from compress.errors import Problem
from compress.formats import EXPORTS
from compress.recipe.schema import Export, Recipe
from compress.variants import ALL_FORMATS, describe_missing, missing_extras, missing_programs


def listed_formats(recipe: Recipe) -> tuple[Export, ...]:
    """Return one entry a format, each of which says whether it competes; those that `all` means come last."""
    named = [each for each in recipe.export if each.format in EXPORTS]
    for each in recipe.export:
        if each.format == ALL_FORMATS:
            others = [name for name in EXPORTS if name not in {one.format for one in named}]
            named += [Export(format=name, compete=each.compete) for name in others if not _obstacle(recipe, name)]
    return tuple(
        each if each.compete is not None else Export(format=each.format, compete=EXPORTS[each.format].competes)
        for each in named
    )


def left_out_formats(recipe: Recipe) -> dict[str, str]:
    """Return a warning for each format that `all` leaves out because it cannot be built here, by format.

    A resolved recipe has none: there `all` is replaced by the formats that can be built.
    """
    if all(each.format != ALL_FORMATS for each in recipe.export):
        return {}
    others = EXPORTS.keys() - {each.format for each in recipe.export}
    obstacles = {name: _obstacle(recipe, name) for name in EXPORTS if name in others}
    return {name: f"export: all leaves out {name}: {reason}" for name, reason in obstacles.items() if reason}


def competing_formats(recipe: Recipe) -> list[str]:
    """Return the formats that are built for every model."""
    return [each.format for each in listed_formats(recipe) if each.compete]


def packaged_formats(recipe: Recipe) -> list[str]:
    """Return the formats that are built for winners only, after they are selected."""
    return [each.format for each in listed_formats(recipe) if not each.compete]


def _obstacle(recipe: Recipe, form: str) -> str:
    """Return why a format cannot be built here; empty where it can."""
    missing = describe_missing(missing_extras(form), missing_programs(form))
    return f"not installed: {missing}" if missing else _lacks_lstm(recipe, form)


def _lacks_lstm(recipe: Recipe, form: str) -> str:
    """Return why the only model of a recipe, a teacher with a BiLSTM, cannot have this format; empty where it can."""
    if form not in EXPORTS or EXPORTS[form].has_lstm or recipe.student is not None:
        return ""
    has_bilstm = recipe.finetune and recipe.finetune.head == "bilstm"
    return f"{form} has no LSTM, and the head of the only model is a BiLSTM" if has_bilstm else ""


def format_problems(recipe: Recipe) -> Iterator[Problem]:
    """Yield formats without an LSTM for a model with one, and those that compete and run on no device of a target."""
    targets = {target.device for target in recipe.targets}
    for number, each in enumerate(recipe.export):
        if reason := _lacks_lstm(recipe, each.format):
            yield Problem(("export", number), f"{reason}: add a student, whose head is linear")
        devices = EXPORTS[each.format].devices if each.format in EXPORTS else tuple(targets)
        if each.compete and targets.isdisjoint(devices):
            able = f"runs on {' and '.join(devices)}" if devices else "has no runtime on this machine"
            reason = f"{each.format} {able}, and the targets on {' and '.join(sorted(targets))}"
            yield Problem(("export", number, "compete"), f"{reason}; without compete it is built for winners")
