"""The one way to build variants of a model: what a variant is made from is made first, and everything only once."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from compress.console import Console
from compress.errors import UsageError, nearest
from compress.export.build_context import BuildContext, Variant, named_folders
from compress.formats import EXPORTS
from compress.model_folder.model_info import FolderInfo, TaskInfo
from compress.runtime.model_formats import export_variant
from compress.storage.atomic_write import copy_content, new_folder
from compress.variants import VARIANTS

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def nothing_present(variant: Variant) -> Path | None:
    """Return no folder: everything is made."""
    return None


@dataclass
class VariantMaker:
    """Makes variants of one model."""

    model: Path
    """The model folder."""
    folder: Path
    """Receives a folder for each variant, of its name; one that is there is not made again."""
    context: Callable[[Variant, Path, Path], BuildContext]
    """From a variant, the folder that it is made from and an empty one, to the input of its builder."""
    present: Callable[[Variant], Path | None] = nothing_present
    """A folder elsewhere that serves as a variant where another one is made from it."""
    names: dict[Path, str] = field(default_factory=dict)
    """What errors call the folders that were made."""
    _failures: dict[str, Exception] = field(default_factory=dict)

    def make(self, variant: Variant) -> Path:
        """Return the folder of a variant; a build that failed is not repeated, but fails again in the same way."""
        folder = self.folder / variant.name
        if variant.name in self._failures:
            raise self._failures[variant.name]
        if not folder.is_dir():
            try:
                self._build(variant, folder)
            except Exception as error:
                self._failures[variant.name] = error
                raise
        return folder

    def _build(self, variant: Variant, folder: Path) -> None:
        source = self._source(variant)
        self.names[folder] = variant.name
        with new_folder(folder) as work, named_folders({work: variant.name, **self.names}):
            variant.make(self.context(variant, source, work))

    def _source(self, variant: Variant) -> Path:
        """Return the folder that a variant is made from, and make it if nothing serves as it."""
        if variant.needs is None:
            return self.model
        needed = VARIANTS[variant.needs]
        return self.present(needed) or self.make(needed)


def export_from_model(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | Path,
    *,
    task: TaskInfo | None = None,
    form: str = "onnx",
    console: Console | None = None,
) -> Path:
    """Export a model in memory into ``folder``, which then predicts by itself.

    Args:
        model: any encoder of a known family, with or without a head.
        tokenizer: saved as tokenizer.json.
        folder: where to write; created if it does not exist.
        task: the model's task; `compress.open(folder)` needs it to read texts.
        form: a key of `formats.EXPORTS`.
        console: receives progress and warnings.
    """
    from compress.models.load_save import save_model

    if form not in EXPORTS:
        raise UsageError(f"no export format is called '{form}'{nearest(form, EXPORTS)}")
    shown = console or Console("quiet")
    with tempfile.TemporaryDirectory(prefix="compress-export-") as scratch, named_folders({Path(scratch): str(folder)}):
        saved = Path(scratch) / "model"
        saved.mkdir()
        save_model(model, tokenizer, saved, FolderInfo(step="export", made_by="", task=task))
        maker = VariantMaker(
            saved, Path(scratch), lambda each, source, work: BuildContext(each.info, source, work, console=shown)
        )
        copy_content(maker.make(VARIANTS[export_variant(form).name]), Path(folder))
    return Path(folder)
