"""Model formats and the runtimes that execute them: one record each, as plain data.

Checks before a run, size of a model, model cards, command help, `compress ls variants`, environment reports and worker
processes derive what they need from these two tables. Adding a format is one record in `FORMATS` (and one in `RUNTIMES`
where no existing one reads it), a builder in `export/`, an opener in `runtime/`, and its extra in pyproject.toml.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

STORED_PRECISION = "unknown"
"""The precision of a file that does not say: computed as stored, never rounded further."""


@dataclass(frozen=True)
class RunMode:
    """One way in which a runtime executes an existing model, without building anything."""

    name: str
    precision: str
    devices: tuple[str, ...] | None = None
    """None: every device of the runtime."""
    default_on: tuple[str, ...] = ()
    """Devices on which a model folder competes in this mode without being requested."""


@dataclass(frozen=True)
class Runtime:
    """A library that executes models."""

    name: str
    opener: str
    """`module:function`, imported on first use: an exported model never loads torch."""
    formats: tuple[str, ...]
    """Formats it reads, its own first."""
    devices: tuple[str, ...]
    needs: str
    """Its requirements, in words."""
    modules: tuple[str, ...]
    """Modules it imports, which take long to load."""
    libraries: tuple[str, ...]
    """Distributions whose versions are part of a measurement."""
    extra: str | None = None
    """The extra that provides it; None: the base install, or something that no extra can provide."""
    modes: tuple[RunMode, ...] = ()
    tuner: str | None = None
    """`module:function` that chooses session options by timing for files of its own format; None: there are none."""


@dataclass(frozen=True)
class Format:
    """A file format of models."""

    name: str
    """As recipes and compress.json spell it."""
    files: tuple[str, ...]
    """Files of a folder that identify the format: where compress writes it, then where Hugging Face repositories do."""
    runtime: str
    """The default runtime."""
    hub_library: str
    """The model hub's `library_name`."""
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
    build_programs: Mapping[str, str | None] = field(default_factory=dict)
    """Programs that building runs; `module:function` decides by the build's settings whether one is needed, None: it
    always is."""
    minimum: Mapping[str, str] = field(default_factory=dict)
    """Distributions that can open it, and the lowest version of each; any one of them is enough."""
    devices: tuple[str, ...] = ("cpu",)
    """Devices on which an export of this format runs."""
    competes: bool = True
    """Whether its exports compete where a recipe's `export` names it; otherwise it is built after `select`, for winners
    only, unless the recipe says `{format: NAME, compete: true}`."""

    def weight_files(self, graph: Path) -> list[Path]:
        """Return the existing files of ``graph``'s weights, which include itself where it holds some."""
        return [path for end in self.weights if (path := graph.with_name(graph.stem + end)).is_file()]


_TORCH = Runtime(
    name="torch",
    opener="compress.runtime.torch_eager:open_torch",
    formats=("torch",),
    devices=("cpu", "cuda"),
    needs="PyTorch and transformers",
    modules=("torch", "transformers.modeling_utils"),
    libraries=("torch", "transformers"),
    extra="train",
    modes=(
        RunMode("torch-fp32", "fp32", default_on=("cpu", "cuda")),
        # On most CPUs bf16 in eager mode is slower than fp32; there it runs only on request.
        RunMode("torch-bf16", "bf16", default_on=("cuda",)),
        RunMode("torch-fp16", "fp16", devices=("cuda",), default_on=("cuda",)),
    ),
)

RUNTIMES: Mapping[str, Runtime] = {
    runtime.name: runtime
    for runtime in (
        _TORCH,
        replace(
            _TORCH,
            name="torch-compiled",
            opener="compress.runtime.torch_compiled:open_compiled",
            needs="PyTorch; a C++ compiler on the CPU, Triton on CUDA",
            libraries=("torch", "transformers", "triton"),
            modes=(
                # On a CPU compiling takes up to half a minute, for a tenth less time on a small encoder.
                RunMode("torch-compiled", "fp32"),
                RunMode("torch-compiled-bf16", "bf16", default_on=("cuda",)),
                RunMode("torch-compiled-fp16", "fp16", devices=("cuda",), default_on=("cuda",)),
            ),
        ),
        replace(
            _TORCH,
            name="torch-graph",
            opener="compress.runtime.torch_graph:open_graph",
            devices=("cuda",),
            needs="PyTorch and a CUDA device",
            modes=(
                RunMode("torch-graph-bf16", "bf16", default_on=("cuda",)),
                RunMode("torch-graph-fp16", "fp16", default_on=("cuda",)),
            ),
        ),
        Runtime(
            name="onnxruntime",
            opener="compress.runtime.onnx_runtime:open_onnx",
            formats=("onnx", "ort", "web"),
            devices=("cpu", "cuda"),
            needs="ONNX Runtime; on CUDA onnxruntime-gpu instead",
            modules=("onnxruntime",),
            libraries=("onnxruntime", "onnxruntime-gpu"),
            modes=(RunMode("onnxruntime", STORED_PRECISION),),
            tuner="compress.export.tune_ort_session:tune_session",
        ),
        Runtime(
            name="onnxruntime-tensorrt",
            opener="compress.runtime.onnx_tensorrt:open_tensorrt",
            formats=("onnx",),
            devices=("cuda",),
            needs="onnxruntime-gpu, TensorRT's own libraries and a CUDA device",
            modules=("onnxruntime",),
            libraries=("onnxruntime-gpu", "tensorrt"),
            modes=(RunMode("onnx-tensorrt", "fp16"),),
        ),
        Runtime(
            name="openvino",
            opener="compress.runtime.openvino_runtime:open_openvino",
            formats=("openvino", "onnx"),
            devices=("cpu",),
            needs="OpenVINO",
            modules=("openvino",),
            libraries=("openvino",),
            extra="openvino",
            modes=(RunMode("openvino", STORED_PRECISION), RunMode("openvino-bf16", "bf16")),
        ),
        Runtime(
            name="executorch",
            opener="compress.runtime.executorch_runtime:open_executorch",
            formats=("executorch",),
            devices=("cpu",),
            needs="ExecuTorch and PyTorch",
            modules=("torch", "executorch.extension.pybindings._C"),
            libraries=("executorch",),
            extra="executorch",
        ),
        Runtime(
            name="litert",
            opener="compress.runtime.litert_runtime:open_litert",
            formats=("litert",),
            devices=("cpu",),
            needs="ai-edge-litert",
            modules=("ai_edge_litert.interpreter",),
            libraries=("ai-edge-litert",),
            extra="litert-runtime",
        ),
    )
}

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
            builder="compress.export.onnx:export_onnx",
            version=3,
            build_modules=dict.fromkeys(("torch", "onnx", "onnxscript", "optimum", "requests"), "train"),
            minimum={"onnxruntime": "1.23", "onnxruntime-gpu": "1.23"},
            devices=("cpu", "cuda"),
        ),
        Format(
            name="ort",
            files=("model.ort",),
            runtime="onnxruntime",
            hub_library="onnx",
            weights=(".ort",),
            suffix=".ort",
            builder="compress.export.ort_format:export_ort",
            source="onnx",
            version=2,
            minimum={"onnxruntime": "1.23"},
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
            builder="compress.export.openvino:export_openvino",
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
            builder="compress.export.executorch:export_executorch",
            build_modules={"torch": "train", "executorch": "executorch"},
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
            builder="compress.export.litert:export_litert",
            build_modules={"torch": "train", "litert_torch": "litert"},
            minimum={"ai-edge-litert": "2.3"},
            competes=False,
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
        # After the weights: a hub repository with both runs in full precision.
        Format(
            name="web",
            files=("onnx/model_quantized.onnx", "onnx/model.onnx"),
            runtime="onnxruntime",
            hub_library="transformers.js",
            weights=(".onnx",),
            builder="compress.export.web.export_web:export_web",
            source="onnx",
            usual="int8",
            build_modules={"onnx": "train"},
            build_programs={"node": None, "npm": "compress.export.web.npm_assets:must_download"},
            minimum={"onnxruntime": "1.23", "onnxruntime-gpu": "1.23"},
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
    """Return `.onnx or .xml`."""
    return " or ".join(BARE_FILES)
