"""The table of variants: format × precision × method, and how each is built. Commands, tests and measuring read it.

It is derived from the tables of formats, runtimes and quantizers; adding one of those adds its variant. This module is
light: builders are imported when they are called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from compress.errors import UsageError, nearest
from compress.export.variant_record import Variant
from compress.formats import EXPORTS, FORMATS, RUNTIMES
from compress.quantize import QUANTIZERS
from compress.runtime.model_formats import RUN_MODES, export_variant

__all__ = ["EXPORTS", "QUANTIZERS", "VARIANTS", "Variant", "variants_for"]


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
        if name == "onnx":
            # TensorRT's libraries are on few machines, and its engines take minutes: built on request only.
            yield Variant(
                **dict(RUN_MODES["onnx-tensorrt"]),
                devices=("cuda",),
                needs="onnx-fp32",
                builder="compress.export.tensorrt:export_tensorrt",
                on_request=True,
            )


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
            raise UsageError(f"quantize: {name} makes {needed} files; add {needed} to export.")
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


def _competes(variant: Variant, exports: Iterable[str], methods: Iterable[str], devices: set[str]) -> bool:
    if not devices.isdisjoint(variant.default_on):
        return True
    if variant.builder is None or variant.on_request or variant.format not in exports:
        return False
    return variant.quantizer is None or variant.quantizer in methods


def _check_name(what: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise UsageError(f"no {what} is called '{name}'{nearest(name, known)}")
