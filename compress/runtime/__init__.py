"""Opens any model folder or variant as a Predictor: arrays in, arrays out. Each runtime has one file.

The runtimes are listed in `compress.formats.RUNTIMES`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from compress.environment import describe_cpu, unmet_minimum
from compress.errors import DeviceUnavailable, ModelError, nearest
from compress.formats import FORMATS, RUNTIMES, STORED_PRECISION, Runtime
from compress.model_info import FolderInfo, VariantInfo
from compress.runtime.model_formats import (
    RUN_MODES,
    ModelFile,
    describe_model_file,
    run_mode_named,
)
from compress.runtime.predictor import ONE_THREAD, Placement, Predictor, TimedOnDevice
from compress.runtime.session_options import tuned_options

if TYPE_CHECKING:
    from compress.runtime.text_model import TextModel

__all__ = [
    "RUNTIMES",
    "RUN_MODES",
    "ModelFile",
    "Place",
    "Placement",
    "Predictor",
    "Runtime",
    "TimedOnDevice",
    "describe_model_file",
    "open",
    "open_predictor",
    "run_mode_named",
    "runtime_of",
]

Place = Placement
"""The name that model cards of earlier versions import."""

Opener = Callable[[Path, FolderInfo | None, VariantInfo, Placement], Predictor]


def open_predictor(folder: Path, placement: Placement = ONE_THREAD, variant: VariantInfo | None = None) -> Predictor:
    """Load a model folder, an exported one, a plain Hugging Face folder or a bare model file.

    Args:
        folder: a folder that holds weights, or a file with a suffix of `formats.BARE_FILES`.
        placement: the device and the number of threads.
        variant: how it runs: a model folder in fp32 by default, or in any of `RUN_MODES` of torch. An exported folder
            states its own variant; requesting another one is an error, but another runtime that reads its format may
            run it (``RUN_MODES["openvino"]`` for ONNX). Session options of ``variant`` are added to the folder's own,
            and so are those that `tune` chose for this processor.
    """
    found = describe_model_file(folder, runtime_of(variant).formats if variant else ())
    chosen = _choose_variant(found, variant)
    runtime = runtime_of(chosen)
    if found.format not in runtime.formats:
        readable = " and ".join(runtime.formats)
        raise ModelError(
            f"{folder} is a model in the format {found.format}; {chosen.runtime} reads {readable}.",
            _export_hint(found, runtime),
        )
    if placement.device not in runtime.devices:
        raise DeviceUnavailable(f"{chosen.runtime} runs on {' and '.join(runtime.devices)}, not on {placement.device}.")
    _check_requirements(folder, chosen)
    if runtime.tuner is not None:
        chosen = chosen.model_copy(update={"session": {**tuned_options(folder), **chosen.session}})
    opener: Opener = resolve_name(runtime.opener)
    return opener(folder, found.info, chosen, placement)


def open(folder: str | Path, placement: Placement | None = None) -> TextModel:
    """Open a folder for texts: ``compress.open("winner/cpu").predict(["a text"])``; loads torch only where needed.

    Args:
        folder: a model folder or an exported one.
        placement: where it runs; by default on one CPU thread, or on CUDA where its runtime supports nothing else.
    """
    from compress.runtime.text_model import TextModel

    return TextModel.open(Path(folder), placement=placement or _default_placement(Path(folder)))


def _default_placement(folder: Path) -> Placement:
    devices = runtime_of(describe_model_file(folder).variant).devices
    return ONE_THREAD if "cpu" in devices else Placement("cuda")


def runtime_of(variant: VariantInfo) -> Runtime:
    """Return the runtime that executes ``variant``."""
    if variant.runtime not in RUNTIMES:
        raise ModelError(f"no runtime is called '{variant.runtime}'{nearest(variant.runtime, RUNTIMES)}")
    return RUNTIMES[variant.runtime]


def _export_hint(found: ModelFile, runtime: Runtime) -> str | None:
    """Return the command that converts a model folder into a format of ``runtime``; None where there is none."""
    readable = [name for name in runtime.formats if FORMATS[name].builder]
    if found.format != "torch" or not readable:
        return None
    return f"compress export {found.path} OUT --as {readable[0]}"


def _choose_variant(found: ModelFile, variant: VariantInfo | None) -> VariantInfo:
    """Return the variant to run: the folder's own one where it states one, with the session options of ``variant``."""
    own = found.info.variant if found.info else None
    if variant is None:
        return found.variant
    if own is None:
        return variant
    if own.name == variant.name:
        return own.model_copy(update={"session": {**own.session, **variant.session}})
    as_stored = variant.precision == STORED_PRECISION
    if as_stored and variant.runtime == own.runtime:
        return own
    if variant.name in RUN_MODES and found.format in runtime_of(variant).formats:
        return variant.model_copy(update={"precision": own.precision}) if as_stored else variant
    raise ModelError(f"{found.path} holds {own.name} and cannot run as {variant.name}.")


def _check_requirements(folder: Path, variant: VariantInfo) -> None:
    """Refuse a folder that needs CPU instructions or library versions which this machine does not have."""
    available = describe_cpu().instructions if variant.instructions else None
    missing = [name for name in variant.instructions if available is not None and name not in available]
    if missing:
        raise DeviceUnavailable(f"{folder} needs CPU instructions that this processor lacks: {', '.join(missing)}.")
    outdated = unmet_minimum(variant.libraries)
    if outdated:
        raise DeviceUnavailable(f"{folder} needs {outdated}.", hint="upgrade it, or export the model again")
