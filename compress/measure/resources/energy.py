"""Energy counters: joules that a processor or an accelerator has used, where the system reports them.

Processors count by RAPL, readable under /sys/class/powercap (on most systems for root only); accelerators through NVML.
The counter is of the entire package or board: everything that ran there is included, so differences are meaningful only
while nothing else runs. Where nothing can be read, `source` says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from compress.measure.resources.nvml import Nvml

POWERCAP = Path("/sys/class/powercap")
NOT_MEASURED = "not measured: "


@dataclass(frozen=True)
class EnergyMeter:
    """One counter, or the reason why there is none."""

    source: str
    """`RAPL package-0`, `NVML NVIDIA H200`, or `not measured: …` with the reason."""
    counter: Callable[[], float | None] | None = None
    """Returns joules since some start."""

    @classmethod
    def find(cls, device: Literal["cpu", "cuda"] = "cpu", root: Path = POWERCAP) -> EnergyMeter:
        """Return the meter of the processor, or of the first visible accelerator."""
        return _nvml() if device == "cuda" else _rapl(root)

    def read(self) -> float | None:
        """Return joules since some start; None where they cannot be read.

        Only differences are meaningful, and a counter restarts from 0 at its range, about once an hour.
        """
        try:
            return None if self.counter is None else self.counter()
        except (OSError, ValueError):
            return None


def _rapl(root: Path) -> EnergyMeter:
    packages: dict[str, Path] = {}

    def joules() -> float:
        return sum(int(path.read_text(encoding="ascii")) for path in packages.values()) / 1e6

    try:
        # A package's own parts (cores, memory) have two numbers in their names and are included in it; a package may
        # appear a second time under another interface (intel-rapl-mmio).
        for folder in sorted(path for path in root.glob("*rapl*:*") if path.name.count(":") == 1):
            name = (folder / "name").read_text(encoding="ascii").strip()
            if name.startswith("package"):
                packages.setdefault(name, folder / "energy_uj")
        joules()
    except (OSError, ValueError) as error:
        reader = "are readable by the administrator only" if isinstance(error, PermissionError) else "cannot be read"
        return EnergyMeter(f"{NOT_MEASURED}the energy counters under {root} {reader}")
    if not packages:
        return EnergyMeter(f"{NOT_MEASURED}this machine has no readable energy counters (RAPL)")
    return EnergyMeter(f"RAPL {', '.join(packages)}", joules)


def _nvml() -> EnergyMeter:
    nvml = Nvml.open()
    if nvml.joules() is None:
        return EnergyMeter(f"{NOT_MEASURED}{nvml.missing}")
    return EnergyMeter(f"NVML {nvml.read('nvmlDeviceGetName')}", nvml.joules)
