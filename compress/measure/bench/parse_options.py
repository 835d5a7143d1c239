"""Parses the options of `compress bench` and resolves the models that they name: their path, and their variant.

Messages name the option and what it expects.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from compress.environment import require
from compress.errors import CompressError, UsageError, nearest, pluralize
from compress.families import max_positions
from compress.formats import BARE_FILES, describe_bare_files
from compress.measure.bench.bench_result import BenchModel
from compress.measure.resources.footprint import Footprint, footprint
from compress.model_folder.model_info import FolderInfo, TaskInfo, VariantInfo
from compress.recipe.field_types import Frozen, Length
from compress.recipe.measure_schema import Batch, Measure, Target
from compress.runtime.model_formats import FP32, RUN_MODES, describe_model_file
from compress.runtimes import STORED_PRECISION
from compress.storage.file_names import expanded_user
from compress.tasks import kind_of
from compress.tasks.base import TaskInput

NUMBER = re.compile("[0-9]{1,9}")
DEFAULT_LENGTH = 128
"""Word pieces of every input without texts and without a requested length."""

Schema = TypeVar("Schema", bound=BaseModel)


class GridOptions(Frozen):
    """Batches and lengths besides the targets' own; an empty one is the target's own."""

    batch: tuple[Batch, ...] = ()
    length: tuple[Length | Literal["data"], ...] = ()

    def cells(self, targets: Iterable[Target]) -> list[Target]:
        """Return each combination once for every device and number of threads; none if no grid was requested."""
        cells = (
            target.model_copy(update={"batch": batch, "length": length})
            for target in targets
            for batch in self.batch or (target.batch,)
            for length in self.length or (target.length,)
        )
        return list(dict.fromkeys(cells)) if self.batch or self.length else []


def read_target(text: str) -> Target:
    """Parse `cpu,threads=2,batch=8,length=64`."""
    device, *pairs = [part.strip() for part in text.split(",")]
    fields: dict[str, Any] = {"device": device}
    for pair in pairs:
        name, _, value = (part.strip() for part in pair.partition("="))
        if name not in ("threads", "batch", "length") or name in fields:
            raise UsageError(f"--target {text}: expected threads=N, batch=N or length=N, each once; got '{pair}'.")
        fields[name] = _number(value)
    return _validated(Target, fields, f"--target {text}: ")


def read_targets(texts: Sequence[str]) -> tuple[Target, ...]:
    """Parse all targets; the default is one CPU thread."""
    return tuple(dict.fromkeys(map(read_target, texts))) or (Target(device="cpu"),)


def read_grid(texts: Sequence[str]) -> GridOptions:
    """Parse `batch=1,8,32` and `length=32,128`."""
    axes: dict[str, tuple[int | str, ...]] = {}
    for text in texts:
        name, _, values = text.partition("=")
        if name not in GridOptions.model_fields:
            raise UsageError(f"--grid {text}: expected batch=N,N,… or length=N,N,….")
        axes[name] = (*axes.get(name, ()), *_numbers(values))
    return _validated(GridOptions, axes, f"--grid {' '.join(texts)}: ")


def read_settings(
    rounds: int | None = None, seconds: float | None = None, budget: str | None = None, callers: str | None = None
) -> Measure:
    """Return the settings of the sessions; what was not given has its default."""
    if budget is not None and rounds is not None:
        raise UsageError("--budget and --rounds cannot be combined: a budget runs as many rounds as fit.")
    given: dict[str, Any] = {"rounds": rounds, "seconds": seconds}
    if budget is not None:
        budget = budget.strip()
        given["budget"] = f"{budget}s" if budget[-1:].isdecimal() else budget
    if callers is not None:
        given["callers"] = _numbers(callers)
    return _validated(Measure, {name: value for name, value in given.items() if value is not None}, "--")


def read_texts(path: Path, tasks: Sequence[TaskInfo]) -> list[TaskInput]:
    """Read the rows of a file, one a line with tabs between its texts.

    Every row must have as many texts as the tasks read, and without a task as many as the first line, one or two.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"--texts {path}: byte {error.start + 1} of the file is not UTF-8.") from error
    except OSError as error:
        raise UsageError(f"--texts {path} cannot be read: {error.strerror}") from error
    rows = {number: tuple(line.split("\t")) for number, line in enumerate(lines, start=1) if line.strip()}
    if not rows:
        raise UsageError(f"--texts {path} has no text.")
    paired = [task for task in tasks if len(task.text) > 1]
    columns = 2 if paired else 1 if tasks else min(2, len(next(iter(rows.values()))))
    is_variadic = any(kind_of(task).is_variadic for task in paired)
    for number, texts in rows.items():
        try:
            if len(texts) < columns or (len(texts) > columns and not is_variadic):
                raise UsageError(f"expected {pluralize(columns, 'text')} with tabs between, got {len(texts)}.")
            for task in paired:
                kind_of(task).from_input(texts, task)
        except UsageError as error:
            raise UsageError(f"--texts {path}: line {number}: {error.message}", hint=error.hint) from error
    return [texts if columns > 1 else texts[0] for texts in rows.values()]


def with_lengths(targets: Sequence[Target], grid: GridOptions, texts: Path | None) -> list[Target]:
    """Return the targets with `DEFAULT_LENGTH` if there are no texts and no length was requested."""
    own = [target for target in targets if target.length != "data"]
    if texts is not None:
        if "data" not in grid.length and len(own) == len(targets):
            raise UsageError("--texts is not used: every target has a length of its own; length=data uses the texts'.")
        return list(targets)
    if "data" in grid.length or any("length" in target.model_fields_set for target in targets if target not in own):
        raise UsageError("length=data uses the lengths of texts; add --texts FILE.")
    return [target if target in own else target.model_copy(update={"length": DEFAULT_LENGTH}) for target in targets]


def _number(text: str) -> int | str:
    """Convert a whole number; the schema refuses other texts."""
    return int(text) if NUMBER.fullmatch(text) else text


def _numbers(text: str) -> tuple[int | str, ...]:
    return tuple(dict.fromkeys(_number(word.strip()) for word in text.split(",")))


def _validated(schema: type[Schema], fields: Mapping[str, Any], option: str) -> Schema:
    """Return the options by the recipe's schema; a message begins with ``option`` and the field's name."""
    try:
        return schema.model_validate(fields)
    except ValidationError as error:
        first, *others = error.errors()
        faults = [first, *(other for other in others if other["loc"][0] == first["loc"][0])]
        expected = dict.fromkeys(each["msg"].removeprefix("Value error, ").partition(", got ")[0] for each in faults)
        message = f"{option}{first['loc'][0]}: {' or '.join(expected)}, got '{str(first['input'])[:40]}'."
        raise UsageError(message) from error


EXPORT_HINT = "variants that must be built first are timed by their own folder: compress export MODEL FOLDER"
MODEL_HINT = (
    f"a model is a folder, a file that ends in {describe_bare_files()}, a card (compress ls), or a hub id owner/name"
)


@dataclass(frozen=True)
class ModelEntry:
    """One model of the command line."""

    name: str
    path: Path | None
    """None where it does not exist."""
    variant: VariantInfo | None = None
    reason: str | None = None
    """Why it does not exist."""
    info: FolderInfo | None = None
    """The content of its compress.json."""

    @property
    def size(self) -> Footprint | None:
        """Its footprint; None where it does not exist or its weights are not found."""
        with suppress(CompressError):
            return footprint(self.path, self.variant) if self.path else None
        return None

    @property
    def described(self) -> BenchModel:
        """What the results state about it."""
        return BenchModel(name=self.name, variant=self.variant.name if self.variant else None, footprint=self.size)

    @property
    def task(self) -> TaskInfo | None:
        """Its task; None where it is unknown."""
        return self.info.task if self.info else None

    @property
    def precision(self) -> str:
        """The precision of its layers: that of the requested variant, or else of its folder."""
        own = self.info.variant if self.info else None
        is_stored = self.variant is None or self.variant.precision == STORED_PRECISION
        return ((own if is_stored else None) or self.variant or FP32).precision

    @property
    def max_length(self) -> int | None:
        """The most pieces that it can read; None where it is unknown."""
        if self.path is None:
            return None
        folder = self.path if self.path.is_dir() else self.path.parent
        with suppress(OSError, ValueError, RecursionError, TypeError, AttributeError):
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            return max_positions(config, config.get("pad_token_id"))
        return None


def resolve_models(arguments: Sequence[str]) -> list[ModelEntry]:
    """Resolve every model; one that does not exist gets a reason, and the others are timed all the same.

    Raises:
        UsageError: the part after a colon is no variant of an existing model.
    """
    parts = [split_variant(argument) for argument in arguments]
    if not parts or not all(model for model, _ in parts):
        raise UsageError("the name of a model is empty.", hint="compress bench MODEL MODEL …")
    return [_entry(name, *part) for name, part in zip(_unique_names(arguments), parts, strict=True)]


def chosen_base(against: str | None, names: Sequence[str]) -> str:
    """Return the model that ratios are to: the named one, or the first."""
    if against is None:
        return names[0]
    if against in names:
        return against
    raise UsageError(f"--against {against}: no model of this bench is called that{nearest(against, names)}")


def split_variant(argument: str) -> tuple[str, str | None]:
    """Split `model.onnx:MODE` into model and variant; a path may have colons of its own."""
    model, _, variant = argument.rpartition(":")
    if not variant or expanded_user(argument).exists():
        return argument, None
    if variant in RUN_MODES:
        return model, variant
    if model and expanded_user(model).exists():
        raise UsageError(f"{argument}: this model cannot run as '{variant}'{nearest(variant, RUN_MODES)}", EXPORT_HINT)
    return argument, None


def _unique_names(arguments: Sequence[str]) -> list[str]:
    """Return the arguments, repeated ones with a number: `a`, `a (2)`."""
    counts = [arguments[: index + 1].count(argument) for index, argument in enumerate(arguments)]
    return [
        argument if count == 1 else f"{argument} ({count})" for argument, count in zip(arguments, counts, strict=True)
    ]


def _entry(name: str, model: str, variant_name: str | None) -> ModelEntry:
    variant = RUN_MODES[variant_name] if variant_name else None
    try:
        file = describe_model_file(_local_path(model))
        return ModelEntry(name, file.path, variant, info=file.info)
    except CompressError as error:
        return ModelEntry(name, None, variant, error.full_message)


def _local_path(model: str) -> Path:
    """Return the local path of a model; a hub id or a card's weights are downloaded."""
    path = expanded_user(model)
    if path.exists():
        return path
    # Only a name with one part or an unknown folder may be a card or a hub id.
    if path.suffix in BARE_FILES or (path.parent != Path() and path.parent.is_dir()):
        raise UsageError(f"there is no file or folder {model}.")
    from compress.cards import available
    from compress.model_sources import source_kind

    try:
        source_kind(model, "teachers")
    except UsageError as error:
        known = nearest(model, available("teachers"))
        raise UsageError(f"no file, folder or card is called '{model}'{known}", hint=MODEL_HINT) from error
    require("torch", "train")
    require("huggingface_hub", "hub")
    from compress.models.fetch import fetch

    return fetch(model)
