"""The processes of one training, through Accelerate: one alone, or several started by torchrun or accelerate launch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers
from accelerate.utils import broadcast, gather
from torch import Tensor, nn

from compress.errors import CompressError, MissingExtra, UsageError, nearest

PATIENCE = timedelta(hours=6)
"""How long processes wait for the main one, which evaluates and saves alone."""

TRACKED = Path("tracked")
"""Where trackers that keep files put them, in the current folder."""


class Processes:
    """This process among its equals. Everything that is reduced here is the same on all of them afterwards."""

    def __init__(self, track: str | None = None) -> None:
        if track is not None:
            _check_tracker(track)
        self._accelerator = Accelerator(
            # Autocast is the loop's own: Accelerate's setting belongs to the whole process and could not change
            # between trainings.
            mixed_precision="no",
            cpu=not torch.cuda.is_available(),
            log_with=track,
            project_dir=TRACKED if track else None,
            kwargs_handlers=[InitProcessGroupKwargs(timeout=PATIENCE)],
        )
        self.rank: int = self._accelerator.process_index
        self.count: int = self._accelerator.num_processes
        self.device: torch.device = self._accelerator.device

    @property
    def is_main(self) -> bool:
        """Whether this process evaluates, writes and speaks."""
        return self.rank == 0

    def wait(self) -> None:
        """Until all are here."""
        with _others_may_be_gone():
            self._accelerator.wait_for_everyone()

    def sum_gradients(self, parameters: Sequence[nn.Parameter], values: Tensor) -> Tensor:
        """Add up every parameter's gradient over processes, and ``values`` with them in the same exchange.

        One flat exchange and no wrapper around the model: hooks, unused heads and uneven batches need no care, and each
        process weighs its rows itself.
        """
        if self.count == 1:
            return values
        given = [parameter for parameter in parameters if parameter.grad is not None]
        gradients = [parameter.grad.flatten() for parameter in given if parameter.grad is not None]
        flat = torch.cat([*gradients, values.to(torch.float32)])
        with _others_may_be_gone():
            torch.distributed.all_reduce(flat)
        pieces = torch.split(flat, [parameter.numel() for parameter in given] + [len(values)])
        for parameter, piece in zip(given, pieces, strict=False):
            parameter.grad = piece.view_as(parameter)  # where it stands: nothing is copied back
        return pieces[-1]

    def from_main(self, value: float) -> float:
        """The main process's number, on all."""
        if self.count == 1:
            return value
        with _others_may_be_gone():
            shared: Tensor = broadcast(torch.tensor([value], dtype=torch.float64, device=self.device))
            return shared.item()

    def share_weights(self, modules: Sequence[nn.Module]) -> None:
        """Start everywhere from the main process's weights."""
        if self.count > 1:
            with _others_may_be_gone():
                for parameter in (each for module in modules for each in module.parameters()):
                    parameter.data.copy_(broadcast(parameter.data))

    def random_states(self) -> dict[str, Tensor]:
        """The generators' states, one row a process."""
        states = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state(self.device)
        with _others_may_be_gone():
            return {name: gather(state[None].to(self.device)).cpu() for name, state in states.items()}

    def set_random_states(self, states: Mapping[str, Tensor]) -> None:
        """Go on with this process's row of what `random_states` gave."""
        # Cloned: torch reads a row of a larger tensor from the wrong place.
        torch.set_rng_state(states["cpu"][self.rank].clone())
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(states["cuda"][self.rank].clone(), self.device)

    @contextmanager
    def randomness(self, seed: int) -> Iterator[None]:
        """Within the block random numbers come from the seed, others on each process; outside nothing changes."""
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(seed + self.rank * 1_000_003)
            yield

    @contextmanager
    def tracking(self, label: str, settings: Mapping[str, object]) -> Iterator[None]:
        """Within the block `log` goes to the tracker, where there is one."""
        if not self._accelerator.log_with:
            yield
            return
        plain = {key: value for key, value in settings.items() if isinstance(value, (str, int, float))}
        self._accelerator.init_trackers(label, config=plain)
        try:
            yield
        finally:
            for tracker in self._accelerator.trackers:
                tracker.finish()

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Tell the tracker, where there is one."""
        if self._accelerator.log_with:
            self._accelerator.log({key: value for key, value in values.items() if math.isfinite(value)}, step=step)


@contextmanager
def _others_may_be_gone() -> Iterator[None]:
    """Around a word with the other processes: what gloo and NCCL say where one does not answer is not for people."""
    try:
        yield
    except RuntimeError as error:
        raise CompressError(
            f"another process of this training does not answer any more: {str(error).splitlines()[0].split('. ')[0]}",
            hint="what it said last tells why; the same command again goes on from the last checkpoint",
        ) from error


def _check_tracker(name: str) -> None:
    """Accelerate passes over a tracker that is not installed; we do not."""
    known = sorted(LOGGER_TYPE_TO_CLASS)
    if name not in known:
        raise UsageError(f"no tracker is called '{name}'{nearest(name, known)}.")
    if name not in {str(tracker) for tracker in get_available_trackers()}:
        raise MissingExtra(name, "track")
