"""The sections about measuring: targets, and what the timing session measures and for how long."""

from typing import Annotated, Literal

from pydantic import Field

from compress.recipe.field_types import (
    Frozen,
    Length,
    Natural,
    Positive,
    PositiveFloat,
    ShortForm,
    as_list,
    duration,
    name_in,
)
from compress.recipe.sanity_limits import MAX_BATCH, MAX_THREADS
from compress.storage.file_names import FileName

Batch = Annotated[Natural, Field(le=MAX_BATCH)]


class Target(ShortForm):
    """Where the model will run; every variant that runs on this device competes."""

    short_key = "device"
    """`targets: [cpu]`"""
    name: FileName | None = None
    device: Literal["cpu", "cuda"]
    threads: Natural = Field(1, le=MAX_THREADS)
    batch: Batch = 1
    length: Length | Literal["data"] = "data"
    """Word pieces of every input, or `data`: the lengths of the test set."""
    price: PositiveFloat | None = None
    """What an hour of these threads or this device costs, in the currency of the `service`; the ledger then says what a
    million texts cost."""

    @property
    def title(self) -> str:
        """The name given, or one made of the settings that differ from the default."""
        marks = [f"t{self.threads}" if self.threads != 1 else "", f"b{self.batch}" if self.batch != 1 else ""]
        marks.append("" if self.length == "data" else f"l{self.length}")
        return self.name or "-".join([self.device, *filter(None, marks)])


class TimingGrid(Frozen):
    """Batch sizes and lengths that every variant is also timed at on each target's device; they decide no winner."""

    batch: Annotated[tuple[Batch, ...], as_list] = Field((1, 8, 32), min_length=1)
    length: Annotated[tuple[Length | Literal["data"], ...], as_list] = Field((32, 128), min_length=1)


class Measure(Frozen):
    """What the timing session measures, and for how long."""

    budget: Annotated[Positive, duration] | None = None
    """`30s` or `5m` for everything that is measured: timing at all targets and in the grid, memory, and the machine's
    limits. As many rounds as fit; the precision reached is reported. By default about a minute and a half, of which
    timing at the targets takes half."""
    rounds: Natural | None = Field(None, ge=3, le=10_000)
    """Turns of every variant instead of a budget (30 where only `processes` is given); the turns of all variants
    interleave. Models whose calls take longer than a turn get fewer, down to one a process."""
    processes: Natural | None = Field(None, le=1_000)
    """Fresh processes that the turns of a variant are spread over, instead of a budget (10 if only `rounds` is given):
    two processes of one model differ by a percent or so, and only more of them show by how much. Variants that take
    long to start get fewer."""
    seconds: PositiveFloat = Field(0.25, le=3_600)
    """Length of a turn, shared by timing the model alone and end to end."""
    grid: TimingGrid | None = None
    callers: Annotated[tuple[Annotated[Natural, Field(le=10_000)], ...], as_list] = ()
    """Numbers of concurrent callers, each waiting for its output before it calls again: throughput against p95."""
    memory: Annotated[tuple[Batch, ...], as_list] = (1, 32)
    """Batch sizes at which resident and peak memory while serving are measured."""
    robustness: Annotated[tuple[Annotated[str, name_in("perturbations")], ...], as_list] = ()
    """Perturbations of the test texts under which every variant is scored again."""
    bootstrap: Annotated[Natural, Field(ge=100, le=100_000)] = 1000
    """Resamples for each confidence interval."""

    @property
    def by_rounds(self) -> bool:
        """Whether rounds or processes are set, so that they decide how long timing takes, and no budget."""
        return self.budget is None and (self.rounds is not None or self.processes is not None)
