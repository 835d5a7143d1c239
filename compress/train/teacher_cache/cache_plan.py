"""The cache plan: which tensors are cached for how many examples, from shapes, lengths and the disk budget.

The plan is computed once and stored with the files, so that a resumed training follows it whatever else has been
written to the disk since.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
import psutil
from pydantic import BaseModel, ConfigDict

from compress.storage.atomic_write import atomic_write
from compress.train.teacher_cache.cache_file import Indices, TensorFormat

FILE = "plan.json"

BOOT = Path("/proc/sys/kernel/random/boot_id")
"""On Linux, an id that changes at every boot."""


LAYER = "layer "
"""What the names of parts of layers start with; those of outputs do not."""


def layer_key(layer: int, part: str) -> str:
    """Return the name of one part of a layer."""
    return f"{LAYER}{layer} {part}"


def boot() -> str:
    """Return an id of the current boot: files written before it may be incomplete after a power cut."""
    return BOOT.read_text().strip() if BOOT.is_file() else str(round(psutil.boot_time()))


class CachePlan(BaseModel):
    """The formats of all cached tensors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[2] = 2
    boot: str
    disk: int
    """The budget in bytes."""
    outputs: Mapping[str, TensorFormat]
    """By name; without cached examples where the budget is too small."""
    layers: Mapping[str, TensorFormat]
    """Parts of layers, as `layer_key` names them."""

    @classmethod
    def within(
        cls,
        disk: int,
        free: int,
        outputs: Mapping[str, TensorFormat],
        layers: Mapping[str, TensorFormat],
        ends: Indices,
    ) -> CachePlan:
        """Return the plan for ``disk`` bytes, or for ``free`` bytes if that is less.

        ``outputs`` have all examples; of the ``layers`` as many of the first examples are cached as fit. ``ends`` are
        the cumulative token counts of the examples.
        """
        left, count = min(disk, free) - sum(form.size(ends) for form in outputs.values()), 0
        per_token = sum(form.item_bytes for form in layers.values())
        if left < 0:
            outputs = {key: form.model_copy(update={"examples": 0}) for key, form in outputs.items()}
        elif per_token:
            count = int(np.searchsorted(ends, left // per_token, side="right"))
        layers = {key: form.model_copy(update={"examples": count}) for key, form in layers.items()}
        return cls(boot=boot(), disk=disk, outputs=outputs, layers=layers)

    @property
    def examples(self) -> int:
        """The number of examples with cached outputs: all or none."""
        return next(iter(self.outputs.values())).examples

    def tensors(self) -> dict[str, TensorFormat]:
        """Return the formats of all tensors."""
        return {**self.outputs, **self.layers}

    def write(self, folder: Path) -> None:
        """Write the plan to the folder of its files."""
        atomic_write(folder / FILE, self.model_dump_json(indent=2) + "\n")

    @classmethod
    def read(cls, folder: Path, disk: int) -> CachePlan | None:
        """Read the plan; None where there is none, or none that can be used."""
        try:
            plan = cls.model_validate_json((folder / FILE).read_bytes())
        except (OSError, ValueError):  # missing, damaged, or of another version
            return None
        return plan if (plan.boot, plan.disk) == (boot(), disk) else None
