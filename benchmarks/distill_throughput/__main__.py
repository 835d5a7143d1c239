"""`python -m benchmarks.distill_throughput`: race, print the tables, write report.json and report.md."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import compress
from benchmarks.distill_throughput.cases import CASES
from benchmarks.distill_throughput.contestants import CONTESTANTS, Place
from benchmarks.distill_throughput.page import LANES, RATIOS, lane_cells, page, ratio_cells
from benchmarks.distill_throughput.race import Setting, planned, race
from benchmarks.distill_throughput.rows import Race, ThroughputReport
from benchmarks.harness.__main__ import now
from compress.console import Console
from compress.errors import CompressError
from compress.measure.placement import cores_for
from compress.measure.surroundings import look

ROWS, LEARNT, ROUNDS = 1920, 8000, 3
TRIAL_ROWS, TRIAL_LEARNT = 96, 512


class Store:
    """The report on disk, written anew whenever something was found."""

    def __init__(self, report: ThroughputReport, folder: Path | None) -> None:
        self.report = report
        self._folder = folder

    def put(self, race: Race) -> None:
        """Put the race in the place of the one with its key."""
        self.update(races=tuple(race if one.key == race.key else one for one in self.report.races))

    def update(self, **facts: object) -> None:
        """Change the report and write it."""
        self.report = self.report.model_copy(update=facts)
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "report.json").write_text(self.report.model_dump_json(indent=2) + "\n", encoding="utf-8")
        (self._folder / "report.md").write_text(page(self.report), encoding="utf-8")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.distill_throughput", description="Distillation beside other tools."
    )
    parser.add_argument("--only", default=",".join(CONTESTANTS), help="contestants (default: %(default)s)")
    parser.add_argument("--races", default=",".join(CASES), help="races (default: %(default)s)")
    parser.add_argument("--rounds", type=_count, help=f"of all contestants (default: {ROUNDS}; 1 in a trial)")
    parser.add_argument("--rows", type=_count, help=f"of the first race; others take a quarter (default: {ROWS})")
    parser.add_argument("--batch", type=_count, default=32, help="rows of a step (default: 32)")
    parser.add_argument("--threads", type=_count, default=2, help="of every contestant (default: 2)")
    parser.add_argument("--out", type=Path, help="folder of the report (default: reports/distill_throughput)")
    parser.add_argument("--trial", action="store_true", help="everything in small, to see that it runs")
    given = parser.parse_args(arguments)
    given.contestants = _named(parser, "--only", "contestant", given.only, tuple(CONTESTANTS))
    given.cases = _named(parser, "--races", "race", given.races, tuple(CASES))
    given.rounds = given.rounds or (1 if given.trial else ROUNDS)
    given.rows = given.rows or (TRIAL_ROWS if given.trial else ROWS)
    given.learnt = TRIAL_LEARNT if given.trial else LEARNT
    if given.out is None and not given.trial:
        given.out = Path("reports/distill_throughput")
    return given


def _named(parser: argparse.ArgumentParser, option: str, what: str, text: str, known: Sequence[str]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"{option}: no {what} is called '{unknown[0]}'; there are {', '.join(known)}")
    return names


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("expected 1 or more")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """Race, and return 0, whatever goals are met; 1 where somebody did not run, 130 where it was interrupted."""
    given = parse(arguments)
    console, start = Console("human"), time.monotonic()
    report = ThroughputReport(
        begun_at=now(),
        made_by=f"compress {compress.__version__}",
        command=command(given),
        trial=given.trial,
        batch=given.batch,
        threads=given.threads,
        surroundings=look(),
        races=tuple(planned(CASES[key], given.contestants, given.rows, given.batch) for key in given.cases),
    )
    store = Store(report, given.out)
    try:
        with tempfile.TemporaryDirectory(prefix="compress-race-") as work:
            _race(given, Path(work).resolve(), store, console, start)
    except CompressError as error:
        console.error(error)
        return error.exit_code
    except KeyboardInterrupt:
        console.warn("interrupted; what was found so far is kept.")
        return 130
    finally:
        _show(store.report, console)
    return 1 if store.report.failed else 0


def _race(given: argparse.Namespace, work: Path, store: Store, console: Console, start: float) -> None:
    """Make what is needed and run every race, telling and writing each turn as it comes."""
    import torch

    from benchmarks.distill_throughput.material import PAIRS, Workshop

    torch.set_num_threads(given.threads)
    workshop = Workshop(work, given.rows, given.learnt, console)
    place = Place(given.threads, cores_for(given.threads))
    setting = Setting(workshop, place, given.rounds, given.rows, given.batch)
    store.update(data=workshop.source, metric=workshop.task.metric)
    if any(CASES[key].scored for key in given.cases):
        student = workshop.student(workshop.teacher, PAIRS)
        store.update(teacher_score=workshop.score(workshop.teacher), start_score=workshop.score(student))
    for before in store.report.races:
        for found in race(CASES[before.key], before, setting):
            store.put(found)
            told = ", ".join(f"{lane.key} {lane.speeds[-1]:.0f}" for lane in found.lanes if lane.speeds)
            minutes = (time.monotonic() - start) / 60.0
            console.note(f"[{minutes:4.1f} min] {found.title}: {told or 'nobody yet'} (examples a second)")
    store.update(seconds=time.monotonic() - start, load_after=look().load)


def _show(report: ThroughputReport, console: Console) -> None:
    """The tables of all races."""
    for found in report.races:
        if found.reason is not None:
            console.note(f"{found.title}: {found.reason}")
            continue
        console.table([lane_cells(lane) for lane in found.lanes], LANES, found.title)
        console.table([ratio_cells(ratio) for ratio in found.ratios], RATIOS)


def command(given: argparse.Namespace) -> str:
    """The options that matter, as they could be typed."""
    words = ["python -m benchmarks.distill_throughput", *(["--trial"] if given.trial else [])]
    if given.contestants != tuple(CONTESTANTS):
        words.append(f"--only {','.join(given.contestants)}")
    if given.cases != tuple(CASES):
        words.append(f"--races {','.join(given.cases)}")
    return " ".join([*words, f"--rounds {given.rounds} --rows {given.rows} --threads {given.threads}"])


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is looked for on the hub
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a stop cleans up like Ctrl-C
    sys.exit(main())
