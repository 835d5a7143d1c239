"""The cache plan: which tensors are cached for how many examples, from shapes, lengths and the disk budget.

The plan is computed once and stored with the files, so that a resumed training follows it whatever else has been
written to the disk since.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from compress.train.teacher_cache.cache_file import Indices, TensorFormat

SCHEMA_VERSION = 1

FILE = "plan.json"

BOOT = Path("/proc/sys/kernel/random/boot_id")
"""On Linux, an id that changes at every boot."""

Key = tuple[int | None, str]
"""A layer and its part; for outputs None and the name of the output."""


@dataclass(frozen=True)
class CachePlan:
    """The formats of all cached tensors, and the number of examples, from the first, that are cached."""

    forms: Mapping[Key, TensorFormat]
    answers: int
    """Examples with cached outputs."""
    layers: int
    """Examples with cached layer parts."""
    most: int
    """Total bytes."""

    @classmethod
    def within(cls, disk: int, forms: Mapping[Key, TensorFormat], ends: Indices) -> CachePlan:
        """Return the plan for ``disk`` bytes: outputs of all examples or nothing, then layers of the first examples.

        ``ends`` are the cumulative token counts of the examples.
        """
        count = len(ends)
        answers = sum(form.offset(count, ends) for (layer, _), form in forms.items() if layer is None)
        if not count or answers > disk:
            return cls(forms, 0, 0, 0)
        per_token = sum(form.item_bytes for (layer, _), form in forms.items() if layer is not None)
        layers = int(np.searchsorted(ends, (disk - answers) // per_token, side="right")) if per_token else count
        return cls(forms, count, layers, answers + (per_token * int(ends[layers - 1]) if layers else 0))

    def count(self, key: Key) -> int:
        """Return the number of cached examples of one tensor."""
        return self.answers if key[0] is None else self.layers

    def write(self, folder: Path, disk: int) -> None:
        """Write the plan to the folder of its files; ``disk`` is its budget."""
        document: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "boot": boot(), "disk": disk, "most": self.most}
        document |= {"answers": self.answers, "layers": self.layers}
        document["forms"] = [[layer, name, asdict(form)] for (layer, name), form in self.forms.items()]
        aside = folder / f".{FILE}"
        aside.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        aside.replace(folder / FILE)

    @classmethod
    def read(cls, folder: Path, disk: int) -> CachePlan | None:
        """Read the plan; None where there is none, or none that can be used."""
        try:
            document = json.loads((folder / FILE).read_bytes())
            if (document["schema_version"], document["boot"], document["disk"]) != (SCHEMA_VERSION, boot(), disk):
                return None
            forms = {
                (layer, name): TensorFormat(form["dtype"], tuple(form["shape"]), form["pieces"])
                for layer, name, form in document["forms"]
            }
            return cls(forms, document["answers"], document["layers"], document["most"])
        except (OSError, ValueError, KeyError, TypeError):  # missing or damaged
            return None


def boot() -> str:
    """Return an id of the current boot: files written before it may be incomplete after a power cut."""
    return BOOT.read_text().strip() if BOOT.is_file() else str(round(psutil.boot_time()))
