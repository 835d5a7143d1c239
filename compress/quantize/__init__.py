"""Quantizes exported models to INT8, one method a file; each result is compared with the model it came from.

Adding a method is one file with a builder, one record in `QUANTIZERS`, a test and a row in the docs.
"""

import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from compress.console import Console
from compress.errors import UsageError, nearest
from compress.export.build_context import BuildContext, Variant, named_folders
from compress.formats import FORMATS, FROM_PYTORCH
from compress.model_folder.model_info import read_info
from compress.runtimes import MICROSOFT, least_release
from compress.storage.atomic_write import copy_content


def _for_onnx_runtime(method: str, name: str, builder: str, **further: Any) -> Variant:
    """The record of a method that makes one ONNX graph from another."""
    record: dict[str, Any] = {
        "name": name,
        "format": "onnx",
        "precision": "int8",
        "method": method,
        "runtime": "onnxruntime",
        "libraries": FORMATS["onnx"].minimum,
        "devices": ("cpu",),
        "needs": "onnx-fp32",
        "builder": f"compress.quantize.{builder}",
        "quantizer": method,
        "leaves_fp32": True,
        "build_modules": {"onnx": "train"},
    }
    return Variant(**record | further)


def _for_openvino(method: str, name: str, builder: str, **further: Any) -> Variant:
    """The record of a method of NNCF, which makes an OpenVINO model from an ONNX graph."""
    return Variant(
        name=name,
        format="openvino",
        precision="int8",
        method=method,
        runtime="openvino",
        libraries=FORMATS["openvino"].minimum,
        batch_sensitive=False,
        calibrated=True,
        devices=("cpu",),
        needs="onnx-fp32",
        builder=f"compress.quantize.nncf:{builder}",
        quantizer=method,
        build_modules={"openvino": "openvino", "nncf": "openvino"},
        **further,
    )


_XNNPACK = Variant(
    name="executorch-int8",
    format="executorch",
    precision="int8",
    method="xnnpack",
    runtime="executorch",
    libraries=FORMATS["executorch"].minimum,
    batch_sensitive=False,
    devices=("cpu",),
    compared_with="executorch-fp32",
    builder="compress.quantize.xnnpack:quantize_xnnpack",
    quantizer="xnnpack",
    build_modules={**FROM_PYTORCH, "executorch": "executorch", "torchao": "executorch"},
)


def _for_numpy(bits: int) -> Variant:
    """The record of tables of so many bits, for models without attention."""
    return Variant(
        name="numpy-int8" if bits == 8 else f"numpy-int8-{bits}bit",
        format="numpy",
        precision="int8",
        method=f"rows-{bits}bit",
        runtime="numpy",
        libraries=FORMATS["numpy"].minimum,
        batch_sensitive=False,
        devices=("cpu",),
        needs="numpy-fp32",
        builder=f"compress.quantize.rows:quantize_rows_{bits}bit",
        quantizer=f"rows-{bits}bit",
        build_modules={"onnx": "train", "safetensors": "train"},
    )


_AI_EDGE = Variant(
    name="litert-int8",
    format="litert",
    precision="int8",
    method="ai-edge",
    runtime="litert",
    libraries=FORMATS["litert"].minimum,
    batch_sensitive=False,
    devices=("cpu",),
    needs="litert-fp32",
    builder="compress.quantize.ai_edge:quantize_ai_edge",
    quantizer="ai-edge",
    build_modules={"ai_edge_quantizer": "litert"},
)

GATHER_4BIT = f"{MICROSOFT}GatherBlockQuantized"
"""The operator that reads word vectors of 4 bits; models with a small vocabulary have none."""

# On CUDA every product would travel to the CPU and back.
_NOT_ON_CUDA = {"cuda": "ONNX Runtime has no kernels for dynamic INT8 on CUDA"}

QUANTIZERS: Mapping[str, Variant] = {
    str(variant.quantizer): variant
    for variant in (
        _for_onnx_runtime(
            "dynamic",
            "onnx-int8",
            "dynamic:quantize_int8_dynamic",
            version=3,
            batch_sensitive=True,
            graph_builder="compress.quantize.dynamic:quantize_int8_dynamic_model",
            absent=_NOT_ON_CUDA,
        ),
        _for_onnx_runtime(
            "unsigned",
            "onnx-int8-unsigned",
            "unsigned:quantize_unsigned",
            version=2,
            batch_sensitive=True,
            absent=_NOT_ON_CUDA,
        ),
        _for_onnx_runtime(
            "embeddings-4bit",
            "onnx-int8-embeddings-4bit",
            "embeddings_4bit:quantize_embeddings_4bit",
            version=3,
            batch_sensitive=True,
            absent=_NOT_ON_CUDA,
            libraries=dict.fromkeys(FORMATS["onnx"].minimum, least_release((GATHER_4BIT,))),
            operators=(GATHER_4BIT,),
        ),
        *(
            _for_onnx_runtime(
                f"static-{ranges}",
                f"onnx-int8-{ranges}",
                "static:quantize_int8_static",
                batch_sensitive=False,
                calibrated=True,
            )
            for ranges in ("minmax", "entropy", "percentile")
        ),
        _for_onnx_runtime(
            "neural-compressor",
            "onnx-int8-neural-compressor",
            "neural_compressor:quantize_neural_compressor",
            batch_sensitive=False,
            calibrated=True,
            needs=None,
            leaves_fp32=False,
            compared_with="onnx-fp32",
            reads=("max_drop",),
            build_modules={
                **FROM_PYTORCH,
                "onnxscript": "train",
                "neural_compressor": "neural-compressor",
                "torchao": "neural-compressor",
            },
        ),
        _for_openvino("nncf", "openvino-int8", "quantize_nncf"),
        _for_openvino(
            "nncf-accuracy",
            "openvino-int8-accuracy",
            "quantize_nncf_accuracy",
            version=2,
            reads=("max_drop",),
            scores_train=True,
        ),
        _XNNPACK,
        _AI_EDGE,
        _for_numpy(8),
        _for_numpy(4),
    )
}
"""By the name in a recipe's `quantize.methods`: the variant it makes."""

AUTOMATIC = "int8"
CHOICES: Mapping[str, Sequence[str]] = {
    AUTOMATIC: ("dynamic", "static-minmax", "embeddings-4bit", "nncf", "xnnpack", "ai-edge")
}
"""Names that stand for several methods, the first of which is for every model and the others for the final one."""
WITHOUT_ATTENTION: Mapping[str, Sequence[str]] = {AUTOMATIC: ("rows-8bit", "rows-4bit")}
"""What they stand for in a model without attention, whose products are too small to gain from integers."""


def chosen_methods(names: Sequence[str], formats: Collection[str], *, has_attention: bool = True) -> tuple[str, ...]:
    """Return the methods that a recipe's `quantize.methods` names for a model, without repetition.

    Of the methods that `int8` means, those for formats that the recipe exports. Methods named one by one are all
    returned, but those of files that only models without attention can have, for a model that ``has_attention``.
    """
    methods: list[str] = []
    choices = CHOICES if has_attention else WITHOUT_ATTENTION
    for name in names:
        meant = [each for each in choices[name] if QUANTIZERS[each].format in formats] if name in choices else [name]
        methods += [each for each in meant if FORMATS[QUANTIZERS[each].format].has_attention or not has_attention]
    return tuple(dict.fromkeys(methods))


def quantize_folder(
    exported: str | Path, folder: str | Path, *, method: str = "dynamic", console: Console | None = None
) -> Path:
    """Quantize an exported folder into another one: ``quantize_folder("model-onnx", "model-int8")``.

    Args:
        exported: a folder written by an export.
        folder: where to write; created if it does not exist.
        method: a key of `QUANTIZERS` that needs no sample rows.
        console: receives progress and warnings.
    """
    from compress.export.comparison.parity_check import check_golden

    if method not in QUANTIZERS:
        raise UsageError(f"no quantizer is called '{method}'{nearest(method, QUANTIZERS)}")
    quantized, variant = QUANTIZERS[method], read_info(Path(exported)).variant
    if (variant.name if variant else None) != quantized.needs:
        wanted = f"an exported model ({quantized.needs})" if quantized.needs else "a model folder"
        raise UsageError(f"{method} quantizes {wanted}, and {exported} holds none.")
    with tempfile.TemporaryDirectory(prefix="compress-quantize-") as scratch:
        with named_folders({Path(scratch): str(folder)}):
            context = BuildContext(quantized.info, Path(exported), Path(scratch), console=console or Console("quiet"))
            quantized.make(context)
        copy_content(Path(scratch), Path(folder))
    check = check_golden(Path(folder))
    if check.misses and console:
        console.warn(check.verdict(Path(folder)))
    return Path(folder)
