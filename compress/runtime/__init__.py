"""Opens any model folder or variant as a Predictor: arrays in, arrays out. Each runtime has one file.

The runtimes are listed in `compress.runtimes.RUNTIMES`. session.json holds session options that were chosen by timing,
and the processor they were chosen on.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ValidationError

from compress.environment import describe_cpu, unmet_minimum
from compress.errors import DeviceUnavailable, ModelError, first_error, nearest
from compress.model_folder.model_info import VariantInfo
from compress.runtime.model_formats import RUN_MODES, ModelFile, describe_model_file
from compress.runtime.predictor import ONE_THREAD, Placement, Predictor
from compress.runtimes import RUNTIMES, STORED_PRECISION, Runtime
from compress.storage.stored_info import Info, up_to

if TYPE_CHECKING:
    from compress.runtime.text_model import TextModel


SESSION_FILE = "session.json"


class TunedSession(Info):
    """The fastest session options of one variant on one processor."""

    schema_version: Annotated[int, up_to(1)] = 1
    processor: str
    instructions: tuple[str, ...] | None
    """Instruction sets of the processor that decide about speed."""
    runtime: str
    version: str
    """The runtime's version when they were chosen."""
    options: Mapping[str, Any] = {}
    milliseconds: tuple[float, ...] = ()
    """Median time of one call with each candidate, the default first."""
    threads: int = 1
    batch: int = 1


def tuned_options(folder: Path) -> Mapping[str, Any]:
    """Return the session options in ``folder``'s session.json if they were chosen on this kind of processor."""
    path = folder / SESSION_FILE
    if not path.is_file():
        return {}
    try:
        tuned = TunedSession.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ModelError(f"{path} cannot be read: {first_error(error)}") from error
    cpu = describe_cpu()
    return tuned.options if (tuned.processor, tuned.instructions) == (cpu.model, cpu.instructions) else {}


__all__ = ["RUN_MODES", "Placement", "Predictor", "open", "open_predictor", "runtime_of"]


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
    model_file = describe_model_file(folder, runtime_of(variant).formats if variant else ())
    chosen = _choose_variant(model_file, variant)
    _check_requirements(model_file, chosen, placement)
    runtime = runtime_of(chosen)
    if runtime.tuner is not None:
        chosen = chosen.model_copy(update={"session": {**tuned_options(folder), **chosen.session}})
    predictor: Predictor = resolve_name(runtime.opener)(model_file, chosen, placement)
    return predictor


def open(folder: str | Path, placement: Placement | None = None) -> TextModel:
    """Open a folder for texts: ``compress.open("winner/cpu").predict(["a text"])``; loads torch only where needed.

    Threads may share what it returns: ``predict`` changes nothing in it, and runtimes take calls from any thread. Calls
    of several threads run side by side, each on the placement's threads. A process that was forked opens its own.

    Args:
        folder: a model folder or an exported one.
        placement: where it runs; None: `default_placement`.
    """
    from compress.runtime.text_model import TextModel

    return TextModel.open(Path(folder), placement or default_placement(Path(folder)))


def default_placement(folder: Path) -> Placement:
    """Return one CPU thread, or CUDA where the runtime of the model in ``folder`` supports nothing else."""
    devices = runtime_of(describe_model_file(folder).variant).devices
    return ONE_THREAD if "cpu" in devices else Placement("cuda")


def runtime_of(variant: VariantInfo) -> Runtime:
    """Return the runtime that executes ``variant``."""
    if variant.runtime not in RUNTIMES:
        raise ModelError(f"no runtime is called '{variant.runtime}'{nearest(variant.runtime, RUNTIMES)}")
    return RUNTIMES[variant.runtime]


def _choose_variant(model_file: ModelFile, variant: VariantInfo | None) -> VariantInfo:
    """Return the variant to run: the folder's own one where it states one, with the session options of ``variant``."""
    own = model_file.info.variant if model_file.info else None
    if variant is None:
        return model_file.variant
    if own is None:
        return variant
    if own.name == variant.name:
        return own.model_copy(update={"session": {**own.session, **variant.session}})
    if variant.name not in RUN_MODES:
        raise ModelError(f"{model_file.path} holds {own.name} and cannot run as {variant.name}.")
    if variant.precision != STORED_PRECISION:
        return variant
    return own if variant.runtime == own.runtime else variant.model_copy(update={"precision": own.precision})


def _check_requirements(model_file: ModelFile, variant: VariantInfo, placement: Placement) -> None:
    """Refuse a model that its runtime cannot read, or that needs what this machine does not have."""
    runtime, path = runtime_of(variant), model_file.path
    if model_file.format not in runtime.formats:
        raise ModelError(
            f"{path} is in the format {model_file.format}; {runtime.name} reads {' and '.join(runtime.formats)}.",
            hint=f"compress export {path} OUT --format {runtime.formats[0]}" if model_file.format == "torch" else None,
        )
    if placement.device not in runtime.devices:
        raise DeviceUnavailable(f"{runtime.name} runs on {' and '.join(runtime.devices)}, not on {placement.device}.")
    available = describe_cpu().instructions
    missing = [name for name in variant.instructions if available is not None and name not in available]
    if missing:
        raise DeviceUnavailable(f"{path} needs CPU instructions that this processor lacks: {', '.join(missing)}.")
    if outdated := unmet_minimum(variant.libraries):
        raise DeviceUnavailable(f"{path} needs {outdated}.", hint="upgrade it, or export the model again")
