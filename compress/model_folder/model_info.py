"""compress.json: the description of a model folder, readable without torch or transformers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ValidationError

from compress.errors import ModelError, first_error
from compress.model_folder.model_history import LastLayerInfo, LayerMap, PruningInfo, TrainingInfo, VocabularyInfo
from compress.storage.atomic_write import write_model
from compress.storage.stored_info import Info, up_to

INFO_FILE = "compress.json"
GOLDEN_FILE = "golden.safetensors"
"""Of an export: golden inputs and PyTorch's outputs for them (`export/comparison/golden_inputs.py`)."""


class TaskInfo(Info):
    """The part of the task that predicting needs."""

    name: str
    kind: str
    text: tuple[str, ...]
    labels: tuple[str, ...] = ()
    metric: str
    max_length: int
    long: Literal["cut", "mean", "max", "attention"] = "cut"
    """How texts of more than `max_length` tokens are read: cut, or in windows whose outputs are combined this way."""
    overlap: int = 0
    """Tokens that neighbouring windows share."""
    max_windows: int = 1
    """Maximum number of windows of one text."""
    max_answer: int = 30
    """Tokens of the longest answer searched in a text."""
    threshold: float | None = None
    """Margin by which `no answer` must be more likely than the best answer; None: there always is an answer."""
    pooling: Literal["mean", "cls"] = "mean"
    """How token embeddings become a text's embedding."""
    range: tuple[float, float] = (0.0, 1.0)
    """The lowest and highest label: of unrelated texts, and of texts with equal meaning."""


class ShapeInfo(Info):
    """The size of a model; heads and FFN width are listed per layer because pruning makes them uneven."""

    family: str
    hidden: int
    heads: tuple[int, ...]
    ffn: tuple[int, ...]
    vocabulary: int
    parameters: int
    embedding_parameters: int
    head_size: int | None = None
    """Width of one attention head; None in folders of earlier versions."""
    embedding_size: int | None = None
    """Width of the word vectors where they are widened before the first layer; None where they are as wide as it."""

    @property
    def layers(self) -> int:
        """How deep the model is."""
        return len(self.heads)

    @property
    def text(self) -> str:
        """`6x384, 12 heads, FFN 1536`, with a range where layers differ."""

        def span(values: tuple[int, ...]) -> str:
            low, high = min(values), max(values)
            return str(low) if low == high else f"{low}-{high}"

        if not self.heads:
            return f"{self.hidden} wide, {self.vocabulary:,} pieces"
        heads = span(self.heads)
        return f"{self.layers}x{self.hidden}, {heads} head{'' if heads == '1' else 's'}, FFN {span(self.ffn)}"


class VariantInfo(Info):
    """Format x precision x method of a model, with the runtime and session options that serve it."""

    name: str
    format: str
    precision: str
    method: str | None = None
    runtime: str
    session: Mapping[str, Any] = {}
    """Session options that this file needs; earlier versions also stored options chosen by timing here."""
    parity: Mapping[str, float] = {}
    """Differences between its outputs and those of the model it was built from: on rows of train where a run built it,
    else on golden inputs."""
    instructions: tuple[str, ...] = ()
    """CPU instruction sets without which it cannot run, as `compress doctor` names them."""
    libraries: Mapping[str, str] = {}
    """Libraries that can open it, and the lowest version of each; any one of them is enough."""
    operators: tuple[str, ...] = ()
    """Operators of an ONNX graph, those beyond the standard with their domain, after the version of the standard:
    `opset 20`. Of the ORT format those that ONNX Runtime
    made of them. Empty for other formats."""
    portable: bool | None = None
    """Whether every CPU computes it right: no two neighbouring INT8 products can exceed the 16 bits in which x86
    processors without VNNI add them. None where that is not known."""
    fp32_layers: tuple[str, ...] = ()
    """Layers of a quantized file that stay in fp32, because with them in INT8 it lost more than the recipe allows."""
    batch_sensitive: bool | None = None
    """Whether a row's outputs depend on the other rows of its batch; None in folders that do not state it."""
    scored_batch: int | None = None
    """Where they do: rows a batch when the variant was scored and passed the gate; None where it was not scored."""


class Parent(Info):
    """A step this folder was made from."""

    step: str
    fingerprint: str
    digest: str


class FolderInfo(Info):
    """The content of compress.json."""

    schema_version: Annotated[int, up_to(1)] = 1
    step: str
    made_by: str = ""
    """The version of compress; empty in the folder of a run's step, whose step.json has it."""
    task: TaskInfo | None = None
    shape: ShapeInfo | None = None
    inputs: tuple[str, ...] = ("input_ids", "attention_mask")
    """Arrays the model takes."""
    variant: VariantInfo | None = None
    parents: tuple[Parent, ...] = ()
    recipe: Mapping[str, Any] | None = None
    layer_map: LayerMap | None = None
    """Of a student whose layers followed its teacher's."""
    augmented: int | None = None
    """Changed copies of rows of train that it learned from."""
    pruning: PruningInfo | None = None
    """Of a model that was pruned, and of variants exported from it."""
    vocabulary: VocabularyInfo | None = None
    """Of a model whose vocabulary was pruned, and of variants exported from it."""
    training: TrainingInfo | None = None
    """None where the model was not trained, or by a version that did not record it."""
    probe: LastLayerInfo | None = None
    """Of a model that was fine-tuned from one."""


def read_info(folder: Path) -> FolderInfo:
    """Read ``folder``'s compress.json, or say why it cannot be read."""
    path = folder / INFO_FILE
    if not folder.is_dir():
        hint = None
        if winners := _models_in(Path("runs", folder, "winner")):
            hint = f"a run's winner for each target is in a folder of its own: {', '.join(winners)}"
        elif beside := _models_in(folder.parent):
            hint = f"there is {' and '.join(beside)}"
        raise ModelError(f"there is no model folder at {folder}.", hint=hint)
    if not path.is_file():
        raise ModelError(
            f"{folder} has no {INFO_FILE}, so its task and inputs are unknown.",
            hint="a run has its models in winner/TARGET; a plain Hugging Face folder can be a teacher or student",
        )
    try:
        return FolderInfo.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ModelError(f"{path} cannot be read: {first_error(error)}") from error


def _models_in(folder: Path) -> list[str]:
    """Return the model folders in a folder, the first ten."""
    return [str(each.parent) for each in sorted(folder.glob(f"[!_.]*/{INFO_FILE}"))[:10]]


def find_info(folder: Path) -> FolderInfo | None:
    """What the folder says of itself; None for a bare file or a folder that others wrote."""
    return read_info(folder) if (folder / INFO_FILE).is_file() else None


def write_info(folder: Path, info: FolderInfo) -> None:
    """Write ``info`` as ``folder``'s compress.json."""
    write_model(folder / INFO_FILE, info)
