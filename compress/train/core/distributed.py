"""The processes of a training, and its experiment tracker, through Accelerate.

There is one process, or several started by torchrun or accelerate launch.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from pathlib import Path

import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from accelerate.utils import broadcast, gather
from torch import Tensor, nn

from compress.errors import CompressError

TIMEOUT = timedelta(hours=6)
"""How long processes wait for the main one, which alone evaluates and saves."""


@contextmanager
def returned(*models: nn.Module) -> Iterator[None]:
    """Move models back to the device that each was on, after a block that moves them."""
    homes = [next(model.parameters()).device for model in models]
    try:
        yield
    finally:
        for model, home in zip(models, homes, strict=True):
            nn.Module.to(model, home)


class Processes:
    """This process among those of a training. Reduced values are equal on all processes."""

    def __init__(self, track: str | None = None) -> None:
        self._accelerator = Accelerator(
            # The loop chooses the precision: Accelerate's setting is global and could not change between trainings.
            mixed_precision="no",
            cpu=not torch.cuda.is_available(),
            log_with=track,
            project_dir=TRACKING_FOLDER if track else None,
            kwargs_handlers=[InitProcessGroupKwargs(timeout=TIMEOUT)],
        )
        self.rank: int = self._accelerator.process_index
        self.count: int = self._accelerator.num_processes
        self.device: torch.device = self._accelerator.device
        self.tracker = ExperimentTracker(self._accelerator)
        self._is_alone = False

    @property
    def is_main(self) -> bool:
        """Whether this process evaluates, writes files and prints."""
        return self.rank == 0

    def alone(self) -> Processes:
        """Return this process with its share of every batch, whose gradients are not summed with those of others."""
        twin = copy.copy(self)
        twin._is_alone = True
        return twin

    def wait(self) -> None:
        """Block until all processes have reached this point."""
        with _readable_errors():
            self._accelerator.wait_for_everyone()

    def sum_gradients(self, parameters: Sequence[nn.Parameter], values: Tensor) -> Tensor:
        """Sum every parameter's gradient over processes, and ``values`` in the same all-reduce; returns the values.

        One flat all-reduce without a wrapper around the model: hooks, unused heads and uneven batches need no special
        care, and each process weights its own rows.
        """
        if self.count == 1 or self._is_alone:
            return values
        with_gradient = [parameter for parameter in parameters if parameter.grad is not None]
        gradients = [parameter.grad.flatten() for parameter in with_gradient if parameter.grad is not None]
        flat = torch.cat([*gradients, values.to(torch.float32)])
        with _readable_errors():
            torch.distributed.all_reduce(flat)
        pieces = torch.split(flat, [parameter.numel() for parameter in with_gradient] + [len(values)])
        for parameter, piece in zip(with_gradient, pieces, strict=False):
            parameter.grad = piece.view_as(parameter)  # a view: nothing is copied back
        return pieces[-1]

    def from_main(self, value: float) -> float:
        """Return the main process's number on all processes."""
        if self.count == 1:
            return value
        with _readable_errors():
            shared: Tensor = broadcast(torch.tensor([value], dtype=torch.float64, device=self.device))
            return shared.item()

    def share_weights(self, modules: Sequence[nn.Module]) -> None:
        """Copy the main process's weights to all processes."""
        if self.count > 1:
            with _readable_errors():
                for parameter in (weight for module in modules for weight in module.parameters()):
                    parameter.data.copy_(broadcast(parameter.data))

    def random_states(self, others: Sequence[torch.Generator] = ()) -> dict[str, Tensor]:
        """Return the states of the random generators: a row per process, or of this one and ``others``."""
        states = {"cpu": torch.stack([torch.get_rng_state(), *(other.get_state() for other in others)])}
        if self.device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state(self.device)[None]
        with _readable_errors():
            return {name: gather(state.to(self.device)).cpu() for name, state in states.items()}

    def set_random_states(self, states: Mapping[str, Tensor], others: Sequence[torch.Generator] = ()) -> None:
        """Restore this process's row of what `random_states` returned, and ``others``."""
        # Cloned: torch ignores the storage offset of a row of a larger tensor.
        torch.set_rng_state(states["cpu"][self.rank].clone())
        for generator, state in zip(others, states["cpu"][1:], strict=False):
            generator.set_state(state.clone())
        if self.device.type == "cuda" and "cuda" in states:
            torch.cuda.set_rng_state(states["cuda"][self.rank].clone(), self.device)

    @contextmanager
    def randomness(self, seed: int) -> Iterator[None]:
        """Seed the random generators within the block, differently on each process; restore them afterwards."""
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(seed_of(seed, self.rank))
            yield


def seed_of(seed: int, share: int) -> int:
    """Return the seed of one of the processes or threads that share each batch."""
    return seed + share * 1_000_003


@lru_cache(maxsize=1)
def current_processes() -> Processes:
    """Return the processes of this run, without a tracker."""
    return Processes()


@contextmanager
def _readable_errors() -> Iterator[None]:
    """Replace the unreadable errors of gloo and NCCL when another process is gone."""
    try:
        yield
    except RuntimeError as error:
        raise CompressError(
            f"another process of this training no longer responds: {str(error).splitlines()[0].split('. ')[0]}",
            hint="see its last output for the reason; the same command resumes from the last checkpoint",
        ) from error


TRACKING_FOLDER = Path("tracked")
"""For trackers that write files, in the current folder."""


class ExperimentTracker:
    """Logs a training where the recipe names a tracker, and does nothing elsewhere."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator

    @contextmanager
    def running(self, label: str, settings: Mapping[str, object]) -> Iterator[None]:
        """Start the tracker with the training's settings, and finish it after the block."""
        scalars = {key: value for key, value in settings.items() if isinstance(value, (str, int, float))}
        self._accelerator.init_trackers(label, config=scalars)
        try:
            yield
        finally:
            for tracker in self._accelerator.trackers:
                tracker.finish()

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log finite values."""
        self._accelerator.log({key: value for key, value in values.items() if math.isfinite(value)}, step=step)
