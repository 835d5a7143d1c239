"""The table of variants: format x precision x method, and how each is built. Commands, tests and measuring read it.

Adding a variant is one file that builds it (`export/<format>.py`, `quantize/<method>.py`), one line in that room's
table of names, and one line here. This file is light: building functions are imported when they are called.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import Literal

from compress.console import Console
from compress.errors import UsageError, nearest
from compress.export import FORMATS, ONNX_FP32, OPENVINO_FP32
from compress.model_info import FolderInfo, VariantInfo
from compress.quantize import ONNX_INT8, QUANTIZERS
from compress.runtime import RUNTIMES
from compress.runtime.model_formats import (
    BF16,
    COMPILED,
    COMPILED_BF16,
    COMPILED_FP16,
    FP16,
    FP32,
    GRAPH_BF16,
    GRAPH_FP16,
    TENSORRT,
)
from compress.tasks.base import Arrays

__all__ = ["FORMATS", "QUANTIZERS", "VARIANTS", "Variant", "variant_named", "variants_for"]

Device = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class Variant:
    """One way to run a model."""

    info: VariantInfo
    """What compress.json says of it, before anything is measured."""
    devices: tuple[Device, ...]
    """Where it can run at all."""
    needs: str | None = None
    """The variant it is made from; None: the model folder itself."""
    default_on: tuple[Device, ...] = ()
    """Devices on which it competes without being asked for. Exports and what is made of them compete where the recipe
    asks for their format and quantizer; the rest where its `variants` names them."""
    build: str | None = None
    """`module:function` that makes its folder; None where the model folder serves as it is."""
    absent: Mapping[Device, str] = field(default_factory=dict)
    """Devices on which readers look for it in vain, and why; elsewhere it is not expected."""
    batch_sensitive: bool = False
    """Whether a row's answer depends on what shares its batch; then it is scored at its target's batch."""

    @property
    def name(self) -> str:
        """`onnx-int8`."""
        return self.info.name

    @property
    def format(self) -> str:
        """`torch`, or a recipe's word for an export."""
        return self.info.format

    @property
    def precision(self) -> str:
        """`fp32`, `bf16`, `fp16` or `int8`."""
        return self.info.precision

    @property
    def wants(self) -> str:
        """What its runtime needs, in words."""
        return RUNTIMES[self.runtime].needs

    @property
    def method(self) -> str | None:
        """How it was quantized; None where it was not."""
        return self.info.method

    @property
    def runtime(self) -> str:
        """A key of `runtime.RUNTIMES`."""
        return self.info.runtime

    def runs_on(self, device: str) -> bool:
        """Whether it can run on ``device``."""
        return device in self.devices

    def make(
        self, source: Path, work: Path, *, sample: Sequence[Arrays] | None = None, console: Console | None = None
    ) -> FolderInfo:
        """Build it into ``work``.

        Args:
            source: the folder of the variant it `needs`, or the model folder.
            work: an existing folder; what is in it is replaced.
            sample: encoded batches to compare answers on; made up where none are given.
            console: where progress and warnings go; quiet by default.
        """
        if self.build is None:
            raise UsageError(f"{self.name} is not built: a model folder runs as {self.name} as it is.")
        info: FolderInfo = resolve_name(self.build)(source, work, sample=sample, console=console or Console("quiet"))
        return info


VARIANTS: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant(FP32, devices=("cpu", "cuda"), default_on=("cpu", "cuda")),
        # On most CPUs bf16 in eager mode is slower than fp32; there it runs for those who ask.
        Variant(BF16, devices=("cpu", "cuda"), default_on=("cuda",)),
        Variant(FP16, devices=("cuda",), default_on=("cuda",)),
        # On a CPU it takes up to half a minute to compile, for a tenth less time than eager mode on a small encoder.
        Variant(COMPILED, devices=("cpu", "cuda")),
        Variant(COMPILED_BF16, devices=("cpu", "cuda"), default_on=("cuda",)),
        Variant(COMPILED_FP16, devices=("cuda",), default_on=("cuda",)),
        Variant(GRAPH_BF16, devices=("cuda",), default_on=("cuda",)),
        Variant(GRAPH_FP16, devices=("cuda",), default_on=("cuda",)),
        Variant(ONNX_FP32, devices=("cpu", "cuda"), build=FORMATS["onnx"]),
        # On CUDA every product would travel to the CPU and back.
        Variant(
            ONNX_INT8,
            devices=("cpu",),
            needs="onnx-fp32",
            build=QUANTIZERS["int8"]["onnx"],
            absent={"cuda": "ONNX Runtime has no kernels for dynamic INT8 on CUDA"},
            batch_sensitive=True,
        ),
        # TensorRT's libraries are on few machines, and its engines take minutes: for those who ask.
        Variant(TENSORRT, devices=("cuda",), needs="onnx-fp32", build="compress.export.tensorrt:export_tensorrt"),
        Variant(OPENVINO_FP32, devices=("cpu",), needs="onnx-fp32", build=FORMATS["openvino"]),
    )
}


def variant_named(name: str) -> Variant:
    """The variant of this name."""
    if name not in VARIANTS:
        raise UsageError(f"no variant is called '{name}'{nearest(name, VARIANTS)}")
    return VARIANTS[name]


def variants_for(
    formats: Iterable[str], quantizer: str | None, devices: Iterable[str], also: Iterable[str] = ()
) -> list[Variant]:
    """The variants that compete: those of the devices, those of each export format, and their quantized ones.

    Whatever a variant is made from stands before it, and competes too.

    Args:
        formats: keys of `FORMATS`.
        quantizer: a key of `QUANTIZERS`.
        devices: where the variants are to run.
        also: names of variants that compete besides.
    """
    wanted, there = list(formats), set(devices)
    for name in wanted:
        _check("export format", name, FORMATS)
    if quantizer is not None:
        _check("quantizer", quantizer, QUANTIZERS)
        if not set(QUANTIZERS[quantizer]) & set(wanted):
            able = ", ".join(QUANTIZERS[quantizer])
            raise UsageError(f"quantize: {quantizer} works on an exported model; add one of these to export: {able}.")
    named = {name: variant_named(name) for name in also}
    for variant in named.values():
        _check_devices(variant, there)
    competing = {name for name, variant in VARIANTS.items() if _competes(variant, wanted, quantizer, there)}
    chosen = _with_sources(competing | set(named))
    return [variant for name, variant in VARIANTS.items() if name in chosen]


def _competes(variant: Variant, formats: Sequence[str], quantizer: str | None, devices: set[str]) -> bool:
    if variant.build is None:
        return not devices.isdisjoint(variant.default_on)
    if variant.format not in formats:
        return False
    if variant.method is None:
        return variant.build == FORMATS[variant.format]
    return quantizer is not None and variant.build == QUANTIZERS[quantizer].get(variant.format)


def _with_sources(names: Iterable[str]) -> set[str]:
    """The names, and those of everything that they are made from."""
    found: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        needs = VARIANTS[name].needs
        found.add(name)
        left += [needs] if needs else []
    return found


def _check_devices(variant: Variant, devices: set[str]) -> None:
    """Refuse a variant that was asked for by name and runs on none of the devices."""
    if devices and devices.isdisjoint(variant.devices):
        able, asked = " and ".join(variant.devices), " and ".join(sorted(devices))
        raise UsageError(f"variants: {variant.name} runs on {able}; the targets run on {asked}.")


def _check(what: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise UsageError(f"no {what} is called '{name}'{nearest(name, known)}")
