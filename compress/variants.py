"""The table of variants: format × precision × method, how each is built, and which of them a recipe's `export` names.

It is derived from the tables of formats, runtimes and quantizers; adding one of those adds its variant. This module is
light: builders are imported when they are called.
"""

import shutil
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import Any

from compress.errors import Problem, UsageError, nearest
from compress.export.build_context import Variant
from compress.formats import EXPORTS, FORMATS
from compress.quantize import QUANTIZERS
from compress.recipe.schema import Export, Recipe
from compress.runtime.model_formats import RUN_MODES, export_variant
from compress.runtimes import RUNTIMES

__all__ = [
    "ALL_FORMATS",
    "EXPORTS",
    "QUANTIZERS",
    "VARIANTS",
    "Variant",
    "describe_missing",
    "missing_extras",
    "missing_programs",
    "variant_in",
    "variants_for",
]

ALL_FORMATS = "all"
"""Names every format that can be built here."""


FURTHER: tuple[Variant, ...] = (
    # TensorRT's libraries are on few machines, and its engines take minutes: built on request only.
    Variant(
        **dict(RUN_MODES["onnx-tensorrt"]),
        devices=("cuda",),
        needs="onnx-fp32",
        builder="compress.export.builders.tensorrt:export_tensorrt",
        on_request=True,
    ),
    *(
        Variant(
            name=f"{form}-int8",
            format=form,
            precision="int8",
            runtime="onnxruntime",
            libraries=FORMATS[form].minimum,
            devices=("cpu",),
            needs="onnx-int8",
            compared_with="onnx-fp32",
            builder=FORMATS[form].builder,
            version=FORMATS[form].version,
            quantizer=QUANTIZERS["dynamic"].quantizer,
            batch_sensitive=True,
            build_modules=FORMATS[form].build_modules,
        )
        for form in ("ort", "web")
    ),
    # It computes in fp32 as openvino-fp32 does: all it gains is a smaller file, and that of INT8 is smaller still.
    Variant(
        name="openvino-fp16",
        format="openvino",
        precision="fp16",
        runtime="openvino",
        libraries=FORMATS["openvino"].minimum,
        batch_sensitive=False,
        devices=("cpu",),
        needs="onnx-fp32",
        builder="compress.export.builders.openvino:export_openvino_fp16",
        build_modules=FORMATS["openvino"].build_modules,
        on_request=True,
    ),
)
"""Variants of exports that are neither their format's fp32 nor made by a quantizer of it."""


def _variants() -> Iterator[Variant]:
    """Yield the run modes of model folders, then each export format's variants; sources come first."""
    for runtime in RUNTIMES.values():
        if FORMATS[runtime.formats[0]].builder is None:
            for mode in runtime.modes:
                info = dict(RUN_MODES[mode.name])
                yield Variant(**info, devices=mode.devices or runtime.devices, default_on=mode.default_on)
    for name, each in EXPORTS.items():
        yield Variant(
            **dict(export_variant(name)),
            devices=each.devices,
            needs=export_variant(each.source).name if each.source else None,
            builder=each.builder,
            version=each.version,
            build_modules=each.build_modules,
        )
        yield from (variant for variant in QUANTIZERS.values() if variant.format == name)
        yield from (variant for variant in FURTHER if variant.format == name)


VARIANTS: dict[str, Variant] = {variant.name: variant for variant in _variants()}


def variants_for(
    formats: Iterable[str], quantizers: Iterable[str], devices: Iterable[str], also: Iterable[str] = ()
) -> list[Variant]:
    """Return the variants that compete: those of the devices, of each export format, and their quantized ones.

    A variant's source, and the one that it is compared with, come before it and compete too.

    Args:
        formats: keys of `EXPORTS`.
        quantizers: keys of `QUANTIZERS`.
        devices: where the variants are to run.
        also: names of further variants that compete.
    """
    exports, methods, present = list(formats), list(quantizers), set(devices)
    for name in exports:
        _check_name("export format", name, EXPORTS)
    for name in methods:
        _check_name("quantizer", name, QUANTIZERS)
        if (needed := QUANTIZERS[name].format) not in exports:
            entry = needed if FORMATS[needed].competes else f"{{format: {needed}, compete: true}}"
            raise UsageError(f"quantize: {name} makes {needed} files; add {entry} to export.")
    requested = {name: VARIANTS[name] for name in also}
    for variant in requested.values():
        if present and present.isdisjoint(variant.devices):
            able, wanted = " and ".join(variant.devices), " and ".join(sorted(present))
            raise UsageError(f"variants: {variant.name} runs on {able}; the targets run on {wanted}.")
    chosen = {name for name, variant in VARIANTS.items() if _competes(variant, exports, methods, present)}
    chosen |= set(requested)
    for variant in reversed(VARIANTS.values()):  # sources come first in the table
        if variant.name in chosen:
            chosen.update(name for name in (variant.needs, variant.compared_with) if name)
    return [variant for name, variant in VARIANTS.items() if name in chosen]


def variant_in(form: str, precision: str) -> Variant:
    """Return the variant that the format ``form`` is built as in a precision: its first one, or that in fp32."""
    built = [each for each in VARIANTS.values() if each.format == form and each.builder and not each.on_request]
    first = {each.precision: each for each in reversed(built)}
    return first.get(precision) or first.get("fp32") or built[0]


def missing_extras(form: str) -> dict[str, str]:
    """Return the modules that building the format ``form`` needs and are not installed, with their extras."""
    each = FORMATS[form]
    needed = dict(each.build_modules) | (missing_extras(each.source) if each.source else {})
    return {module: extra for module, extra in needed.items() if find_spec(module) is None}


def missing_programs(form: str, settings: Mapping[str, Any] | None = None) -> list[str]:
    """Return the programs that building the format ``form`` with these settings runs and that are not installed."""
    return [
        program
        for program, is_needed in FORMATS[form].build_programs.items()
        if shutil.which(program) is None and (is_needed is None or resolve_name(is_needed)(settings or {}))
    ]


def describe_missing(modules: Mapping[str, str], programs: Iterable[str] = ()) -> str:
    """Return what is not installed and how to get it: `node; executorch; pip install 'compress-encoders[executorch]'`.

    Args:
        modules: missing modules, with the extra that provides each.
        programs: missing programs.
    """
    extras = ",".join(sorted(set(modules.values())))
    libraries = f"{', '.join(modules)}; pip install 'compress-encoders[{extras}]'" if modules else ""
    return "; ".join(filter(None, [", ".join(programs), libraries]))


def _competes(variant: Variant, exports: Iterable[str], methods: Iterable[str], devices: set[str]) -> bool:
    if not devices.isdisjoint(variant.default_on):
        return True
    if variant.builder is None or variant.on_request or variant.format not in exports:
        return False
    return variant.quantizer is None or variant.quantizer in methods


def _check_name(what: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise UsageError(f"no {what} is called '{name}'{nearest(name, known)}")


def listed_formats(recipe: Recipe) -> tuple[Export, ...]:
    """Return one entry a format, each of which says whether it competes; those that `all` means come last."""
    named = [each for each in recipe.export if each.format in EXPORTS]
    for each in recipe.export:
        if each.format == ALL_FORMATS:
            others = [name for name in EXPORTS if name not in {one.format for one in named}]
            named += [Export(format=name, compete=each.compete) for name in others if not _obstacle(recipe, name)]
    return tuple(
        each if each.compete is not None else Export(format=each.format, compete=EXPORTS[each.format].competes)
        for each in named
    )


def left_out_formats(recipe: Recipe) -> dict[str, str]:
    """Return a warning for each format that `all` leaves out because it cannot be built here, by format.

    A resolved recipe has none: there `all` is replaced by the formats that can be built.
    """
    if all(each.format != ALL_FORMATS for each in recipe.export):
        return {}
    others = EXPORTS.keys() - {each.format for each in recipe.export}
    possible = [name for name, each in EXPORTS.items() if each.has_attention or recipe.light_students]
    obstacles = {name: _obstacle(recipe, name) for name in possible if name in others}
    return {name: f"export: all leaves out {name}: {reason}" for name, reason in obstacles.items() if reason}


def competing_formats(recipe: Recipe, *, has_attention: bool = True) -> list[str]:
    """Return the formats that are built for every model with attention, or for every one without."""
    named = [each.format for each in listed_formats(recipe) if each.compete]
    if has_attention:
        return [name for name in named if EXPORTS[name].has_attention]
    return list(dict.fromkeys([*named, *(name for name, each in EXPORTS.items() if not each.has_attention)]))


def packaged_formats(recipe: Recipe) -> list[str]:
    """Return the formats that are built for winners only, after they are selected."""
    return [each.format for each in listed_formats(recipe) if not each.compete]


def _obstacle(recipe: Recipe, form: str) -> str:
    """Return why a format cannot be built here; empty where it can."""
    missing = describe_missing(missing_extras(form), missing_programs(form))
    return f"not installed: {missing}" if missing else _cannot_hold(recipe, form)


def why_unfit(form: str, *, has_attention: bool, has_lstm: bool) -> str:
    """Return why a model cannot have this format, whatever is installed; empty where it can."""
    if form not in EXPORTS:  # that of a model folder
        return ""
    if has_attention and not EXPORTS[form].has_attention:
        return f"{form} is for students without attention (static, conv)"
    if has_lstm and not EXPORTS[form].has_lstm:
        return f"{form} has no LSTM, and the head of the model is a BiLSTM"
    return ""


def _cannot_hold(recipe: Recipe, form: str) -> str:
    """Return why no model of a recipe can have this format; empty where one can."""
    reason = "" if recipe.light_students else why_unfit(form, has_attention=True, has_lstm=False)
    return reason or _lacks_lstm(recipe, form)


def _lacks_lstm(recipe: Recipe, form: str) -> str:
    """Return why the only model of a recipe, a teacher with a BiLSTM, cannot have this format; empty where it can."""
    if recipe.student is not None or not recipe.finetune:
        return ""
    return why_unfit(form, has_attention=False, has_lstm=recipe.finetune.head == "bilstm")


def format_problems(recipe: Recipe) -> Iterator[Problem]:
    """Yield formats without an LSTM for a model with one, and those that compete and run on no device of a target."""
    targets = {target.device for target in recipe.targets}
    for number, each in enumerate(recipe.export):
        if reason := _lacks_lstm(recipe, each.format):
            yield Problem(("export", number), f"{reason}: add a student, whose head is linear")
        elif reason := _cannot_hold(recipe, each.format):
            yield Problem(("export", number), f"{reason}, and the recipe has none")
        devices = EXPORTS[each.format].devices if each.format in EXPORTS else tuple(targets)
        if each.compete and targets.isdisjoint(devices):
            able = f"runs on {' and '.join(devices)}" if devices else "has no runtime on this machine"
            reason = f"{each.format} {able}, and the targets on {' and '.join(sorted(targets))}"
            yield Problem(("export", number, "compete"), f"{reason}; without compete it is built for winners")
