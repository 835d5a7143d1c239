"""`compress bench`: any models side by side, as ratios to one of them.

`parse_options` parses the options and resolves the models they name, this file runs the sessions, `bench_result` has
the types of their results, and `bench_command` shows them as tables.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from compress import __version__
from compress.console import Console, duration
from compress.data.tokenizer import TOKENIZER_FILE
from compress.errors import CompressError, pluralize
from compress.measure.bench.bench_result import Bench, Comparison, TimedModel
from compress.measure.bench.parse_options import (
    GridOptions,
    ModelEntry,
    chosen_base,
    read_texts,
    resolve_models,
    with_lengths,
)
from compress.measure.machine_snapshot import snapshot_machine
from compress.measure.roofline.roofline import (
    LimitShares,
    MachineLimits,
    cached_limits,
    machine_limits,
    shares_of_limits,
)
from compress.measure.timing.latency import Job, Latency, ratio
from compress.measure.timing.schedule import tokenizer_folder
from compress.measure.timing.timing_session import time_jobs
from compress.recipe.measure_schema import Measure, Target
from compress.runtime.predictor import Placement
from compress.tasks.base import TaskInput

DEFAULTS = Measure()
CPU = Target(device="cpu")


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
    on_session: Callable[[Bench], None] | None = None,
) -> Bench:
    """Time models at every target and return how many times faster each is than the first.

    Args:
        models: model folders, exported folders, bare model files or hub ids; each may end in ``:`` and one of
            `model_formats.RUN_MODES`, which is how it then runs.
        targets: where to time; those without a length are timed at the texts' lengths, or at 128 pieces without texts.
        against: the model that ratios are to, as written in ``models``; the first one by default.
        grid: batches and lengths to time besides the targets' own.
        texts: a file with a text a line, whose lengths are used; times end to end too.
        settings: a budget for each session, or rounds and seconds; callers.
        limits: measure the machine's own limits if they are not cached; cached ones are always reported.
        seed: of the order of turns and of which texts meet in a batch.
        console: shows progress.
        on_session: called with the results so far after every session, so that an interruption loses nothing.
    """
    console, grid = console or Console("quiet"), grid or GridOptions()
    entries = resolve_models(models)
    requested = with_lengths((targets,) if isinstance(targets, Target) else targets, grid, texts)
    own = [target.model_copy(update={"name": None}) for target in requested]
    others = grid.cells(own)
    cells = list(dict.fromkeys((*own, *others)))
    lines = read_texts(texts, [entry.task for entry in entries if entry.task]) if texts else []
    result = Bench(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        made_by=f"compress-encoders {__version__}",
        against=chosen_base(against, [entry.name for entry in entries]),
        models=tuple(entry.described for entry in entries),
        settings=settings,
        texts=len(lines) if texts else None,
        surroundings=snapshot_machine(device=any(target.device == "cuda" for target in own)),
        limits=tuple(_limits(own, limits, console)),
    )
    sessions: dict[Target, Comparison] = {}
    for number, cell in enumerate(cells, 1):
        if len(cells) > 1:
            rest = f" ({duration((len(cells) - number + 1) * settings.budget)} remaining)" if settings.budget else ""
            console.note(f"{number} of {len(cells)}: {_title(cell)}{rest}")
        # Only the targets' own sessions have callers; at every cell of a grid they would take most of the time.
        chosen = settings if cell in own else settings.model_copy(update={"callers": ()})
        sessions[cell] = _run_session(cell, entries, result, lines, chosen, seed, console)
        targets_done, grid_done = (tuple(sessions[each] for each in part if each in sessions) for part in (own, others))
        result = result.model_copy(update={"targets": targets_done, "grid": grid_done})
        if on_session is not None:
            on_session(result)
    return result


def _title(cell: Target) -> str:
    """Return `cpu, 2 threads, batch 8, 64 pieces`."""
    pieces = "the texts' own lengths" if cell.length == "data" else f"{cell.length} pieces"
    return f"{cell.device}, {pluralize(cell.threads, 'thread')}, batch {cell.batch}, {pieces}"


def _run_session(
    cell: Target,
    entries: Sequence[ModelEntry],
    so_far: Bench,
    lines: Sequence[TaskInput],
    settings: Measure,
    seed: int,
    console: Console,
) -> Comparison:
    start = time.monotonic()
    results = {entry.name: known for entry in entries if (known := _not_timed(entry, cell)) is not None}
    length = None if cell.length == "data" else cell.length
    placement = Placement(cell.device, cell.threads)
    jobs = [
        Job(entry.name, entry.path, entry.variant, placement, cell.batch, length)
        for entry in entries
        if entry.path is not None and entry.name not in results
    ]
    if jobs:
        results |= time_jobs(jobs, lines, settings, seed=seed, console=console)
    models = {
        entry.name: TimedModel(
            latency=results[entry.name],
            ratio=ratio(results[so_far.against], results[entry.name]),
            shares=_shares(results[entry.name], entry, cell, so_far.limits),
        )
        for entry in entries
    }
    placed = cell.model_dump(exclude={"name"})
    return Comparison(title=_title(cell), **placed, models=models, seconds=time.monotonic() - start)


def _limits(targets: Sequence[Target], measure: bool, console: Console) -> Iterator[MachineLimits]:
    """Yield the machine's limits, once for each device and number of threads."""
    for device, threads in dict.fromkeys((target.device, target.threads) for target in targets):
        try:
            limits = machine_limits(threads, device, console) if measure else cached_limits(threads, device)
        except CompressError as error:
            console.warn(error.message)
            continue
        if limits is not None:
            yield limits


def _shares(latency: Latency, entry: ModelEntry, cell: Target, limits: Sequence[MachineLimits]) -> LimitShares | None:
    info, size = entry.info, entry.size
    known = next((each for each in limits if (each.device, each.threads) == (cell.device, cell.threads)), None)
    if known is None or not latency.timed:
        return None
    if info is None or info.shape is None or size is None:
        return LimitShares(reason="the model's shape is unknown")
    return shares_of_limits(latency, info.shape, known, entry.precision, size.bytes_weights, cell.batch)


def _not_timed(entry: ModelEntry, cell: Target) -> Latency | None:
    """Return why a model cannot be timed here, as far as that is known before it is opened."""
    if entry.path is None:
        return Latency(status="failed", reason=entry.reason)
    reason = None
    if cell.length == "data":
        if entry.task is None and tokenizer_folder(entry.path) is None:
            reason = f"it has no {TOKENIZER_FILE}, so texts cannot be tokenized; use length=128 instead"
    elif entry.max_length is not None and cell.length > entry.max_length:
        reason = f"it reads {entry.max_length} pieces at most, and {cell.length} were requested"
    return Latency(status="not measured", reason=reason) if reason else None
