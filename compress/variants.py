"""The table of variants: format × precision × method, and how each is built. Commands, tests and measuring read it.

It is derived from the tables of formats, runtimes and quantizers; adding one of those adds its variant. This module is
light: builders are imported when they are called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name

from compress.errors import UsageError, nearest
from compress.export import BuildContext
from compress.formats import EXPORTS, FORMATS, RUNTIMES
from compress.model_info import FolderInfo, VariantInfo
from compress.quantize import QUANTIZERS
from compress.runtime.model_formats import RUN_MODES, export_variant

__all__ = ["EXPORTS", "QUANTIZERS", "VARIANTS", "Variant", "variant_named", "variants_for"]


@dataclass(frozen=True)
class Variant:
    """One way to run a model."""

    info: VariantInfo
    """As compress.json describes it, before anything is measured."""
    devices: tuple[str, ...]
    """Devices on which it can run."""
    needs: str | None = None
    """The variant it is made from; None: the model folder."""
    default_on: tuple[str, ...] = ()
    """Devices on which it competes without being requested. Exports and variants made of them compete where the recipe
    requests their format and quantizer; the others where its `variants` names them."""
    builder: str | None = None
    """`module:function` that builds its folder; None where the model folder serves as it is."""
    version: int = 1
    """The builder's version, which is part of its step's fingerprint."""
    quantizer: str | None = None
    """The key of `QUANTIZERS` that makes it; None where it is not quantized."""
    on_request: bool = False
    """Whether it is built only where a recipe's `variants` names it."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Devices on which readers would expect it, and why it does not run there."""
    build_modules: Mapping[str, str] = field(default_factory=dict)
    """Modules that building imports, and the extra that provides each."""

    @property
    def name(self) -> str:
        """`onnx-int8`."""
        return self.info.name

    @property
    def format(self) -> str:
        """A key of `FORMATS`."""
        return self.info.format

    @property
    def precision(self) -> str:
        """`fp32`, `bf16`, `fp16` or `int8`."""
        return self.info.precision

    @property
    def method(self) -> str | None:
        """How it was quantized; None where it was not."""
        return self.info.method

    @property
    def batch_sensitive(self) -> bool:
        """Whether a row's outputs depend on the other rows of its batch; then it is scored at its target's batch."""
        return bool(self.info.batch_sensitive)

    @property
    def runtime(self) -> str:
        """A key of `RUNTIMES`."""
        return self.info.runtime

    @property
    def tuner(self) -> str | None:
        """`module:function` that chooses its session options by timing; None where it has none."""
        tuner = RUNTIMES[self.runtime].tuner
        return tuner if self.builder else None

    @property
    def run_modules(self) -> Mapping[str, str]:
        """Modules that running it imports beyond the base install, and the extra that provides each."""
        runtime = RUNTIMES[self.runtime]
        return {name.partition(".")[0]: runtime.extra for name in runtime.modules} if runtime.extra else {}

    def runs_on(self, device: str) -> bool:
        """Whether it can run on ``device``."""
        return device in self.devices

    def make(self, context: BuildContext) -> FolderInfo:
        """Build it into ``context.work``."""
        if self.builder is None:
            raise UsageError(f"{self.name} is not built: a model folder runs as {self.name} as it is.")
        info: FolderInfo = resolve_name(self.builder)(context)
        return info


def _variants() -> Iterator[Variant]:
    """Yield the run modes of model folders, then each export format's variants; sources come first."""
    for runtime in RUNTIMES.values():
        if FORMATS[runtime.formats[0]].builder is None:
            for mode in runtime.modes:
                yield Variant(RUN_MODES[mode.name], mode.devices or runtime.devices, default_on=mode.default_on)
    for name, each in EXPORTS.items():
        yield Variant(
            export_variant(name),
            devices=each.devices,
            needs=export_variant(each.source).name if each.source else None,
            default_on=each.devices if each.competes_unasked else (),
            builder=each.builder,
            version=each.version,
            build_modules=each.build_modules,
        )
        for methods in QUANTIZERS.values():
            if quantizer := methods.get(name):
                yield Variant(
                    quantizer.variant,
                    devices=quantizer.devices,
                    needs=quantizer.source,
                    builder=quantizer.builder,
                    version=quantizer.version,
                    quantizer=quantizer.name,
                    absent=quantizer.absent,
                    build_modules=quantizer.build_modules,
                )
        if name == "onnx":
            # TensorRT's libraries are on few machines, and its engines take minutes: built on request only.
            yield Variant(
                RUN_MODES["onnx-tensorrt"],
                devices=("cuda",),
                needs="onnx-fp32",
                builder="compress.export.tensorrt:export_tensorrt",
                on_request=True,
            )


VARIANTS: dict[str, Variant] = {variant.name: variant for variant in _variants()}


def variant_named(name: str) -> Variant:
    """Return the variant of this name."""
    if name not in VARIANTS:
        raise UsageError(f"no variant is called '{name}'{nearest(name, VARIANTS)}")
    return VARIANTS[name]


def variants_for(
    formats: Iterable[str], quantizers: Iterable[str], devices: Iterable[str], also: Iterable[str] = ()
) -> list[Variant]:
    """Return the variants that compete: those of the devices, of each export format, and their quantized ones.

    A variant's source comes before it and competes too.

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
        if not set(QUANTIZERS[name]) & set(exports):
            readable = ", ".join(QUANTIZERS[name])
            raise UsageError(f"quantize: {name} works on an exported model; add one of these to export: {readable}.")
    requested = {name: variant_named(name) for name in also}
    for variant in requested.values():
        _check_devices(variant, present)
    competing = {name for name, variant in VARIANTS.items() if _competes(variant, exports, methods, present)}
    chosen = _with_sources(competing | set(requested))
    return [variant for name, variant in VARIANTS.items() if name in chosen]


def _competes(variant: Variant, exports: Iterable[str], methods: Iterable[str], devices: set[str]) -> bool:
    if not devices.isdisjoint(variant.default_on):
        return True
    if variant.builder is None or variant.on_request or variant.format not in exports:
        return False
    return variant.quantizer is None or variant.quantizer in methods


def _with_sources(names: Iterable[str]) -> set[str]:
    """Return the names, and those of everything that they are made from."""
    closed: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        closed.add(name)
        source = VARIANTS[name].needs
        pending += [source] if source else []
    return closed


def _check_devices(variant: Variant, devices: set[str]) -> None:
    """Refuse a variant that was requested by name and runs on none of the devices."""
    if devices and devices.isdisjoint(variant.devices):
        able, requested = " and ".join(variant.devices), " and ".join(sorted(devices))
        raise UsageError(f"variants: {variant.name} runs on {able}; the targets run on {requested}.")


def _check_name(what: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise UsageError(f"no {what} is called '{name}'{nearest(name, known)}")
