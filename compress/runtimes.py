"""The runtimes that execute models, one record each as plain data, and the releases of ONNX Runtime that open a graph.

A new runtime is a record here and an opener in `runtime/`; `compress.formats` lists what they read. The oldest ONNX
Runtime that opens a graph, and the build that transformers.js loads in browsers, follow from the graph's operators, its
opset and the version of its file (IR). The tables were measured by opening exports of every family, by every method, in
the wheels of ONNX Runtime from 1.17 on and in Node.js; the test of this module builds the files again and compares them
with the tables.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from compress.errors import nearest

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
    int8_is_faster: bool = True
    """Whether it computes in INT8; else such files are smaller alone."""


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
            name="numpy",
            opener="compress.runtime.numpy_runtime:open_numpy",
            formats=("numpy",),
            devices=("cpu",),
            needs="nothing else",
            modules=(),
            libraries=("numpy",),
            int8_is_faster=False,
        ),
        Runtime(
            name="cascade",
            opener="compress.runtime.cascade:open_both",
            formats=("cascade",),
            devices=("cpu",),
            needs="what its two models need",
            modules=(),
            libraries=("numpy",),
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


RELEASES: Sequence[tuple[str, int, int]] = (("1.19", 21, 10), ("1.21", 22, 10), ("1.23", 23, 11))
"""Releases of ONNX Runtime that raised the highest opset and IR they read, with both. What 1.19 reads was not read
before: 1.17 has neither IR 10 nor the operator Gelu, and 1.18 aborts while it optimizes ModernBERT."""

OLDEST = RELEASES[0][0]
"""The oldest release in which any export is known to run."""

MICROSOFT = "com.microsoft."
"""How operators that are not of the ONNX standard begin in compress.json."""

CONTRIBUTED = {
    # 1.20 to 1.22 have it for ONNX's own 4-bit types only, and lack the attribute `bits`.
    f"{MICROSOFT}GatherBlockQuantized": "1.23",
    # Fused by ONNX Runtime itself in files of the ORT format.
    **dict.fromkeys(
        [
            f"{MICROSOFT}{name}"
            for name in ("BiasGelu", "DynamicQuantizeMatMul", "FusedGemm", "FusedMatMul", "MatMulIntegerToFloat")
        ],
        OLDEST,
    ),
}
"""Operators beyond the standard that our files have, and the release in which they run as we write them."""

WEB = "web"
"""The ONNX Runtime Web that transformers.js 4.3.1 loads in browsers. Unlike the build of our own page it has few
operators beyond the standard, and GatherBlockQuantized is not among them."""

EVERYWHERE = ("onnxruntime-1.20", WEB)
"""Where the root of a published entry runs, if any variant that passed the gate does."""

NAME = re.compile(r"onnxruntime-(\d+\.\d+)")


def least_release(operators: Collection[str], ir: int = 0, installed: str = "") -> str:
    """Return the oldest ONNX Runtime that runs a graph.

    Args:
        operators: as compress.json lists them, with the `opset 20`.
        ir: the IR version of its file; 0 where there is none to read.
        installed: the release in which it is known to run, for what the tables do not list.
    """
    opset = next((int(name.removeprefix("opset ")) for name in operators if name.startswith("opset ")), 0)
    reading = next((name for name, highest, newest in RELEASES if opset <= highest and ir <= newest), installed)
    contributed = [CONTRIBUTED.get(name, installed) for name in operators if name.startswith(MICROSOFT)]
    return max(OLDEST, reading, *contributed, key=_numbers)


def check_runs_in(name: str) -> str:
    """Return the name of a runtime if a recipe's `runs_in` may hold it; raise ValueError otherwise."""
    if name != WEB and not NAME.fullmatch(name):
        examples = (WEB, *(f"onnxruntime-{release}" for release in ("1.19", "1.20", "1.23")))
        raise ValueError(
            f"no runtime is called '{name[:60]}'{nearest(name, examples)}; any release of ONNX Runtime may be named"
        )
    return name


def why_not_in(name: str, form: str, operators: Collection[str], stated: str | None = None) -> str | None:
    """Return why a file does not run in a runtime that `check_runs_in` accepts; None where it does.

    Args:
        name: of the runtime.
        form: the file's format, a key of `formats.FORMATS`.
        operators: of its graph; empty where it is unknown.
        stated: the oldest ONNX Runtime that its folder states, for files without operators.
    """
    if form not in (("onnx", "web") if name == WEB else ("onnx", "ort", "web")):
        return f"{name} reads no {form}"
    if name == WEB:
        lacking = [each for each in operators if each.startswith(MICROSOFT)]
        return f"{name} has no {' and no '.join(lacking)}" if lacking else None
    least = least_release(operators, installed=stated or "") if operators else stated or OLDEST
    wanted = name.removeprefix("onnxruntime-")
    return f"{name} is too old: it needs ONNX Runtime {least}" if _numbers(least) > _numbers(wanted) else None


def why_not_in_all(
    names: Sequence[str], form: str, operators: Collection[str], stated: str | None = None
) -> str | None:
    """Return why a file does not run in one of several runtimes, the first that fails; None where it runs in all."""
    return next(filter(None, (why_not_in(name, form, operators, stated) for name in names)), None)


def _numbers(release: str) -> tuple[int, ...]:
    """Return `(1, 23)` for `1.23.2`: files depend on releases, not on their patches."""
    return tuple(int(digits) for digits in release.split(".")[:2] if digits.isdigit())
