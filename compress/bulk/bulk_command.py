"""`compress predict --file IN --to OUT`: files or globs, here or where fsspec reads, into a file or a folder."""

import glob
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from compress.bulk.answer_part import answer_part, taken
from compress.bulk.bulk_job import FINISHED_FILE, BulkJob, Shard
from compress.bulk.bulk_predictor import ERROR, BulkPredictor, text_columns
from compress.bulk.read_table import ENDINGS, LINE, TableFile, cells_of, format_of
from compress.bulk.run_bulk_job import check_columns, make_folder, merge_shards, run_job
from compress.bulk.write_table import WRITTEN_FORMATS, output_format
from compress.console import Console
from compress.environment import require, usable_cores
from compress.errors import CompressError, DataError, ModelError, UsageError, pluralize
from compress.model_folder.model_info import FolderInfo, read_info
from compress.runtime.predict_command import format_prediction
from compress.runtime.predictor import ONE_THREAD, Placement
from compress.runtime.text_model import answer_fields, depends_on_batch, usual_batch
from compress.storage.file_names import cache_folder
from compress.tasks import kind_of


@dataclass(frozen=True)
class BulkOptions:
    """What `compress predict` was asked for."""

    files: tuple[str, ...]
    to: str | None
    text: tuple[str, ...] = ()
    encoding: str = "utf-8"
    prefix: str = ""
    probabilities: bool = False
    bad_rows: str = "refuse"
    shard: Shard | None = None
    merge: bool = False
    replace: bool = False
    workers: int | None = None
    batch: int | None = None
    placement: Placement = ONE_THREAD

    def check(self, typed: Sequence[str]) -> None:
        """Refuse options that do not go together."""
        if typed and self.files:
            raise UsageError(
                f"give texts as arguments or with --file, not both; got {len(typed)} arguments and {self.files[0]}."
            )
        if self.encoding != "utf-8" and not self.files:
            raise UsageError("--encoding is of --file; other texts are UTF-8.")
        if self.to and not self.files:
            raise UsageError(f"--to {self.to} needs --file.", hint="compress predict MODEL --file IN --to OUT")
        if self.to:
            return
        given = {
            "--shard": self.shard,
            "--merge": self.merge,
            "--replace": self.replace,
            "--workers": self.workers,
            "several --file": len(self.files) > 1,
        }
        if wrong := [name for name, value in given.items() if value]:
            raise UsageError(f"{wrong[0]} needs --to OUT, where the answers go.")
        of_columns = {"--text": self.text, "--prefix": self.prefix, "--bad-rows": self.bad_rows != "refuse"}
        if wrong := [name for name, value in of_columns.items() if value and not any(map(is_table, self.files))]:
            raise UsageError(f"{wrong[0]} is of files with columns: --file IN.csv, or --file IN --to OUT.")


def predict_files(folder: Path, options: BulkOptions, console: Console) -> None:
    """Answer every file, one after another; the same command goes on with those that are missing."""
    assert options.to
    files = _expanded(options.files)
    finished: list[Path] = []
    info = read_info(folder)
    usual = usual_batch(info.variant)
    if depends_on_batch(info.variant) and options.batch not in (None, usual):
        console.warn(f"--batch {options.batch}: answers depend on the batch; {usual} run together, as were scored.")
    targets = _targets(files, options.to)
    for name, target in zip(files, targets, strict=True) if len(files) > 1 else ():
        if "://" not in name:  # before any file is answered; others would be copied twice
            with local_input(name) as path:
                check_columns(_job(folder, info, path, name, Path(target), options))
    for name, target in zip(files, targets, strict=True):
        with local_input(name) as path, _local_output(target) as (local, is_remote):
            if is_remote and (options.shard or options.merge):
                raise UsageError(
                    f"{target}: shards write their parts beside the output, in a folder that all of them share.",
                    hint="a network disk or a mounted bucket",
                )
            job = _job(folder, info, path, name, local, options)
            job = replace(job, is_one_of_many=is_remote or len(files) > 1)
            if is_remote and not (job.replace or job.is_finished) and _exists(target):
                raise UsageError(f"{target} exists.", hint="--replace writes it anew")
            if options.merge:
                merge_shards(job, console)
            else:
                run_job(job, console)
            if not options.shard and (job.parts_folder / FINISHED_FILE).is_file():
                finished.append(local.parent if is_remote else job.parts_folder)
    for marks in finished:
        shutil.rmtree(marks)


def _job(folder: Path, info: FolderInfo, path: Path, name: str, target: Path, options: BulkOptions) -> BulkJob:
    if info.task is None:
        raise ModelError(f"{folder} does not state which task it was trained for, so it cannot read texts.")
    columns = text_columns(info.task, options.text)
    read = format_of(name)
    if read == "txt" and kind_of(info.task).reads_one_text and not _has_tab(TableFile(path, read, options.encoding)):
        columns = columns[:1]
    fields = answer_fields(info.task, len(columns), options.probabilities)
    form = output_format(target.name)
    if form == "npy" and fields != ("embedding",):
        raise UsageError(f"{target.name}: .npy holds embeddings; this model answers {', '.join(fields)}.")
    if read == "txt" and options.text:
        raise UsageError(f"--text: {name} has no columns, a line is a text.")
    depends = depends_on_batch(info.variant)
    cores = max(1, usable_cores() // options.placement.threads)
    return BulkJob(
        model=folder,
        # Models whose columns are numbers were trained on files without a header.
        file=TableFile(path, read, options.encoding, not all(map(str.isdecimal, columns)), name),
        target=target,
        format=form,
        text=columns,
        names=tuple(options.prefix + field for field in fields),
        batch=usual_batch(info.variant) if depends else options.batch,
        prefix=options.prefix,
        probabilities=options.probabilities,
        bad_rows=options.bad_rows,
        shard=options.shard or Shard(),
        device=options.placement.device,
        threads=options.placement.threads,
        workers=options.workers or (1 if options.placement.device == "cuda" else cores),
        replace=options.replace,
    )


def _has_tab(lines: TableFile) -> bool:
    """Whether the first line of a file that is not empty has two texts."""
    part = next(lines.parts(), None)
    first = next((line for (line,) in cells_of(part, (LINE,), None) if line.strip()), "") if part else ""
    return "\t" in first


def is_table(name: str) -> bool:
    """Return whether a file has columns, by its name."""
    return ENDINGS.get(Path(name.removesuffix(".gz")).suffix.lower(), "txt") != "txt"


def show_table(folder: Path, name: str, options: BulkOptions, console: Console) -> None:
    """Show the answer to each row of a file on stdout: a line a row, in json with the row's columns of text."""
    predictor = BulkPredictor(
        folder,
        text=options.text,
        prefix=options.prefix,
        probabilities=options.probabilities,
        batch=options.batch,
        device=options.placement.device,
        threads=options.placement.threads,
    )
    error = [options.prefix + ERROR] if options.bad_rows == "keep" else []
    if used := [column for column in (*predictor.names, *error) if column in predictor.columns]:
        raise taken(name, used[0])
    bad = 0
    with local_input(name) as path:
        header = not all(map(str.isdecimal, predictor.columns))
        file = TableFile(path, format_of(name), options.encoding, header, name)
        file.check_columns(predictor.columns)
        for part in file.parts():
            done = answer_part(part, predictor, name, keep_bad=bool(error))
            bad += len(done.faults)
            for index, (row, answer) in enumerate(zip(done.cells, done.answers, strict=True)):
                shown = {options.prefix + field: answer[field] for field in predictor.fields}
                fault = dict.fromkeys(error, done.faults.get(index))
                if console.format == "json":
                    console.jsonl({**dict(zip(predictor.columns, row, strict=True)), **shown, **fault})
                else:
                    console.line(format_prediction({**shown, **fault} if index in done.faults else shown))
    if bad:
        console.warn(f"{name}: {pluralize(bad, 'row')} could not be read.")


def _expanded(names: Sequence[str]) -> list[str]:
    """Return the files that names and patterns stand for, in order, each once."""
    found: list[str] = []
    for name in names:
        if "://" in name or not glob.has_magic(name) or Path(name).exists():
            found.append(name)
        elif matching := sorted(map(str, _matching(name))):
            found += matching
        else:
            raise UsageError(f"no file matches {name}.")
    return list(dict.fromkeys(found))


def _matching(pattern: str) -> Iterable[Path]:
    path = Path(pattern)
    return Path(path.anchor).glob(str(path.relative_to(path.anchor)))


def _targets(names: Sequence[str], to: str) -> list[str]:
    """Return where the answers to each file go: into a folder where there are several."""
    is_folder = to.endswith("/") or ("://" not in to and Path(to).is_dir()) or not Path(to).suffix
    if not is_folder:
        if len(names) > 1:
            raise UsageError(f"{len(names)} files are given, so --to names a folder; got the file {to}.")
        return [to]
    if "://" not in to and Path(to).exists() and not Path(to).is_dir():
        endings = ", ".join(f".{name}" for name in WRITTEN_FORMATS)
        raise UsageError(f"{to} exists and is no folder; --to names a folder, or a file that ends in {endings}.")
    targets = [f"{to.rstrip('/')}/{_stem(name)}.{_written_format(name)}" for name in names]
    if twice := sorted({each for each in targets if targets.count(each) > 1}):
        raise UsageError(f"several files would be written to {twice[0]}.", hint="run them with a --to of their own")
    return targets


def _stem(name: str) -> str:
    return Path(name.rpartition("/")[2].removesuffix(".gz")).stem


def _written_format(name: str) -> str:
    """Return what the answers to a file are written as in a folder: as it is itself, or as a csv."""
    form = format_of(name)
    return form if form in ("parquet", "jsonl") else "csv"


@contextmanager
def local_input(name: str) -> Iterator[Path]:
    """Yield a file, copied to this machine first where it is elsewhere."""
    if "://" not in name:
        path = Path(name)
        if not path.is_file():
            kind = "is a folder" if path.is_dir() else "is not there"
            raise UsageError(f"{name} {kind}.", hint="--file takes files, or a pattern in quotes")
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name.rpartition("/")[2]
        _transfer(name, path, to_remote=False)
        yield path


@contextmanager
def _local_output(target: str) -> Iterator[tuple[Path, bool]]:
    """Yield where a file is written, and whether it is elsewhere: then it is sent there in the end."""
    if "://" not in target:
        make_folder(Path(target).absolute().parent, target)
        yield Path(target), False
        return
    import hashlib

    folder = cache_folder() / "bulk" / hashlib.sha256(target.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    local = folder / target.rpartition("/")[2]
    yield local, True
    _transfer(target, local, to_remote=True)


def _exists(url: str) -> bool:
    """Return whether something is at a place that fsspec reaches."""
    fsspec = require("fsspec", "bulk")
    with _reaching(url, "read"):
        system, path = fsspec.core.url_to_fs(url)
        return bool(system.exists(path))


def _transfer(url: str, path: Path, *, to_remote: bool) -> None:
    """Copy a file from or to where fsspec reaches it."""
    fsspec = require("fsspec", "bulk")
    with _reaching(url, "written" if to_remote else "read"):
        if to_remote:
            with path.open("rb") as source, fsspec.open(url, "wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
        else:
            with fsspec.open(url, "rb") as source, path.open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)


@contextmanager
def _reaching(url: str, done: str) -> Iterator[None]:
    """Name the place in errors, which are those of whatever library reaches it."""
    try:
        yield
    except ImportError as error:
        raise CompressError(f"{url}: {error}") from error
    except FileNotFoundError as error:
        raise UsageError(f"{url} is not there.") from error
    except Exception as error:  # of whatever library reaches it: botocore has its own
        raise DataError(f"{url} cannot be {done}: {error}") from error
