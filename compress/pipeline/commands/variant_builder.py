"""Builds what `compress export` is asked for, with the variants in between that it is made from."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from compress.console import Console
from compress.environment import cuda_devices
from compress.errors import DeviceUnavailable, UsageError
from compress.export import BuildContext
from compress.export.build_context import Batches, named_folders
from compress.export.build_once import BuildOnce
from compress.formats import FORMATS
from compress.model_info import FolderInfo, read_info
from compress.model_sources import exported_variant
from compress.quantize.calibration_rows import require_rows
from compress.storage.atomic_write import atomic_copy_folder
from compress.variants import VARIANTS, Variant


@dataclass
class VariantBuilder:
    """Builds variants of one model, each of those in between once."""

    model: Path
    scratch: Path
    console: Console
    sample: Batches
    assets: Path | None
    _built: BuildOnce = field(default_factory=BuildOnce)
    _names: dict[Path, str] = field(default_factory=dict)
    """Of the temporary folders."""

    def check(self, variant: Variant) -> None:
        """Refuse what the model and the options show to be impossible, before the first long build.

        Raises:
            UsageError: the model is an export of another kind, or calibration rows are missing.
            CompressError: the machine or the model lacks what ``variant`` needs.
        """
        each: Variant | None = variant
        while each is not None:
            if each.scores_train:
                what = f"{each.method} compares scores on rows of train, which compress export does not have."
                raise UsageError(what, hint="use it in a recipe")
            if each.calibrated:
                require_rows(each.method, sum(len(batch["input_ids"]) for batch in self.sample))
            if "cpu" not in each.devices and not cuda_devices():
                raise DeviceUnavailable(f"{each.name} needs a CUDA device to be compared on, and there is none here.")
            if check := FORMATS[each.format].build_check:
                resolve_name(check)(self.model, build_settings(each, self.assets))
            each = self._needed(each)

    def export(self, variant: Variant, to: Path) -> FolderInfo:
        """Build ``variant`` and write it into ``to``, with the session options that are fastest on this machine."""
        with named_folders(self._names):
            work = self._build(variant)
            if variant.tuner is not None:
                resolve_name(variant.tuner)(work, work)
        atomic_copy_folder(work, to)
        return read_info(work)

    def _build(self, variant: Variant) -> Path:
        """Return the folder of ``variant``."""
        return self._built.get(variant.name, lambda: self._make(variant))

    def _make(self, variant: Variant) -> Path:
        parent = self._parent(variant)
        work, settings = Path(tempfile.mkdtemp(dir=self.scratch)), build_settings(variant, self.assets)
        self._names[work] = variant.name
        variant.make(
            BuildContext(variant.info, parent, work, settings, console=self.console, calibration=lambda: self.sample)
        )
        return work

    def _parent(self, variant: Variant) -> Path:
        """Return the folder that ``variant`` is made from: the model, which may be an export too, or one made here."""
        needed = self._needed(variant)
        return self.model if needed is None else self._build(needed)

    def _needed(self, variant: Variant) -> Variant | None:
        """Return the variant that ``variant`` is made from; None where that is the model, which may be an export too.

        Raises:
            UsageError: the model is an export of another kind.
        """
        held, needed = exported_variant(self.model), VARIANTS[variant.needs] if variant.needs else None
        if needed is None and held is not None:
            raise UsageError(
                f"{variant.name} is made from a model folder; {self.model} holds an export, {held.name}.",
                hint="name the folder that it was exported from",
            )
        if needed is None or (held and (held.format, held.precision) == (needed.format, needed.precision)):
            return None
        return needed


def build_settings(variant: Variant, assets: Path | None) -> dict[str, Any]:
    """Return the settings of the builder of ``variant``."""
    return {"assets": assets} if variant.format == "web" else {}
