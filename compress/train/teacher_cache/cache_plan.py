"""What of a teacher's words is kept of how many examples: a pure function of shapes, lengths and the disk budget.

The plan is made once and written beside the files, so that a training that goes on keeps to it whatever else has come
onto the disk since.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from compress.train.teacher_cache.cache_file import Places, TensorFormat

SCHEMA_VERSION = 1

FILE = "plan.json"

BOOT = Path("/proc/sys/kernel/random/boot_id")
"""Linux: another string each time the machine is started."""

Key = tuple[int | None, str]
"""A layer and its part; for answers None and the output's name."""


@dataclass(frozen=True)
class CachePlan:
    """The forms of all that is kept, and of how many examples, counted from the first, it is."""

    forms: Mapping[Key, TensorFormat]
    answers: int
    """Examples whose answers are kept."""
    layers: int
    """Examples of which the asked parts of layers are kept too."""
    most: int
    """Bytes that all of it takes."""

    @classmethod
    def within(cls, disk: int, forms: Mapping[Key, TensorFormat], ends: Places) -> CachePlan:
        """Answers of all examples or nothing, and of what they leave of ``disk`` bytes the layers of the first ones.

        ``ends`` are the pieces of the examples up to and with each.
        """
        count = len(ends)
        answers = sum(form.before(count, ends) for (layer, _), form in forms.items() if layer is None)
        if not count or answers > disk:
            return cls(forms, 0, 0, 0)
        piece = sum(form.each for (layer, _), form in forms.items() if layer is not None)
        layers = int(np.searchsorted(ends, (disk - answers) // piece, side="right")) if piece else count
        return cls(forms, count, layers, answers + (piece * int(ends[layers - 1]) if layers else 0))

    def count(self, key: Key) -> int:
        """Of how many examples one thing is kept."""
        return self.answers if key[0] is None else self.layers

    def write(self, folder: Path, disk: int) -> None:
        """Leave the plan in the folder of its files; ``disk`` is the budget it was made for."""
        told: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "boot": boot(), "disk": disk, "most": self.most}
        told |= {"answers": self.answers, "layers": self.layers}
        told["forms"] = [[layer, name, asdict(form)] for (layer, name), form in self.forms.items()]
        aside = folder / f".{FILE}"
        aside.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
        aside.replace(folder / FILE)

    @classmethod
    def read(cls, folder: Path, disk: int) -> CachePlan | None:
        """The plan that stands there; None where there is none that can be gone on with."""
        try:
            told = json.loads((folder / FILE).read_bytes())
            if (told["schema_version"], told["boot"], told["disk"]) != (SCHEMA_VERSION, boot(), disk):
                return None
            forms = {
                (layer, name): TensorFormat(form["dtype"], tuple(form["shape"]), form["pieces"])
                for layer, name, form in told["forms"]
            }
            return cls(forms, told["answers"], told["layers"], told["most"])
        except (OSError, ValueError, KeyError, TypeError):  # none there, or not as it was written
            return None


def boot() -> str:
    """What tells this run of the machine from the one before: what was written then may have been cut off by it."""
    return BOOT.read_text().strip() if BOOT.is_file() else str(round(psutil.boot_time()))
