"""`compress bench`: any models side by side, as ratios to one of them.

`words` reads the options, `models` finds what they name, this file runs the sessions, `result` is what they leave and
`tables` what people see of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from compress import __version__
from compress.console import Console, duration
from compress.data.tokenizer import TOKENIZER_FILE
from compress.errors import CompressError
from compress.measure.bench.bench_models import ModelEntry, check_text, chosen_base, read_models, texts_read
from compress.measure.bench.bench_result import Bench, BenchModel, Comparison, TimedModel
from compress.measure.bench.parse_options import GridOptions, Length, read_lines, with_lengths
from compress.measure.interference.machine_snapshot import snapshot_machine
from compress.measure.roofline.roofline import (
    LimitShares,
    MachineLimits,
    cached_limits,
    machine_limits,
    shares_of_limits,
)
from compress.measure.timing.latency import Job, Latency, ratio
from compress.measure.timing.timing_inputs import Text
from compress.measure.timing.timing_session import time_jobs
from compress.measure.timing.untasked_texts import tokenizer_folder
from compress.recipe.measure_schema import Measure, Target
from compress.runtime.predictor import Placement

DEFAULT_LENGTH = 128
"""Word pieces of every input where no texts are given and no length is asked for."""

ALONE = "it does not say which task it answers: the model alone is timed, not from text to answer"

DEFAULTS = Measure()
CPU = Target(device="cpu")


@dataclass(frozen=True)
class Cell:
    """One session to be: where, how many rows at once, how long they are."""

    target: Target
    batch: int
    length: Length

    @property
    def place(self) -> Placement:
        """The device and the threads."""
        return Placement(self.target.device, self.target.threads)

    @property
    def key(self) -> tuple[Placement, int, Length]:
        """Cells with the same one are the same session."""
        return (self.place, self.batch, self.length)

    @property
    def title(self) -> str:
        """`cpu, 2 threads, batch 8, 64 pieces`."""
        threads = "1 thread" if self.target.threads == 1 else f"{self.target.threads} threads"
        pieces = "the texts' own lengths" if self.length == "data" else f"{self.length} pieces"
        return f"{self.target.device}, {threads}, batch {self.batch}, {pieces}"


def bench(
    models: Sequence[str],
    targets: Target | Sequence[Target] = CPU,
    *,
    against: str | None = None,
    grid: GridOptions | None = None,
    texts: Path | None = None,
    settings: Measure = DEFAULTS,
    limits: bool = False,
    seed: int = 0,
    console: Console | None = None,
    kept: Callable[[Bench], None] | None = None,
) -> Bench:
    """Time models at every target and say how many times faster each is than the first.

    Args:
        models: model folders, exported folders, bare model files or hub ids; each may end in ``:`` and one of
            `runtime.WAYS`, which is how it then runs.
        targets: where; those that name no length are timed at the texts' lengths, or at 128 pieces without texts.
        against: the model that ratios are to, as it stands in ``models``; the first one by default.
        grid: batches and lengths to look at beside the targets' own.
        texts: a file with a text a line, whose lengths are used; times end to end too.
        settings: rounds and seconds, or a budget for each session; callers.
        limits: measure the machine's own limits where that has not been done yet; known ones are told anyway.
        seed: of the order of turns and of which texts meet in a batch.
        console: is told of progress.
        kept: is given what there is so far after every session, so that nothing is lost to an interruption.
    """
    console = console or Console("quiet")
    entries = read_models(models)
    base = chosen_base(against, [entry.name for entry in entries])
    together = (targets,) if isinstance(targets, Target) else tuple(targets)
    cells = grid or GridOptions()
    wanted = with_lengths(together, cells, texts is not None, DEFAULT_LENGTH)
    lines = read_lines(texts, texts_read(entries), partial(check_text, entries=entries)) if texts else []
    first = [Cell(target, target.batch, target.length) for target in wanted]
    rest = list(_cells(first, cells))
    found = _begin(entries, base, settings, len(lines) if texts else None, wanted)
    found = found.model_copy(update={"limits": tuple(_limits(wanted, limits, console))})
    sessions: dict[object, Comparison] = {}
    targeted = {one.key for one in first}
    looks = {one.key: one for one in (*first, *rest)}
    given_up: dict[object, str] = {}
    _foretell(len(looks), settings, console)
    for place, one in enumerate(looks.values()):
        if len(looks) > 1:
            console.note(f"{place + 1} of {len(looks)}: {one.title}")
        # Callers are asked for at the targets; at every cell of a grid they would take most of the time.
        chosen = settings if one.key in targeted else settings.model_copy(update={"callers": ()})
        sessions[one.key] = _session(one, entries, found, lines, chosen, given_up, seed, console)
        found = found.model_copy(
            update={
                "targets": tuple(sessions[each.key] for each in first if each.key in sessions),
                "grid": tuple(sessions[each.key] for each in rest if each.key in sessions),
            }
        )
        if kept is not None:
            kept(found)
    return found


def _begin(
    entries: Sequence[ModelEntry], base: str, settings: Measure, texts: int | None, targets: Sequence[Target]
) -> Bench:
    return Bench(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        made_by=f"compress-encoders {__version__}",
        against=base,
        models=tuple(
            BenchModel(name=entry.name, variant=entry.variant.name if entry.variant else None, footprint=entry.size)
            for entry in entries
        ),
        settings=settings,
        texts=texts,
        surroundings=snapshot_machine(device=any(target.device == "cuda" for target in targets)),
    )


def _cells(first: Sequence[Cell], cells: GridOptions) -> Iterator[Cell]:
    """The grid of each place, once; a side that was not given is the target's own."""
    seen = set()
    for one in first if cells else ():
        for batch in cells.batch or (one.batch,):
            for length in cells.length or (one.length,):
                cell = Cell(one.target, batch, length)
                if cell.key not in seen:
                    seen.add(cell.key)
                    yield cell


def _foretell(count: int, settings: Measure, console: Console) -> None:
    if settings.budget is not None and count > 1:
        console.note(f"{count} sessions of {duration(settings.budget)} each: {duration(count * settings.budget)}")


def _session(
    one: Cell,
    entries: Sequence[ModelEntry],
    so_far: Bench,
    lines: Sequence[Text],
    settings: Measure,
    given_up: dict[object, str],
    seed: int,
    console: Console,
) -> Comparison:
    start = time.monotonic()
    found = {entry.name: missing for entry in entries if (missing := _missing(entry, one)) is not None}
    length = None if one.length == "data" else one.length
    jobs = [
        Job(entry.name, entry.path, entry.variant, one.place, one.batch, length)
        for entry in entries
        if entry.path is not None and entry.name not in found
    ]
    if jobs:
        found |= time_jobs(jobs, lines, settings, seed=seed, console=console, given_up=given_up)
    if one.length == "data":
        found |= {entry.name: _alone(found[entry.name]) for entry in entries if entry.task is None}
    return Comparison(
        title=one.title,
        device=one.target.device,
        threads=one.target.threads,
        batch=one.batch,
        length=one.length,
        models={
            entry.name: TimedModel(
                latency=found[entry.name],
                ratio=ratio(found[so_far.against], found[entry.name]),
                shares=_shares(found[entry.name], entry, one, so_far.limits),
            )
            for entry in entries
        },
        seconds=time.monotonic() - start,
    )


def _limits(targets: Sequence[Target], measure: bool, console: Console) -> Iterator[MachineLimits]:
    """The machine's own, once for each place that is asked for and there."""
    for device, threads in dict.fromkeys((target.device, target.threads) for target in targets):
        try:
            known = machine_limits(threads, device, console) if measure else cached_limits(threads, device)
        except CompressError as error:
            console.warn(error.message)
            continue
        if known is not None:
            yield known


def _shares(latency: Latency, entry: ModelEntry, one: Cell, limits: Sequence[MachineLimits]) -> LimitShares | None:
    info, size = entry.info, entry.size
    known = next(
        (each for each in limits if (each.device, each.threads) == (one.target.device, one.target.threads)), None
    )
    if known is None or not latency.timed:
        return None
    if info is None or info.shape is None or size is None:
        return LimitShares(reason="the model does not tell its shape")
    return shares_of_limits(latency, info.shape, known, entry.precision, size.bytes_weights, one.batch)


def _alone(latency: Latency) -> Latency:
    """Why there is no time from text to answer, beside what else there is to say."""
    if not latency.timed:
        return latency
    return latency.model_copy(update={"reason": "; ".join(filter(None, (latency.reason, ALONE)))})


def _missing(entry: ModelEntry, one: Cell) -> Latency | None:
    """Why a model cannot be timed here, as far as that is known before it is opened."""
    if entry.path is None:
        return Latency(status="failed", reason=entry.reason)
    if one.length == "data":
        if entry.task is None and tokenizer_folder(entry.path) is None:
            reason = f"it has no {TOKENIZER_FILE}, so texts mean nothing to it; length=128 would do"
            return Latency(status="not measured", reason=reason)
    elif entry.reach is not None and one.length > entry.reach:
        reason = f"it reads {entry.reach} pieces at most, and {one.length} were asked for"
        return Latency(status="not measured", reason=reason)
    return None
