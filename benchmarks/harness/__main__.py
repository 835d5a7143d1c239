"""`python -m benchmarks.harness`: check the measuring harness, print the table, write report.json and report.md."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import compress
from benchmarks.harness import beside, itself
from benchmarks.harness.model import make_files
from benchmarks.harness.page import page
from benchmarks.harness.rows import HarnessReport, Row
from benchmarks.harness.setting import Setting
from compress.console import Console
from compress.errors import CompressError
from compress.measure.placement import cores_for
from compress.measure.surroundings import look
from compress.recipe.measuring import Measure

BESIDE = ("bare", "bert_perf_test", "benchmark_app")
ITSELF: dict[str, Callable[[Setting], Iterator[Row]]] = {
    "slowed": itself.check_slowed,
    "neighbour": itself.check_neighbour,
    "aa": itself.check_twins,
}
PARTS = (*BESIDE, *ITSELF)
"""In the order in which they run: the longest part last, so that a run that is cut short has the most rows."""

DEFAULT = Measure()
SHORT = Measure(rounds=4, processes=2, seconds=0.5, bootstrap=100)
"""Beside another tool only the median is wanted."""
TRIAL = Measure(rounds=4, processes=2, seconds=0.1, bootstrap=100)
TABLE = ("what", "goal", "found", "passed")


class Store:
    """The report on disk, written anew whenever a row changes."""

    def __init__(self, report: HarnessReport, folder: Path | None) -> None:
        self.report = report
        self._folder = folder

    def put(self, row: Row) -> None:
        """Put the row in the place of the one with its key."""
        stamped = row.model_copy(update={"measured_at": now()})
        self.update(rows=tuple(stamped if one.key == row.key else one for one in self.report.rows))

    def update(self, **facts: object) -> None:
        """Change the report and write it."""
        self.report = self.report.model_copy(update=facts)
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        _write(self._folder / "report.json", self.report.model_dump_json(indent=2) + "\n")
        _write(self._folder / "report.md", page(self.report))


def _write(path: Path, text: str) -> None:
    """Aside and renamed into place, so that a kill leaves the old or the new one."""
    aside = path.with_name(f".{path.name}.new")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)


def now() -> str:
    """This second, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.harness", description="Check the measuring harness.")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between (default: %(default)s)")
    parser.add_argument("--sessions", type=_count, help="of twins; half as many slowed ones (default: 20)")
    parser.add_argument("--turns", type=_count, help="of the harness and of each other tool (default: 6)")
    parser.add_argument("--threads", type=_count, default=1, help="of every model (default: 1)")
    parser.add_argument("--length", type=_count, default=128, help="word pieces of the input (default: 128)")
    parser.add_argument("--minutes", type=float, default=25.0, help="nothing is begun after so many (default: 25)")
    parser.add_argument("--output", type=Path, help="folder of the report (default: reports/harness; none in a trial)")
    parser.add_argument("--trial", action="store_true", help="every part in small, to see that it runs")
    given = parser.parse_args(arguments)
    given.parts = tuple(dict.fromkeys(part.strip() for part in given.only.split(",")))
    unknown = [part for part in given.parts if part not in PARTS]
    if unknown:
        parser.error(f"--only: no part is called '{unknown[0]}'; the parts are {', '.join(PARTS)}")
    given.sessions = given.sessions or (2 if given.trial else 20)
    given.turns = given.turns or (2 if given.trial else 6)
    if given.output is None and not given.trial:
        given.output = Path("reports/harness")
    return given


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("expected 1 or more")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, and return 0 where no claim failed, 1 where one did, 130 where it was interrupted."""
    given = parse(arguments)
    console = Console("human")
    rows = (*beside.planned(BESIDE), *itself.planned(tuple(ITSELF), given.sessions))
    start = time.monotonic()
    report = HarnessReport(
        begun_at=now(),
        made_by=f"compress {compress.__version__}",
        command=command(given),
        trial=given.trial,
        length=given.length,
        threads=given.threads,
        surroundings=look(),
        rows=tuple(row if row.part in given.parts else _left_out(row) for row in rows),
    )
    store = Store(report, given.output)
    try:
        with tempfile.TemporaryDirectory(prefix="compress-harness-") as work:
            _check(given, Path(work).resolve(), store, console, start)
    except CompressError as error:
        console.error(error)
        return error.exit_code
    except KeyboardInterrupt:
        console.warn("interrupted; what was found so far is kept.")
        return 130
    finally:
        _show(store.report, console)
    return 1 if store.report.failed else 0


def _check(given: argparse.Namespace, work: Path, store: Store, console: Console, start: float) -> None:
    """Run all parts that were asked for, telling and writing every row as it comes."""
    console.note("making the model, its ONNX export and its INT8 …")
    files = make_files(work, batch=1, length=given.length)
    store.update(model=files.source)
    setting = Setting(
        files=files,
        work=work,
        cores=cores_for(given.threads),
        threads=given.threads,
        batch=1,
        length=given.length,
        turns=given.turns,
        sessions=given.sessions,
        measure=TRIAL if given.trial else DEFAULT,
        beside=TRIAL if given.trial else SHORT,
        seconds=0.5 if given.trial else 2.0,
        deadline=start + 60.0 * given.minutes,
    )
    for row in _rows(setting, given.parts):
        store.put(row)
        minutes = (time.monotonic() - start) / 60.0
        console.note(f"[{minutes:4.1f} min] {row.what}: {row.found or 'nothing'} · {row.verdict}")
    if setting.over:
        console.warn(f"{given.minutes:g} minutes were up: some rows are not decided. --minutes gives more.")
    store.update(seconds=time.monotonic() - start, load_after=look().load)


def _rows(setting: Setting, parts: Sequence[str]) -> Iterator[Row]:
    yield from beside.compare(setting, parts)
    for name, check in ITSELF.items():
        if name in parts:
            yield from check(setting)


def _left_out(row: Row) -> Row:
    return row.model_copy(update={"reason": "not run: left out by --only"})


def _show(report: HarnessReport, console: Console) -> None:
    shown = ({"what": row.what, "goal": row.goal, "found": row.found, "passed": row.verdict} for row in report.rows)
    console.table(list(shown), TABLE)


def command(given: argparse.Namespace) -> str:
    """The options that matter, as they could be typed."""
    words = ["python -m benchmarks.harness", *(["--trial"] if given.trial else [])]
    if given.parts != PARTS:
        words.append(f"--only {','.join(given.parts)}")
    return " ".join([*words, f"--sessions {given.sessions} --turns {given.turns} --threads {given.threads}"])


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is looked for on the hub
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a stop cleans up like Ctrl-C
    sys.exit(main())
