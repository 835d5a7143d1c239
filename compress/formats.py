"""Model formats: one record each, as plain data; `compress.runtimes` lists what executes them.

Checks before a run, size of a model, model cards, command help, `compress ls variants`, environment reports and worker
processes derive what they need from these two tables. Adding a format is one record in `FORMATS` (and one in `RUNTIMES`
where no existing one reads it), a builder in `export/builders/`, an opener in `runtime/`, and its extra in
pyproject.toml.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Format:
    """A file format of models."""

    name: str
    """As recipes and compress.json spell it."""
    files: tuple[str, ...]
    """Files of a folder that identify the format: where compress writes it, then where Hugging Face repositories do."""
    runtime: str
    """The default runtime."""
    hub_library: str | None = None
    """The model hub's `library_name`; None where it has none for it."""
    weights: tuple[str, ...] = ()
    """How the names of files with weights end, after the stem of the graph's name."""
    needs_weights: bool = False
    """Whether a graph without its first weight file is incomplete."""
    suffix: str | None = None
    """Suffix of bare model files; None where one file is not a model."""
    builder: str | None = None
    """`module:function`; None where a model folder already has this format."""
    source: str | None = None
    """The format it is converted from; None: the model folder."""
    usual: str = "fp32"
    """The precision that `compress export` makes without being asked for one."""
    version: int = 1
    """Raised when the builder's output changes, so that existing exports are rebuilt."""
    build_modules: Mapping[str, str] = field(default_factory=dict)
    """Modules that building imports, and the extra that provides each."""
    build_check: str | None = None
    """`module:function` that refuses a model folder or the builder's settings, before its source is built."""
    build_programs: Mapping[str, str | None] = field(default_factory=dict)
    """Programs that building runs; `module:function` decides by the build's settings whether one is needed, None: it
    always is."""
    minimum: Mapping[str, str] = field(default_factory=dict)
    """Distributions that can open it, and the lowest version of each; any one of them is enough. Of ONNX graphs that of
    the plainest: each file states its own (`runtimes`)."""
    devices: tuple[str, ...] = ("cpu",)
    """Devices on which an export of this format runs."""
    has_lstm: bool = True
    """Whether a model with an LSTM can have it."""
    has_attention: bool = True
    """Whether a transformer can have it; others are for students without attention, and compete for them unasked."""
    needs_task: bool = False
    """Whether a model has to state its task."""
    is_single: bool = True
    """Whether it holds one model, of which other formats can be made."""
    competes: bool = True
    """Whether its exports compete where a recipe's `export` names it; otherwise it is built after `select`, for winners
    only, unless the recipe says `{format: NAME, compete: true}`."""

    def weight_files(self, graph: Path) -> list[Path]:
        """Return the existing files of ``graph``'s weights, which include itself where it holds some."""
        return [path for end in self.weights if (path := graph.with_name(graph.stem + end)).is_file()]


FROM_PYTORCH: Mapping[str, str] = dict.fromkeys(("torch", "onnx", "optimum", "requests"), "train")
"""What every builder imports that reads a model folder; optimum needs requests without declaring it."""

FORMATS: Mapping[str, Format] = {
    each.name: each
    for each in (
        Format(
            name="onnx",
            files=("model.onnx", "onnx/model.onnx"),
            runtime="onnxruntime",
            hub_library="onnx",
            weights=(".onnx", ".onnx.data", ".onnx_data"),
            suffix=".onnx",
            builder="compress.export.builders.onnx:export_onnx",
            version=4,
            build_modules={**FROM_PYTORCH, "onnxscript": "train"},
            minimum={"onnxruntime": "1.19", "onnxruntime-gpu": "1.19"},
            devices=("cpu", "cuda"),
        ),
        Format(
            name="ort",
            files=("model.ort",),
            runtime="onnxruntime",
            hub_library="onnx",
            weights=(".ort",),
            suffix=".ort",
            builder="compress.export.builders.ort_format:export_ort",
            source="onnx",
            version=3,
            minimum={"onnxruntime": "1.19"},
            competes=False,
        ),
        Format(
            name="openvino",
            files=("openvino_model.xml", "openvino/openvino_model.xml"),
            runtime="openvino",
            hub_library="openvino",
            weights=(".bin",),
            needs_weights=True,
            suffix=".xml",
            builder="compress.export.builders.openvino:export_openvino",
            version=2,
            source="onnx",
            build_modules={"openvino": "openvino"},
            minimum={"openvino": "2025.0"},
        ),
        Format(
            name="executorch",
            files=("model.pte",),
            runtime="executorch",
            hub_library="executorch",
            weights=(".pte",),
            suffix=".pte",
            builder="compress.export.builders.executorch:export_executorch",
            version=2,
            build_modules={**FROM_PYTORCH, "executorch": "executorch"},
            has_lstm=False,
            minimum={"executorch": "1.5"},
            competes=False,
        ),
        Format(
            name="litert",
            files=("model.tflite",),
            runtime="litert",
            hub_library="litert",
            weights=(".tflite",),
            suffix=".tflite",
            builder="compress.export.builders.litert:export_litert",
            version=2,
            build_modules={**FROM_PYTORCH, "litert_torch": "litert"},
            minimum={"ai-edge-litert": "2.3"},
            competes=False,
        ),
        Format(
            name="numpy",
            files=("tables.safetensors",),
            runtime="numpy",
            weights=(".safetensors",),
            builder="compress.export.builders.numpy_tables:export_numpy",
            build_modules=FROM_PYTORCH,
            minimum={"numpy": "2.0"},
            has_attention=False,
        ),
        Format(
            name="torch",
            files=("config.json",),
            runtime="torch",
            hub_library="transformers",
            weights=(".safetensors", ".bin"),
            minimum={"torch": "2.11"},
            devices=("cpu", "cuda"),
        ),
        # Two folders, each of a format of its own.
        Format(name="cascade", files=("cascade.json",), runtime="cascade", is_single=False),
        # After the weights: a hub repository with both runs in full precision.
        Format(
            name="web",
            files=("onnx/model_quantized.onnx", "onnx/model.onnx"),
            runtime="onnxruntime",
            hub_library="transformers.js",
            weights=(".onnx",),
            builder="compress.export.web.export_web:export_web",
            version=2,
            source="onnx",
            usual="int8",
            build_modules={"onnx": "train"},
            build_check="compress.export.web.export_web:check_buildable",
            needs_task=True,
            build_programs={"node": None, "npm": "compress.export.web.npm_assets:must_download"},
            minimum={"onnxruntime": "1.19", "onnxruntime-gpu": "1.19"},
            competes=False,
        ),
    )
}
"""In the order in which a folder is searched: one with both a graph and weights runs as the graph."""

EXPORTS: Mapping[str, Format] = {name: each for name, each in FORMATS.items() if each.builder is not None}
"""What a recipe's `export` may name."""

BARE_FILES: Mapping[str, Format] = {each.suffix: each for each in FORMATS.values() if each.suffix is not None}
"""Formats of bare files, by suffix."""

WEIGHT_SUFFIXES = tuple(sorted({end for each in FORMATS.values() for end in each.weights}))
"""Endings of files that hold weights."""


def describe_bare_files() -> str:
    """Return `.onnx or .xml or …`, all suffixes of bare files."""
    return " or ".join(BARE_FILES)
