"""TensorRT inside ONNX Runtime: fp16 engines for NVIDIA GPUs, built for this device when a model is first opened."""

import json
from collections.abc import Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path

from compress.errors import DeviceUnavailable, ModelError
from compress.model_folder.model_info import VariantInfo
from compress.runtime.model_formats import ModelFile
from compress.runtime.onnx_runtime import PROVIDERS, OnnxPredictor, Provider, check_provider, make_session
from compress.runtime.predictor import ONE_THREAD, Placement
from compress.storage.file_digests import combined_digest, file_digest
from compress.storage.file_names import cache_folder

PROVIDER = "TensorrtExecutionProvider"

USUAL = (8, 64)
"""Rows and tokens for which kernels are chosen; other shapes run with the same ones."""
LARGEST_BATCH = 64
"""Rows that one engine takes at most. An engine holds memory for its largest batch, and one without bounds of its own
would be built anew, for minutes, whenever a shape is larger than all before."""
LONGEST = 512
"""Most tokens of a text in one engine, where the model's config.json does not limit them."""


def open_tensorrt(model_file: ModelFile, variant: VariantInfo, placement: Placement) -> OnnxPredictor:
    """Open an exported folder or a bare ONNX file; the first time takes minutes, later ones read the cached engine."""
    check_provider(PROVIDER)
    if variant.precision not in ("fp16", "fp32"):
        raise ModelError(f"onnxruntime-tensorrt runs in fp16 or fp32, not in {variant.precision}.")
    names = [given.name for given in make_session(model_file.file, ONE_THREAD, {}).get_inputs()]
    chosen = (engine(model_file.file, names, _longest(model_file.file.parent), variant.precision), *PROVIDERS["cuda"])
    return OnnxPredictor(make_session(model_file.file, placement, variant.session, chosen), placement, variant)


def engine(file: Path, inputs: Sequence[str], longest: int, precision: str) -> Provider:
    """Return the provider with bounds for its shapes; engines are cached by the content of the model."""
    content = {"graph": file_digest(file)} | {path.name: file_digest(path) for path in weights_beside(file)}
    cache = cache_folder() / "tensorrt" / combined_digest(content)[:16]
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DeviceUnavailable(
            f"TensorRT engines cannot be cached: {error}.", hint="COMPRESS_CACHE names another folder for such files"
        ) from error
    rows, tokens = USUAL
    bounds = {"min": (1, 1), "opt": (rows, min(tokens, longest)), "max": (LARGEST_BATCH, longest)}
    options = {
        "trt_fp16_enable": str(precision == "fp16"),
        "trt_layer_norm_fp32_fallback": "True",  # sums of squares overflow fp16
        "trt_engine_cache_enable": "True",
        "trt_engine_cache_path": str(cache),
        "trt_timing_cache_enable": "True",
        "trt_timing_cache_path": str(cache),
    }
    for name, (count, length) in bounds.items():
        options[f"trt_profile_{name}_shapes"] = ",".join(f"{given}:{count}x{length}" for given in inputs)
    return PROVIDER, options


def weights_beside(file: Path) -> list[Path]:
    """Return the files in the graph's folder that it names: a large model has its weights there, under any name."""
    others = [path for path in sorted(file.parent.iterdir()) if path.is_file() and path != file]
    with file.open("rb") as stream, mmap(stream.fileno(), 0, access=ACCESS_READ) as graph:
        return [path for path in others if graph.find(path.name.encode()) >= 0]


def _longest(folder: Path) -> int:
    """Return the longest text of the engine: at most the model's positions."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return min(LONGEST, int(config["max_position_embeddings"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return LONGEST
