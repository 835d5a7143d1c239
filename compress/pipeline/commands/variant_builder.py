"""Builds what `compress export` is asked for, with the variants in between that it is made from."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from compress.console import Console
from compress.errors import UsageError
from compress.export import BuildContext
from compress.export.build_context import Batches
from compress.export.build_once import BuildOnce
from compress.model_info import FolderInfo, read_info
from compress.model_sources import exported_variant
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

    def export(self, variant: Variant, to: Path) -> FolderInfo:
        """Build ``variant`` and write it into ``to``, with the session options that are fastest on this machine."""
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
        variant.make(
            BuildContext(variant.info, parent, work, settings, console=self.console, calibration=lambda: self.sample)
        )
        return work

    def _parent(self, variant: Variant) -> Path:
        """Return the folder that ``variant`` is made from: the model, which may be an export too, or one made here.

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
            return self.model
        return self._build(needed)


def build_settings(variant: Variant, assets: Path | None) -> dict[str, Any]:
    """Return the settings of the builder of ``variant``."""
    return {"assets": assets} if variant.format == "web" else {}
