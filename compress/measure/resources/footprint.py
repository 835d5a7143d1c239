"""The size of a model: its parameters, its operations, and the bytes of all files that predicting needs.

Operations of one forward pass follow from the shape alone: what no kernel could avoid. Counted are the matrix products
of the encoder, two operations (a multiplication and an addition) for each pair of numbers: query, key, value and
output of every layer with its own heads, the two products of attention (over all pairs of pieces, also where a model
masks most of them, because the common kernels compute them all), the FFN (three products where it is gated), and the
widening of narrow word vectors. Not counted: looking up embeddings (no arithmetic); softmax, activations and
normalisation (no matrix products, about one percent); pooler and classifier, which see one piece of each row (about 1
/ (12 x layers x length) of the total).
"""

from collections.abc import Mapping
from pathlib import Path

from compress.errors import ModelError
from compress.families import FAMILIES
from compress.formats import FORMATS, WEIGHT_SUFFIXES
from compress.measure.result_base import ResultModel
from compress.model_folder.model_info import GOLDEN_FILE, INFO_FILE, ShapeInfo, VariantInfo, read_info
from compress.runtime import runtime_of
from compress.runtime.model_formats import COMPANIONS, describe_model_file
from compress.storage.file_names import ANSWERS_FILE, RECORD_FILE

DESCRIPTIONS = (GOLDEN_FILE, ANSWERS_FILE, RECORD_FILE, "README.md", "LICENSE", "digests.json", ".gitattributes")
"""Files of a step, or of an exported or published folder, that describe the model and are not read to predict."""
DESCRIPTION_FOLDERS = ("report", "variants")
LENGTH = 128
"""Word pieces at which operations are counted, or as many as the model reads of a text."""


class Footprint(ResultModel):
    """The size of one model folder or variant."""

    parameters: int | None
    """None where it is unknown (a bare ONNX file)."""
    embedding_parameters: int | None
    """Those of the embedding tables."""
    bytes_total: int
    """All files that predicting needs: weights, config, tokenizer."""
    bytes_weights: int
    flops_at: Mapping[int, int] = {}
    """Operations for one row of so many word pieces, as counted by `flops`; empty where it cannot."""

    @property
    def encoder_parameters(self) -> int | None:
        """Parameters without embeddings."""
        if self.parameters is None or self.embedding_parameters is None:
            return None
        return self.parameters - self.embedding_parameters


def needed_files(model: Path, variant: VariantInfo | None = None) -> list[Path]:
    """Return the files that predicting reads; none where there is no model.

    Args:
        model: a folder of ours, which holds one model and little else; a folder from elsewhere, which may hold it in
            several formats besides files of its training; or a bare file.
        variant: how it is to run, where not as the plainest that it holds.
    """
    if model.is_dir() and (model / INFO_FILE).is_file():
        return _all_but_descriptions(model)
    try:
        model_file = describe_model_file(model, runtime_of(variant).formats if variant else ())
    except ModelError:
        return []
    if model_file.format == "torch":
        weights = _torch_weights(model)
    else:
        weights = list(dict.fromkeys((model_file.file, *FORMATS[model_file.format].weight_files(model_file.file))))
    companions = [model / name for name in COMPANIONS] if model.is_dir() else []
    return [*(path for path in companions if path.is_file()), *weights]


def _all_but_descriptions(folder: Path) -> list[Path]:
    named = [(path, path.relative_to(folder).parts) for path in sorted(folder.rglob("*")) if path.is_file()]
    others = {path.parent for path in folder.glob(f"*/{INFO_FILE}")}  # the same model in further formats
    return [
        path
        for path, parts in named
        if path.name not in DESCRIPTIONS
        and folder / parts[0] not in others
        and parts[0] not in DESCRIPTION_FOLDERS
        and not any(part.startswith(".") for part in parts)
    ]


def _torch_weights(folder: Path) -> list[Path]:
    """The weights that are read, as one file or as an index and its parts."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (folder / name).is_file():
            return [folder / name]
        if (folder / f"{name}.index.json").is_file():
            stem, _, ending = name.rpartition(".")
            return [folder / f"{name}.index.json", *sorted(folder.glob(f"{stem}-*-of-*.{ending}"))]
    return []


def footprint(folder: Path, variant: VariantInfo | None = None) -> Footprint:
    """Return the size of a model folder, an exported folder or a bare file, run as ``variant`` if it does not say."""
    files = needed_files(folder, variant)
    weights = [path for path in files if path.name.endswith(WEIGHT_SUFFIXES)]
    if not weights:
        raise ModelError(f"{folder} has no weights.", hint=f"expected a file that ends in {', '.join(WEIGHT_SUFFIXES)}")
    info = read_info(folder) if (folder / INFO_FILE).is_file() else None
    shape = info.shape if info else None
    length = min(LENGTH, info.task.max_length) if info and info.task else LENGTH
    operations = flops(shape, length) if shape else None
    return Footprint(
        parameters=shape.parameters if shape else None,
        embedding_parameters=shape.embedding_parameters if shape else None,
        bytes_total=sum(path.stat().st_size for path in files),
        bytes_weights=sum(path.stat().st_size for path in weights),
        flops_at={} if operations is None else {length: operations},
    )


def flops(shape: ShapeInfo, length: int, batch: int = 1) -> int | None:
    """Return the operations of one forward pass over ``batch`` rows of ``length`` pieces each.

    None for families with a different layer structure, and for folders without a head size.
    """
    if shape.head_size is None or shape.family not in FAMILIES or not FAMILIES[shape.family].resizable:
        return None
    narrow, products = shape.embedding_size, 3 if FAMILIES[shape.family].gated_ffn else 2
    piece = 2 * narrow * shape.hidden if narrow is not None else 0
    for heads, ffn in zip(shape.heads, shape.ffn, strict=True):
        width = heads * shape.head_size
        projections, attention = 4 * 2 * shape.hidden * width, 2 * 2 * length * width
        piece += projections + attention + products * 2 * shape.hidden * ffn
    return batch * length * piece


def flops_per_token(shape: ShapeInfo) -> tuple[int, int] | None:
    """Return the operations a piece, and a pair of pieces of one row.

    ``flops`` is the first times the length and the second times its square.
    """
    once, twice = flops(shape, 1), flops(shape, 2)
    if once is None or twice is None:
        return None
    pair = (twice - 2 * once) // 2
    return once - pair, pair
