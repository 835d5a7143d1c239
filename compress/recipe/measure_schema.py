"""The sections about measuring: places of use, and how long and at what the session looks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from compress.file_names import FileName
from compress.recipe.field_types import Count, Frozen, Positive, ShortForm, duration, listed, named


class Target(ShortForm):
    """A place of use; every variant that runs there competes."""

    name: FileName | None = None
    device: Literal["cpu", "cuda"]
    threads: Count = 1
    batch: Count = 1
    length: Count | Literal["data"] = "data"
    """Word pieces of every input, or `data`: the lengths of the test set as they are."""

    @classmethod
    def short_key(cls) -> str:
        """`targets: [cpu]`."""
        return "device"

    @property
    def title(self) -> str:
        """The name given, or one made of what differs from the default."""
        marks = [f"t{self.threads}" if self.threads != 1 else "", f"b{self.batch}" if self.batch != 1 else ""]
        marks.append("" if self.length == "data" else f"l{self.length}")
        return self.name or "-".join([self.device, *filter(None, marks)])


class Grid(Frozen):
    """Batches and lengths that every variant is also timed at on each target's device; nothing is won there."""

    batch: Annotated[tuple[Count, ...], listed] = Field((1, 8, 32), min_length=1)
    length: Annotated[tuple[Count | Literal["data"], ...], listed] = Field((32, 128), min_length=1)


class Measure(Frozen):
    """How long the measuring session may look at each variant, and at what."""

    rounds: int = Field(30, ge=3)
    """Turns that every variant gets; they interleave. Models whose calls take longer than a turn get fewer, down to one
    a process."""
    processes: Count = 10
    """Fresh processes that the turns of a variant are spread over: two processes of one model differ by a percent or
    so, and only more of them tell by how much. Variants that take long to start get fewer."""
    seconds: Positive = 0.25
    """Length of a turn, shared by the model alone and end to end."""
    budget: Annotated[Positive, duration] | None = None
    """`30s` or `5m` for all variants at one target: as many rounds as fit instead of `rounds`; the report says what
    precision that bought."""
    grid: Grid | None = None
    callers: Annotated[tuple[Count, ...], listed] = ()
    """Numbers of callers that each wait for an answer before they ask again: throughput against p95 for each number."""
    memory: Annotated[tuple[Count, ...], listed] = (1, 32)
    """Batches at which resident and peak memory while serving are measured."""
    robustness: Annotated[tuple[Annotated[str, named("perturbations")], ...], listed] = ()
    """Changes to the test texts under which every variant is scored again."""
    bootstrap: int = Field(1000, ge=100)
    """Resamples behind each interval."""
