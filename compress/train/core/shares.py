"""Shares of each batch, computed at the same time by threads of this process.

The operations on a batch of short texts are so small that the threads of one operation gain little and wait for each
other hundreds of times an update; beside another process, each of these waits can take a time slice of the system. Here
a thread computes the losses and gradients of its own rows, and waits once.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Barrier
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.recipe.training_schema import Training, number
from compress.train.core.distributed import Processes, seed_of
from compress.train.fast_paths.cpu_attention import replaces_attention
from compress.train.fast_paths.fast_dropout import drawing_from
from compress.train.objective import Objective

MIN_ROWS = 8
"""Rows of a share, at least: products of fewer rows are slow."""

Result = TypeVar("Result")


def share_count(objective: Objective, model: PreTrainedModel, settings: Training, processes: Processes) -> int:
    """Return how many shares the batches of a training are split into: as many as torch has threads, if it can be.

    It cannot be on a GPU, among several processes, with losses that compare rows, or with an attention that draws its
    dropout from torch's generator, which all threads share.
    """
    on_cpu = processes.device.type == "cpu" and processes.count == 1
    if not on_cpu or not objective.has_independent_rows() or not replaces_attention(model):
        return 1
    return max(1, min(torch.get_num_threads(), number(settings.batch_size) // MIN_ROWS))


class Replica(NamedTuple):
    """A copy of a model and its objective that shares their weights, and has gradients and hooks of its own."""

    model: PreTrainedModel
    objective: Objective
    parameters: list[nn.Parameter]
    """In the order of those of the original."""


def replicate(model: PreTrainedModel, objective: Objective) -> Replica:
    """Return a replica that shares the storage of all weights, those of teachers included."""
    shared = shared_teachers(objective)
    for parameter in trained_parameters(model, objective.modules()):
        shared[id(parameter)] = nn.Parameter(parameter.data, parameter.requires_grad)
    twin, losses = copy.deepcopy((model, objective), shared)
    return Replica(twin, losses, trained_parameters(twin, losses.modules()))


def shared_teachers(objective: Objective) -> dict[int, Tensor]:
    """Return what keeps `copy.deepcopy` of an objective from copying the weights of its teachers."""
    teachers = objective.teachers()
    return {id(tensor): tensor for teacher in teachers for tensor in (*teacher.parameters(), *teacher.buffers())}


def trained_parameters(model: nn.Module, extra: Sequence[nn.Module]) -> list[nn.Parameter]:
    """Return the parameters of a model and of modules that are trained with it."""
    return [parameter for module in (model, *extra) for parameter in module.parameters()]


class ShareThreads:
    """Runs a function for every share, each in its own thread with its part of the cores."""

    def __init__(self, count: int = 1) -> None:
        """The first share draws from torch's generator, and the others from generators that are seeded like it."""
        self.count = count
        seed = torch.initial_seed()
        self.generators = [torch.Generator().manual_seed(seed_of(seed, share)) for share in range(1, count)]
        self._pool: ThreadPoolExecutor | None = None

    @contextmanager
    def started(self) -> Iterator[None]:
        """Run in threads within the block; outside of it, shares are computed one after the other."""
        if self.count == 1:
            yield
            return
        threads, barrier = torch.get_num_threads(), Barrier(self.count)
        each = max(1, threads // self.count)
        with ThreadPoolExecutor(self.count, "share", _use_threads, (each,)) as self._pool:
            self.run(lambda share: barrier.wait())
            torch.set_num_threads(threads)  # else threads that start later would have as few as the last one set
            yield
        self._pool = None

    def run(self, function: Callable[[int], Result]) -> list[Result]:
        """Return the function's result for each share, in order."""
        shares = range(self.count)
        return list(self._pool.map(function, shares) if self._pool else map(function, shares))

    def randomness(self, share: int) -> AbstractContextManager[None]:
        """Draw from the generator of a share within the block, in this thread."""
        return drawing_from(self.generators[share - 1]) if share else nullcontext()


def _use_threads(count: int) -> None:
    """Let the operations of the current thread use this many threads.

    torch gives a new thread the number of the whole process at its first operation or at `get_num_threads`, whichever
    comes first; so that has to happen before.
    """
    torch.get_num_threads()
    torch.set_num_threads(count)
