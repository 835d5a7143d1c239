"""`python -m benchmarks.distill_throughput`: race, print the tables, write report.json and report.md."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from benchmarks.distill_throughput.contestants import CONTESTANTS, CpuPlacement
from benchmarks.distill_throughput.race import Setting, planned, race
from benchmarks.distill_throughput.race_cases import CASES
from benchmarks.distill_throughput.race_results import ThroughputReport
from benchmarks.distill_throughput.throughput_page import LANES, RATIOS, lane_cells, page, ratio_cells
from benchmarks.report_store import Store, beginning, carry_out, chosen, in_place, positive, run
from compress.console import Console
from compress.measure.timing.process_limits import choose_cores

ROWS, TRIAL_ROWS, ROUNDS = 1920, 96, 3
LIMITS = {"avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}}
"""The environment variables that limit the instructions of torch, oneDNN and MKL."""


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
    parser.add_argument("--instructions", choices=tuple(LIMITS), help="limit all contestants to those of another CPU")
    parser.add_argument("--out", type=Path, help="folder of the report (default: reports/distill_throughput)")
    parser.add_argument("--trial", action="store_true", help="a small run that decides nothing")
    options = parser.parse_args(arguments)
    options.contestants = chosen(parser, "--only", options.only, tuple(CONTESTANTS))
    options.cases = chosen(parser, "--races", options.races, tuple(CASES))
    options.rounds = options.rounds or (1 if options.trial else ROUNDS)
    options.rows = options.rows or (TRIAL_ROWS if options.trial else ROWS)
    if options.out is None and not options.trial:
        suffix = f"_{options.instructions}" if options.instructions else ""
        options.out = Path(f"reports/distill_throughput{suffix}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Race; return 0 whether goals are met or not, 1 where a contestant did not run, 130 where interrupted."""
    options = parse(arguments)
    os.environ.update(LIMITS.get(options.instructions, {}))
    console = Console("human")
    report = ThroughputReport(
        **beginning(command(options), options.trial),
        batch=options.batch,
        threads=options.threads,
        instructions=options.instructions,
        races=tuple(planned(CASES[key], options.contestants, options.rows, options.batch) for key in options.cases),
    )
    store = Store(report, options.out, page)
    return carry_out(store, console, lambda work: _race(options, work, store, console), show)


def _race(options: argparse.Namespace, work: Path, store: Store[ThroughputReport], console: Console) -> None:
    """Create the inputs and run every race; prints and stores the result of each turn."""
    import torch

    from benchmarks.distill_throughput.race_inputs import PAIRS, InputsBuilder

    torch.set_num_threads(options.threads)
    inputs_builder = InputsBuilder(work, console, options.rows, trial=options.trial)
    placement = CpuPlacement(options.threads, choose_cores(options.threads).own or None)
    setting = Setting(inputs_builder, placement, options.rounds, options.rows, options.batch)
    store.update(data=inputs_builder.source, metric=inputs_builder.task.metric)
    if any(CASES[key].scored for key in options.cases):
        student = inputs_builder.student(inputs_builder.teacher, PAIRS)
        store.update(
            teacher_score=inputs_builder.score(inputs_builder.teacher), start_score=inputs_builder.score(student)
        )
    for before in store.report.races:
        for updated in race(CASES[before.key], before, setting):
            store.update(races=in_place(store.report.races, updated))
            speeds = ", ".join(f"{lane.key} {lane.speeds[-1]:.0f}" for lane in updated.lanes if lane.speeds)
            minutes = store.seconds / 60.0
            console.note(f"[{minutes:4.1f} min] {updated.title}: {speeds or 'none yet'} (examples a second)")


def show(report: ThroughputReport, console: Console) -> None:
    """Print the tables of all races."""
    for one in report.races:
        if one.reason is not None:
            console.note(f"{one.title}: {one.reason}")
            continue
        console.table([lane_cells(lane) for lane in one.lanes], LANES, one.title)
        console.table([ratio_cells(ratio) for ratio in one.ratios], RATIOS)


def command(options: argparse.Namespace) -> str:
    """Return the command with its relevant options."""
    parts = ["python -m benchmarks.distill_throughput", *(["--trial"] if options.trial else [])]
    if options.contestants != tuple(CONTESTANTS):
        parts.append(f"--only {','.join(options.contestants)}")
    if options.cases != tuple(CASES):
        parts.append(f"--races {','.join(options.cases)}")
    if options.instructions:
        parts.append(f"--instructions {options.instructions}")
    return " ".join([*parts, f"--rounds {options.rounds} --rows {options.rows} --threads {options.threads}"])


if __name__ == "__main__":
    run(main)
