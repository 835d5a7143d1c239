"""`python -m benchmarks.distill_throughput`: race, print the tables, write report.json and report.md."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.distill_throughput.contestants import CONTESTANTS, Place
from benchmarks.distill_throughput.race import Setting, planned, race
from benchmarks.distill_throughput.race_cases import CASES
from benchmarks.distill_throughput.race_results import ThroughputReport
from benchmarks.distill_throughput.throughput_page import LANES, RATIOS, lane_cells, page, ratio_cells
from benchmarks.report_store import Store, beginning, carry_out, chosen, in_place, positive, run
from compress.console import Console
from compress.measure.timing.cpu_affinity import choose_cores

ROWS, TRIAL_ROWS, ROUNDS = 1920, 96, 3


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.distill_throughput", description="Speed of distillation compared with other tools."
    )
    parser.add_argument("--only", default=",".join(CONTESTANTS), help="contestants (default: %(default)s)")
    parser.add_argument("--races", default=",".join(CASES), help="races (default: %(default)s)")
    parser.add_argument("--rounds", type=positive, help=f"of all contestants (default: {ROUNDS}; 1 in a trial)")
    parser.add_argument("--rows", type=positive, help=f"of the first race; others take a quarter (default: {ROWS})")
    parser.add_argument("--batch", type=positive, default=32, help="rows of a step (default: 32)")
    parser.add_argument("--threads", type=positive, default=2, help="of every contestant (default: 2)")
    parser.add_argument("--out", type=Path, help="folder of the report (default: reports/distill_throughput)")
    parser.add_argument("--trial", action="store_true", help="everything in small, to see that it runs")
    given = parser.parse_args(arguments)
    given.contestants = chosen(parser, "--only", given.only, tuple(CONTESTANTS))
    given.cases = chosen(parser, "--races", given.races, tuple(CASES))
    given.rounds = given.rounds or (1 if given.trial else ROUNDS)
    given.rows = given.rows or (TRIAL_ROWS if given.trial else ROWS)
    if given.out is None and not given.trial:
        given.out = Path("reports/distill_throughput")
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Race, and return 0, whatever goals are met; 1 where somebody did not run, 130 where it was interrupted."""
    given = parse(arguments)
    console = Console("human")
    report = ThroughputReport(
        **beginning(command(given), given.trial),
        batch=given.batch,
        threads=given.threads,
        races=tuple(planned(CASES[key], given.contestants, given.rows, given.batch) for key in given.cases),
    )
    store = Store(report, given.out, page)
    return carry_out(store, console, lambda work: _race(given, work, store, console), show)


def _race(given: argparse.Namespace, work: Path, store: Store[ThroughputReport], console: Console) -> None:
    """Make what is needed and run every race, telling and writing each turn as it comes."""
    import torch

    from benchmarks.distill_throughput.race_inputs import PAIRS, Workshop

    torch.set_num_threads(given.threads)
    workshop = Workshop(work, console, given.rows, trial=given.trial)
    place = Place(given.threads, choose_cores(given.threads).own or None)
    setting = Setting(workshop, place, given.rounds, given.rows, given.batch)
    store.update(data=workshop.source, metric=workshop.task.metric)
    if any(CASES[key].scored for key in given.cases):
        student = workshop.student(workshop.teacher, PAIRS)
        store.update(teacher_score=workshop.score(workshop.teacher), start_score=workshop.score(student))
    for before in store.report.races:
        for updated in race(CASES[before.key], before, setting):
            store.update(races=in_place(store.report.races, updated))
            speeds = ", ".join(f"{lane.key} {lane.speeds[-1]:.0f}" for lane in updated.lanes if lane.speeds)
            minutes = store.seconds / 60.0
            console.note(f"[{minutes:4.1f} min] {updated.title}: {speeds or 'none yet'} (examples a second)")


def show(report: ThroughputReport, console: Console) -> None:
    """The tables of all races."""
    for one in report.races:
        if one.reason is not None:
            console.note(f"{one.title}: {one.reason}")
            continue
        console.table([lane_cells(lane) for lane in one.lanes], LANES, one.title)
        console.table([ratio_cells(ratio) for ratio in one.ratios], RATIOS)


def command(given: argparse.Namespace) -> str:
    """The options that matter, as they could be typed."""
    words = ["python -m benchmarks.distill_throughput", *(["--trial"] if given.trial else [])]
    if given.contestants != tuple(CONTESTANTS):
        words.append(f"--only {','.join(given.contestants)}")
    if given.cases != tuple(CASES):
        words.append(f"--races {','.join(given.cases)}")
    return " ".join([*words, f"--rounds {given.rounds} --rows {given.rows} --threads {given.threads}"])


if __name__ == "__main__":
    run(main)
