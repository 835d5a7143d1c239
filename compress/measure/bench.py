"""`compress bench`: any models side by side, as ratios to the first one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from compress.console import Console, Format
from compress.errors import CompressError, UsageError, nearest
from compress.folder import find_info
from compress.measure.facts import Score
from compress.measure.footprint import footprint
from compress.measure.latency import Job, Latency, ratio
from compress.measure.session import time_jobs
from compress.recipe.schema import Measure, Target
from compress.runtime.predictor import Place
from compress.runtime.text import Text, read_texts

DEFAULT_LENGTH = 128
"""Word pieces of every input where no texts are given."""

HUMAN = ("model", "status", "p50 ms", "p95 ms", "faster", "rows/s", "load s", "peak MiB", "size MB")

Rows = list[dict[str, Any]]


def columns(format: Format) -> Sequence[str] | None:
    """What people see; json and quiet get everything."""
    return HUMAN if format == "human" else None


def read_target(text: str) -> Target:
    """`cpu,threads=2,batch=8,length=64` as a target."""
    device, *pairs = [part.strip() for part in text.split(",")]
    fields: dict[str, Any] = {"device": device}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or name not in ("threads", "batch", "length"):
            raise UsageError(f"--target {text}: '{pair}' is not one of threads=N, batch=N, length=N")
        fields[name] = value
    try:
        return Target.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        if first["loc"] == ("device",):
            raise UsageError(
                f"--target {text}: no device is called '{device}'{nearest(device, ('cpu', 'cuda'))}"
            ) from error
        raise UsageError(f"--target {text}: {first['loc'][0]}: {first['msg']}") from error


def bench(
    models: Sequence[str],
    target: Target,
    *,
    texts: Path | None = None,
    rounds: int = 10,
    seconds: float = 0.5,
    console: Console | None = None,
) -> Rows:
    """Time models at a target and say how many times faster each is than the first.

    Args:
        models: model folders, exported folders, ONNX files or hub ids.
        target: where; its length counts where no texts are given.
        texts: a file with a text a line, whose lengths are used; times end to end too.
        rounds: turns that every model gets.
        seconds: how long a turn takes.
        console: is told of progress.
    """
    try:
        settings = Measure(rounds=rounds, seconds=seconds)
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"--{first['loc'][0]}: {first['msg']}") from error
    length = None if texts else (DEFAULT_LENGTH if target.length == "data" else target.length)
    place = Place(target.device, target.threads)
    found: dict[str, Latency] = {}
    jobs = []
    for model in dict.fromkeys(models):
        with _telling(model, found):
            jobs.append(Job(model, _folder(model), None, place, target.batch, length))
    lines = _read_texts(texts, pairs=any(_reads_pairs(job.folder) for job in jobs)) if texts else ()
    found |= time_jobs(jobs, lines, settings, console=console)
    folders = {job.key: job.folder for job in jobs}
    return [_row(model, found[model], found[models[0]], folders.get(model)) for model in dict.fromkeys(models)]


@contextmanager
def _telling(model: str, found: dict[str, Latency]) -> Iterator[None]:
    """A model that is not there gets a row that says so; the others are timed all the same."""
    try:
        yield
    except CompressError as error:
        found[model] = Latency(status="failed", reason=error.message)


def _folder(model: str) -> Path:
    """The local place of a model; a hub id is downloaded."""
    path = Path(model).expanduser()
    if path.exists():
        return path
    if path.suffix == ".onnx":
        raise UsageError(f"there is no file {model}.")
    from compress.models.fetch import fetch

    return fetch(model)


def _reads_pairs(folder: Path) -> bool:
    info = find_info(folder)
    return info is not None and info.task is not None and len(info.task.text) == 2


def _read_texts(path: Path, *, pairs: bool) -> list[Text]:
    try:
        with path.open(encoding="utf-8-sig") as stream:
            lines = [text for batch in read_texts(stream, 1024, pairs=pairs, from_lines=True) for text in batch]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--texts {path} cannot be read: {error}") from error
    if not lines:
        raise UsageError(f"--texts {path} holds no text.")
    return lines


def _row(model: str, latency: Latency, first: Latency, folder: Path | None) -> dict[str, Any]:
    timing = latency.model
    faster = ratio(first, latency)
    size = _size(folder)
    return {
        "model": model,
        "status": latency.status if latency.reason is None else f"{latency.status}: {latency.reason}",
        "p50 ms": _interval(timing.p50) if timing else None,
        "p95 ms": round(timing.p95.value, 3) if timing and timing.p95 else None,
        "faster": _interval(faster),
        "rows/s": round(latency.rows_per_second, 1) if latency.rows_per_second else None,
        "load s": round(latency.load_seconds, 2) if latency.load_seconds else None,
        "peak MiB": round(latency.peak_memory / 2**20) if latency.peak_memory else None,
        "size MB": round(size / 1e6, 2) if size else None,
        "latency": latency.model_dump(mode="json"),
        "ratio": faster.model_dump() if faster else None,
        "bytes": size,
    }


def _size(folder: Path | None) -> int | None:
    try:
        return footprint(folder).bytes_total if folder else None
    except CompressError:
        return None


def _interval(score: Score | None) -> str | None:
    return f"{score.value:.3g} [{score.low:.3g}, {score.high:.3g}]" if score else None
