"""Resolves the models on the command line: their path, and the variant in which each runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from compress.environment import require
from compress.errors import CompressError, UsageError, nearest
from compress.families import max_positions
from compress.formats import BARE_FILES, describe_bare_files
from compress.measure.bench.bench_result import BenchModel
from compress.measure.resources.footprint import Footprint, footprint
from compress.model_info import FolderInfo, TaskInfo, VariantInfo
from compress.runtime.model_formats import FP32, RUN_MODES, describe_model_file
from compress.runtimes import STORED_PRECISION

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
    parts = [_split(argument) for argument in arguments]
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


def _split(argument: str) -> tuple[str, str | None]:
    """Split `model.onnx:MODE` into model and variant; a path may have colons of its own."""
    model, _, variant = argument.rpartition(":")
    if not variant or Path(argument).expanduser().exists():
        return argument, None
    if variant in RUN_MODES:
        return model, variant
    if model and Path(model).expanduser().exists():
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
    path = Path(model).expanduser()
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
