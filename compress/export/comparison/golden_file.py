"""golden.safetensors: golden inputs and PyTorch's outputs for them, with which a runner in any language checks itself.

One padded batch a group of `golden_inputs`, named `<group>/inputs/<array>` and `<group>/outputs/<array>`; values of
outputs at padding mean nothing. The file is read without torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from compress.environment import require
from compress.errors import ModelError
from compress.export.comparison.golden_inputs import GoldenBatches
from compress.model_info import GOLDEN_FILE
from compress.runtime.predictor import Predictor
from compress.storage.safetensors_file import read_arrays
from compress.tasks.base import Arrays

LARGEST = 512 * 1024
"""Bytes of all arrays: a group that would exceed them is left out (long texts of models with an output per token)."""


@dataclass(frozen=True)
class GoldenBatch:
    """The padded batch of one group."""

    inputs: Arrays = field(default_factory=dict)
    outputs: Arrays = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of its arrays."""
        return sum(array.nbytes for arrays in (self.inputs, self.outputs) for array in arrays.values())


def golden_outputs(groups: GoldenBatches, reference: Predictor) -> dict[str, GoldenBatch]:
    """Return the padded batch of each group with what ``reference`` makes of it, of the groups that are stored."""
    found, size = dict[str, GoldenBatch](), 0
    for group, sizes in groups.items():
        (together,) = sizes[max(sizes)]
        inputs = {name: together[name] for name in reference.inputs}
        batch = GoldenBatch(inputs, reference.predict(inputs))
        if size + batch.size <= LARGEST:
            size += batch.size
            found[group.replace(" ", "_")] = batch
    return found


def write_golden(folder: Path, groups: GoldenBatches, reference: Predictor) -> None:
    """Write golden.safetensors into ``folder``, with what ``reference`` (a model in PyTorch) makes of the inputs."""
    arrays = Arrays()
    for key, batch in golden_outputs(groups, reference).items():
        arrays |= {f"{key}/inputs/{name}": array for name, array in batch.inputs.items()}
        arrays |= {f"{key}/outputs/{name}": array for name, array in batch.outputs.items()}
    about = reference.describe()
    made_by = {"outputs_of": f"{about['runtime']} {about['version']}, {about['precision']}"}
    (folder / GOLDEN_FILE).write_bytes(require("safetensors.numpy", "train").save(arrays, metadata=made_by))


def read_golden(folder: Path) -> Mapping[str, GoldenBatch]:
    """Return the batches of ``folder``'s golden.safetensors by group."""
    path = folder / GOLDEN_FILE
    if not path.is_file():
        raise ModelError(f"{folder} has no {GOLDEN_FILE}.", hint="exports of earlier versions have none: export again")
    groups: dict[str, GoldenBatch] = {}
    try:
        for name, array in read_arrays(path).items():
            group, side, key = name.split("/")
            getattr(groups.setdefault(group, GoldenBatch()), side)[key] = array
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, MemoryError) as error:
        raise ModelError(f"{path} cannot be read: it is empty, truncated, or damaged.") from error
    return groups
