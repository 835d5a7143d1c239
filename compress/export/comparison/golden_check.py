"""Compares exports with the outputs of PyTorch that travel with them: their runtimes are needed, and PyTorch is not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from compress.errors import DeviceUnavailable, MissingExtra, ModelError
from compress.export.comparison.golden_file import read_golden
from compress.export.comparison.parity import compare_outputs
from compress.export.comparison.parity_check import LIMITS, ParityCheck
from compress.model_info import GOLDEN_FILE, read_info
from compress.runtime import default_placement, open_predictor


@dataclass(frozen=True)
class GoldenCheck:
    """One export's comparison with its golden outputs, or why it was not compared."""

    folder: Path
    parity: ParityCheck | None = None
    not_run: str | None = None

    def __str__(self) -> str:
        """`model/ort (ort-fp32): its golden outputs are repeated: outputs within 2.1e-07, …`."""
        if self.parity is None:
            return f"{self.folder}: its golden inputs were not run, because {self.not_run}"
        return f"{self.folder} ({self.parity.variant.name}) repeats its golden outputs: {self.parity.total}"


def check_golden_folders(folder: Path) -> Iterator[GoldenCheck]:
    """Check every export in ``folder`` that has golden outputs: the folder's own, and the formats in it.

    Raises:
        ParityMissed: one differs by more than the limit of its precision.
        ModelError: one cannot be read.
    """
    for path in sorted(folder.rglob(GOLDEN_FILE)):
        try:
            parity = check_golden(path.parent)
        except (DeviceUnavailable, MissingExtra) as error:
            yield GoldenCheck(path.parent, not_run=error.full_message)
            continue
        parity.raise_for_misses(path.parent)
        yield GoldenCheck(path.parent, parity)


def check_golden(folder: Path) -> ParityCheck:
    """Compare the outputs of the export in ``folder``, in its own runtime, with its golden outputs."""
    golden, info = read_golden(folder), read_info(folder)
    if not golden:
        raise ModelError(f"{folder / GOLDEN_FILE} holds no inputs.", hint="export again")
    if info.variant is None or info.variant.precision not in LIMITS:
        raise ModelError(f"{folder} has a {GOLDEN_FILE}, and its compress.json names no precision to compare it in.")
    predictor = open_predictor(folder, default_placement(folder))
    groups = {
        group: compare_outputs([(batch.inputs, batch.outputs)], predictor, info.task) for group, batch in golden.items()
    }
    return ParityCheck(info.variant, LIMITS[info.variant.precision], groups)
