"""Recognizes which files are models, and lists the ways in which an existing model can run."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from compress.errors import ModelError
from compress.formats import BARE_FILES, FORMATS, Format, describe_bare_files
from compress.model_folder.model_info import FolderInfo, VariantInfo, find_info
from compress.runtimes import RUNTIMES, STORED_PRECISION

EXPECTED = (
    f"expected a file that ends in {describe_bare_files()}, or a folder with "
    f"{', '.join(each.files[0] for each in FORMATS.values() if each.builder)}, or config.json and model.safetensors"
)

RUN_MODES: Mapping[str, VariantInfo] = {
    mode.name: VariantInfo(name=mode.name, format=runtime.formats[0], precision=mode.precision, runtime=runtime.name)
    for runtime in RUNTIMES.values()
    for mode in runtime.modes
}
"""Ways to run an existing model without building anything: what may follow a model's name after a colon."""

FP32 = RUN_MODES["torch-fp32"]

COMPANIONS = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "vocabulary.json",
)
"""Files that belong to a model besides its weights, and are copied with its exports. By name, because a foreign folder
may hold the same weights in three more formats."""


def export_variant(name: str) -> VariantInfo:
    """Return the variant that exporting to the format ``name`` makes."""
    each = FORMATS[name]
    return VariantInfo(
        name=f"{name}-fp32",
        format=name,
        precision="fp32",
        runtime=each.runtime,
        libraries=each.minimum,
        batch_sensitive=False,
    )


@dataclass(frozen=True)
class ModelFile:
    """A model that was recognized at a path."""

    path: Path
    """As requested."""
    format: str
    """A key of `FORMATS`."""
    file: Path
    """The graph of an exported model; the configuration of a model folder."""
    info: FolderInfo | None
    """The content of its compress.json."""

    @property
    def variant(self) -> VariantInfo:
        """How it runs by default."""
        if self.info is not None and self.info.variant is not None:
            return self.info.variant
        if self.format == "torch":
            return FP32
        runtime = FORMATS[self.format].runtime
        return VariantInfo(name=self.format, format=self.format, precision=STORED_PRECISION, runtime=runtime)


def describe_model_file(path: Path, wanted: Collection[str] = ()) -> ModelFile:
    """Recognize the model at ``path`` by file names and compress.json; loads nothing.

    Args:
        path: of a folder or a bare file.
        wanted: formats that the requested runtime reads, the preferred one first: a folder that holds several formats
            and does not state its own is taken as one of these.

    Raises:
        ModelError: there is no model, or no runtime reads it.
    """
    if not path.exists():
        raise ModelError(f"there is no model at {path}.", hint=EXPECTED)
    if path.is_file():
        form = BARE_FILES.get(path.suffix.lower())
        if form is None:
            raise ModelError(f"{path} is not a model: no runtime reads files like it.", hint=EXPECTED)
        return ModelFile(path, form.name, _check_weights(path, form), None)
    info = find_info(path)
    stated = info.variant.format if info and info.variant else None
    if stated is not None and stated not in FORMATS:
        raise ModelError(
            f"{path} is in the format '{stated}', which this version of compress does not read.",
            hint=f"it was written by {info.made_by}; upgrade compress-encoders" if info and info.made_by else None,
        )
    for name in (stated,) if stated else dict.fromkeys((*wanted, *FORMATS)):
        if file := find_graph(path, name):
            return ModelFile(path, name, _check_weights(file, FORMATS[name]), info)
    if stated is not None:
        raise ModelError(f"{path} has no {FORMATS[stated].files[0]}, although its compress.json states {stated}.")
    raise ModelError(f"{path} is a folder without a model.", hint=EXPECTED)


def find_graph(folder: Path, name: str) -> Path | None:
    """Return the file of the format ``name`` in ``folder``; None where there is none."""
    return next((folder / file for file in FORMATS[name].files if (folder / file).is_file()), None)


def _check_weights(graph: Path, form: Format) -> Path:
    """Refuse a graph whose weights are a file of their own that is missing."""
    if form.needs_weights and not form.weight_files(graph):
        raise ModelError(f"{graph} has its weights in {graph.stem}{form.weights[0]}, which is missing from its folder.")
    return graph
