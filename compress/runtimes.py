"""The runtimes that execute models: one record each, as plain data; `compress.formats` lists what they read.

A new one is a record here and an opener in `runtime/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

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
