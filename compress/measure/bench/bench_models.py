"""Resolves the models on the command line: their path, and the variant in which each runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from compress.environment import require
from compress.errors import CompressError, UsageError, nearest
from compress.families import max_positions
from compress.formats import BARE_FILES, STORED_PRECISION, describe_bare_files
from compress.measure.resources.footprint import Footprint, footprint
from compress.model_info import FolderInfo, TaskInfo, VariantInfo, find_info
from compress.runtime.model_formats import FP32, RUN_MODES, describe_model_file
from compress.tasks import kind_of
from compress.tasks.base import TaskInput

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

    @property
    def size(self) -> Footprint | None:
        """Its footprint; None where it does not exist or its weights are not found."""
        try:
            return footprint(self.path, self.variant) if self.path else None
        except CompressError:
            return None

    @property
    def info(self) -> FolderInfo | None:
        """The information in its folder; None without any, or if it cannot be read, which is reported on opening."""
        try:
            return find_info(self.path) if self.path else None
        except CompressError:
            return None

    @property
    def task(self) -> TaskInfo | None:
        """Its task; None where it is unknown."""
        return self.info.task if self.info else None

    @property
    def precision(self) -> str:
        """The precision of its layers: that of the requested variant, or else of its folder."""
        own = self.info.variant if self.info else None
        if self.variant is None or self.variant.precision == STORED_PRECISION:
            own = own or self.variant
            return own.precision if own else FP32.precision
        return self.variant.precision

    @property
    def max_length(self) -> int | None:
        """The most pieces that it can read; None where it is unknown."""
        if self.path is None:
            return None
        folder = self.path if self.path.is_dir() else self.path.parent
        try:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(config, dict):
            return None
        padding = config.get("pad_token_id")
        return max_positions(config, padding if isinstance(padding, int) else None)


def resolve_models(arguments: Sequence[str]) -> list[ModelEntry]:
    """Resolve every model; one that does not exist gets a reason, and the others are timed all the same.

    Raises:
        UsageError: the part after a colon is no variant of an existing model.
    """
    if not arguments:
        raise UsageError("no model is given.", hint="compress bench MODEL MODEL …")
    parts = [_split(argument) for argument in arguments]
    if not all(model for model, _ in parts):
        raise UsageError("the name of a model is empty.")
    return [_entry(name, *part) for name, part in zip(_unique_names(arguments), parts, strict=True)]


def texts_per_row(entries: Iterable[ModelEntry]) -> tuple[int, int | None] | None:
    """Return the least and most texts that a row of the models' tasks has; None where no task is known."""
    tasks = [entry.task for entry in entries if entry.task is not None]
    several = [task for task in tasks if len(task.text) > 1]
    if not several:
        return (1, 1) if tasks else None
    return 2, None if any(kind_of(task).is_variadic for task in several) else 2


def check_text(text: TaskInput, entries: Iterable[ModelEntry]) -> None:
    """Raise a UsageError if a model that reads several texts at a time cannot read these."""
    for task in (entry.task for entry in entries):
        if task is not None and len(task.text) > 1:
            kind_of(task).from_input(text, task)


def chosen_base(against: str | None, names: Sequence[str]) -> str:
    """Return the model that ratios are to: the named one, or the first."""
    if against is None:
        return names[0]
    if against in names:
        return against
    raise UsageError(f"--against {against}: no model of this bench is called that{nearest(against, names)}")


def _split(argument: str) -> tuple[str, str | None]:
    """Split `model.onnx:MODE` into model and variant; a path may have colons of its own."""
    model, colon, variant = argument.rpartition(":")
    if not colon or _exists(argument):
        return argument, None
    if variant in RUN_MODES:
        return model, variant
    if _exists(model):
        info = ModelEntry("", Path(model).expanduser()).info
        if info and info.variant and info.variant.name == variant:  # an exported folder, named by what it contains
            return model, None
        raise UsageError(f"{argument}: this model cannot run as '{variant}'{nearest(variant, RUN_MODES)}", EXPORT_HINT)
    return argument, None


def _exists(argument: str) -> bool:
    return bool(argument) and Path(argument).expanduser().exists()


def _unique_names(arguments: Iterable[str]) -> list[str]:
    """Return the arguments, repeated ones with a number: `a`, `a (2)`."""
    names: list[str] = []
    for argument in arguments:
        count = 1
        while (name := argument if count == 1 else f"{argument} ({count})") in names:
            count += 1
        names.append(name)
    return names


def _entry(name: str, model: str, variant_name: str | None) -> ModelEntry:
    variant = RUN_MODES[variant_name] if variant_name else None
    try:
        return ModelEntry(name, describe_model_file(_local_path(model)).path, variant)
    except CompressError as error:
        return ModelEntry(name, None, variant, error.full_message)


def _local_path(model: str) -> Path:
    """Return the local path of a model; a hub id or a card's weights are downloaded."""
    path = Path(model).expanduser()
    if path.exists():
        return path
    if not model or _must_be_path(path, model):
        siblings = [sibling.name for sibling in path.parent.iterdir()] if path.parent.is_dir() else []
        guess = nearest(path.name, siblings).partition(" (")[0]
        raise UsageError(f"there is no file or folder {model}{guess}")
    from compress.cards import available
    from compress.model_sources import source_kind

    try:
        source_kind(model, "teachers")  # a card or a hub id
    except UsageError as error:
        known = nearest(model, available("teachers"))
        raise UsageError(f"no file, folder or card is called '{model}'{known}", hint=MODEL_HINT) from error
    require("torch", "train")
    require("huggingface_hub", "hub")
    from compress.models.fetch import fetch

    return fetch(model)


def _must_be_path(path: Path, model: str) -> bool:
    """Whether a name that does not exist can only be a path: `owner/name` may be a hub id."""
    if path.suffix in BARE_FILES or model.startswith((".", "/", "~")) or path.is_absolute():
        return True
    return len(path.parts) > 1 and path.parent.is_dir()
