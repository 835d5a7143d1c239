"""From the words on the command line to models that can be timed, each with the way it is asked to run."""

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

BUILT = "variants that must be built first are timed by their own folder: compress export MODEL FOLDER"

MEANT = (
    f"a model is a folder, a file that ends in {describe_bare_files()}, a card (compress ls), or a hub id owner/name"
)


@dataclass(frozen=True)
class ModelEntry:
    """One model as it was asked for."""

    name: str
    path: Path | None
    """None where it is not there."""
    variant: VariantInfo | None = None
    reason: str | None = None
    """Why it is not there."""

    @property
    def size(self) -> Footprint | None:
        """Its footprint, where it is there and its weights are known."""
        try:
            return footprint(self.path, self.variant) if self.path else None
        except CompressError:
            return None

    @property
    def info(self) -> FolderInfo | None:
        """What its folder says of it; None where it says nothing, or what cannot be read: that is told on opening."""
        try:
            return find_info(self.path) if self.path else None
        except CompressError:
            return None

    @property
    def task(self) -> TaskInfo | None:
        """What it answers; None where it does not say."""
        return self.info.task if self.info else None

    @property
    def precision(self) -> str:
        """That its layers compute in: the way it is asked to run says so, or its folder does."""
        own = self.info.variant if self.info else None
        if self.variant is None or self.variant.precision == STORED_PRECISION:
            own = own or self.variant
            return own.precision if own else FP32.precision
        return self.variant.precision

    @property
    def reach(self) -> int | None:
        """The most pieces that it can read; None where it does not tell."""
        return _reach(self.path) if self.path else None


def read_models(words: Sequence[str]) -> list[ModelEntry]:
    """Find every model; one that is not there says why, and the others are timed all the same.

    Raises:
        UsageError: what stands after a colon is no way to run a model that is there.
    """
    if not words:
        raise UsageError("no model is given.", hint="compress bench MODEL MODEL …")
    split = [_split(word) for word in words]
    if not all(model for model, _ in split):
        raise UsageError("the name of a model is empty.")
    names = _apart(words)
    return [_entry(name, model, way) for name, (model, way) in zip(names, split, strict=True)]


def texts_read(entries: Iterable[ModelEntry]) -> tuple[int, int | None] | None:
    """Least and most texts that their tasks read at a time; None where no model says what its task is."""
    tasks = [entry.task for entry in entries if entry.task is not None]
    several = [task for task in tasks if len(task.text) > 1]
    if not several:
        return (1, 1) if tasks else None
    return 2, None if any(kind_of(task).is_variadic for task in several) else 2


def check_text(text: TaskInput, entries: Iterable[ModelEntry]) -> None:
    """A UsageError where a model that reads several texts at a time cannot read these."""
    for task in (entry.task for entry in entries):
        if task is not None and len(task.text) > 1:
            kind_of(task).from_input(text, task)


def chosen_base(against: str | None, names: Sequence[str]) -> str:
    """The model that ratios are to: the first one, or the one named."""
    if against is None:
        return names[0]
    if against in names:
        return against
    raise UsageError(f"--against {against}: no model of this bench is called that{nearest(against, names)}")


def _split(word: str) -> tuple[str, str | None]:
    """`model.onnx:MODE` as its two parts; a path may have colons of its own."""
    model, colon, way = word.rpartition(":")
    if not colon or _there(word):
        return word, None
    if way in RUN_MODES:
        return model, way
    if _there(model):
        if way == _own(Path(model).expanduser()):
            return model, None
        raise UsageError(f"{word}: a model that is there cannot run as '{way}'{nearest(way, RUN_MODES)}", hint=BUILT)
    return word, None


def _own(path: Path) -> str | None:
    """The variant that an exported folder holds: by that name it runs as it is."""
    info = ModelEntry("", path).info
    return info.variant.name if info and info.variant else None


def _there(word: str) -> bool:
    return bool(word) and Path(word).expanduser().exists()


def _apart(words: Iterable[str]) -> list[str]:
    """The words, and for those that stand more than once a number: `a`, `a (2)`."""
    names: list[str] = []
    for word in words:
        count = 1
        while (name := word if count == 1 else f"{word} ({count})") in names:
            count += 1
        names.append(name)
    return names


def _entry(name: str, model: str, way: str | None) -> ModelEntry:
    variant = RUN_MODES[way] if way else None
    try:
        return ModelEntry(name, describe_model_file(_locate(model)).path, variant)
    except CompressError as error:
        return ModelEntry(name, None, variant, error.full_message)


def _locate(model: str) -> Path:
    """The local place of a model; a hub id or a card's weights are fetched."""
    path = Path(model).expanduser()
    if path.exists():
        return path
    if not model or _local(path, model):
        raise UsageError(f"there is no file or folder {model}{_neighbour(path)}")
    from compress.cards import available
    from compress.model_sources import source_kind

    try:
        source_kind(model, "teachers")  # a card or a hub id
    except UsageError as error:
        known = nearest(model, available("teachers"))
        raise UsageError(f"no file, folder or card is called '{model}'{known}", hint=MEANT) from error
    require("torch", "train")
    require("huggingface_hub", "hub")
    from compress.models.fetch import fetch

    return fetch(model)


def _local(path: Path, model: str) -> bool:
    """Whether a word that names nothing here can only have meant a path: `owner/name` may be a hub id."""
    if path.suffix in BARE_FILES or model.startswith((".", "/", "~")) or path.is_absolute():
        return True
    return len(path.parts) > 1 and path.parent.is_dir()


def _neighbour(path: Path) -> str:
    """The entry of the same folder that was most likely meant."""
    names = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
    return nearest(path.name, names).partition(" (")[0]


def _reach(path: Path) -> int | None:
    config = (path if path.is_dir() else path.parent) / "config.json"
    try:
        told = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(told, dict):
        return None
    padding = told.get("pad_token_id")
    return max_positions(told, padding if isinstance(padding, int) else None)
