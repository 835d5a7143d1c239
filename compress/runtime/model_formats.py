"""Recognizes which files are models, and lists the ways in which an existing model can run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from compress.errors import ModelError, nearest
from compress.formats import BARE_FILES, FORMATS, RUNTIMES, STORED_PRECISION, describe_bare_files
from compress.model_info import FolderInfo, VariantInfo, find_info

NOT_MODELS = {
    ".pt": "a pickled module",
    ".pth": "a pickled module",
    ".pkl": "a pickle",
    ".bin": "weights without the model they belong to",
    ".safetensors": "weights without the model they belong to",
}
"""Files that are often mistaken for models, by suffix."""

SIGNATURE_BYTES = 4096
"""Bytes of a file that are compared with a format's signature."""

EXPECTED = (
    f"expected a file that ends in {describe_bare_files()}, or a folder with "
    f"{', '.join(each.files[0] for each in FORMATS.values() if each.builder)}, or config.json and model.safetensors"
)

RUN_MODES: Mapping[str, VariantInfo] = MappingProxyType(
    {
        mode.name: VariantInfo(
            name=mode.name, format=runtime.formats[0], precision=mode.precision, runtime=runtime.name
        )
        for runtime in RUNTIMES.values()
        for mode in runtime.modes
    }
)
"""Ways to run an existing model without building anything: what may follow a model's name after a colon."""

FP32, BF16 = RUN_MODES["torch-fp32"], RUN_MODES["torch-bf16"]


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
    graph: Path | None
    """The file that holds the graph; None for a model folder."""
    info: FolderInfo | None
    """The content of its compress.json."""

    @property
    def variant(self) -> VariantInfo:
        """How it runs by default."""
        if self.info is not None and self.info.variant is not None:
            return self.info.variant
        if self.format == "torch":
            return FP32
        return VariantInfo(
            name=self.format,
            format=self.format,
            precision=STORED_PRECISION,
            runtime=FORMATS[self.format].runtime,
        )


def describe_model_file(path: Path, wanted: Collection[str] = ()) -> ModelFile:
    """Recognize the model at ``path`` by file names, compress.json and the first bytes of bare files; loads nothing.

    Args:
        path: of a folder or a bare file.
        wanted: formats that the requested runtime reads, the preferred one first: a folder that holds several formats
            and does not state its own is taken as one of these.

    Raises:
        ModelError: nothing is there, or no runtime reads it.
    """
    if not path.exists():
        raise ModelError(f"there is no model at {path}.", hint=EXPECTED)
    if path.is_file():
        return _describe_bare_file(path)
    info = find_info(path)
    stated = info.variant.format if info and info.variant else None
    if stated is not None and stated not in FORMATS:
        raise ModelError(f"no format is called '{stated}'{nearest(stated, FORMATS)}")
    for name in dict.fromkeys((*wanted, *FORMATS)):
        file = find_graph(path, name)
        if file is not None and stated in (None, name):
            return ModelFile(path, name, None if name == "torch" else _check_weights(file, name), info)
    if stated is not None:
        raise ModelError(f"{path} has no {FORMATS[stated].files[0]}, although its compress.json states {stated}.")
    what = "is an empty folder" if not any(path.iterdir()) else "is a folder without a model"
    raise ModelError(f"{path} {what}.", hint=EXPECTED)


def find_graph(folder: Path, name: str) -> Path | None:
    """Return the file of the format ``name`` in ``folder``; None where there is none."""
    return next((folder / file for file in FORMATS[name].files if (folder / file).is_file()), None)


def run_mode_named(name: str) -> VariantInfo:
    """Return the run mode called ``name``."""
    if name not in RUN_MODES:
        raise ModelError(f"no way to run a model is called '{name}'{nearest(name, RUN_MODES)}")
    return RUN_MODES[name]


def _describe_bare_file(path: Path) -> ModelFile:
    suffix = path.suffix.lower()
    if suffix not in BARE_FILES:
        what = f"a file that ends in {path.suffix}" if path.suffix else "a file without a suffix"
        raise ModelError(f"{path} is not a model: no runtime reads {NOT_MODELS.get(suffix, what)}.", hint=EXPECTED)
    each = BARE_FILES[suffix]
    try:
        with path.open("rb") as stream:
            beginning = stream.read(SIGNATURE_BYTES)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}.") from error
    if not beginning:
        raise ModelError(f"{path} is empty.")
    if each.signature is not None and not each.signature.match(beginning):
        raise ModelError(f"{path} is not an {each.title} model: those are {each.signature_text}.")
    return ModelFile(path, each.name, _check_weights(path, each.name), None)


def _check_weights(graph: Path, name: str) -> Path:
    """Refuse a graph whose weights are a file of their own that is missing."""
    if FORMATS[name].needs_weights and not FORMATS[name].weight_files(graph):
        weights = FORMATS[name].weights[0].format(stem=graph.stem, name=graph.name)
        raise ModelError(f"{graph} has its weights in {weights}, which is missing from its folder.")
    return graph
