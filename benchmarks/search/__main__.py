"""`python -m benchmarks.search`: hypervolume against training minutes; whether budgets are met when measured again."""

import argparse
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from benchmarks.markdown_page import machine, origin, table
from benchmarks.report_store import Store, beginning, carry_out, chosen, in_place, positive, run
from benchmarks.search.search_case import TITLES, WAYS, Case
from benchmarks.search.search_results import Budget, Made, SearchReport, over_time, volume_at
from compress.console import Console
from compress.errors import CompressError

SETS = ("ag_news", "mrpc", "snips_intents", "snips_slots", "sst2")
ROWS, TRIAL_ROWS = 4000, 200
COLUMNS = (
    *("set", "seed", "processor", "way", "models", "minutes", "hypervolume"),
    *("search after as long", "in a third of it"),
)
BUDGET_COLUMNS = ("set", "seed", "budget", "winner", "speed-up, measured again", "met within 5 %", "parts", "worse")
METHOD = (
    "Each way begins with the same fine-tuned teacher. Minutes: of trainings alone, without fine-tuning and timing."
    " Hypervolume: of the logarithm to base 10 of how many times faster than the teacher in PyTorch fp32 a model is,"
    " and the share of the teacher's test score; its corner is the teacher's time and the bag of words' score. Budgets"
    " are searched one after the other, and the second finds done what it shares with the first. Winners are timed"
    " again beside the teacher, in a session of their own. Worse: of the parts that were trained on,"
    " those that score less on select than a faster one (paired, p < 0.05): what stopping early could have saved."
)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("--sets", default=",".join(SETS), help="(default: %(default)s)")
    parser.add_argument("--ways", default=",".join(WAYS), help="(default: %(default)s)")
    parser.add_argument("--rows", type=positive, help=f"of each role, at most (default: {ROWS})")
    parser.add_argument("--seeds", type=positive, default=2, help="(default: 2)")
    parser.add_argument("--out", type=Path, help="folder of the report (default: reports/search; none in a trial)")
    parser.add_argument("--work", type=Path, help="folder of the runs, kept (default: a temporary one)")
    parser.add_argument("--trial", action="store_true", help="everything in small, to see that it runs")
    given = parser.parse_args(arguments)
    given.sets = chosen(parser, "--sets", given.sets, SETS)
    given.ways = chosen(parser, "--ways", given.ways, WAYS)
    given.rows = given.rows or (TRIAL_ROWS if given.trial else ROWS)
    if given.out is None and not given.trial:
        given.out = Path("reports/search")
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing; 130 where it was interrupted."""
    given = parse(arguments)
    trial = ["--trial"] if given.trial else []
    command = " ".join(["python -m benchmarks.search", *trial, f"--rows {given.rows}"])
    store, console = (
        Store(SearchReport(**beginning(command, given.trial), rows=given.rows), given.out, page),
        Console("human"),
    )
    if store.resume():
        store.earlier = store.report.seconds or 0.0
        console.note(f"goes on with {len(store.report.made)} stored results")
    return carry_out(store, console, lambda work: compare(given, work, store, console), show, given.work)


def compare(given: argparse.Namespace, work: Path, store: Store[SearchReport], console: Console) -> None:
    """Search each set with each seed in every way; Optuna has as long as the search took."""
    for seed in range(1 if given.trial else given.seeds):
        for name in given.sets:
            case = Case(name, seed, work, given.rows, given.trial)
            for way in given.ways:
                try:
                    attempt(case, way, store, console)
                except CompressError as error:
                    add(store, console, Made(set=name, seed=seed, way=way, number=99, reason=error.message))


def attempt(case: Case, way: str, store: Store[SearchReport], console: Console) -> None:
    """Search one set in one way; runs that are stored are found done."""
    known_before = {each.key for each in store.report.of(case.set, case.seed, way)}
    if way == "search":
        for stages, budget in case.search():
            for stage in stages:
                add(store, console, stage)
                known_before.discard(stage.key)
            stored = store.report.budgets
            known = {each.key for each in stored}
            store.update(budgets=in_place(stored, budget) if budget.key in known else (*stored, budget))
        store.update(floors={**store.report.floors, case.set: case.floor()})
        forget(store, known_before)
        return
    longest = sum(each.minutes for each in store.report.of(case.set, case.seed, "search"))
    if way == "optuna" and not longest:
        raise CompressError("Optuna has as long as the search took, and there is none yet: --ways search,optuna")
    runs = case.optuna(longest) if way == "optuna" else case.grid() if way == "grid" else case.init()
    for made in runs:
        add(store, console, made)
        known_before.discard(made.key)
    forget(store, known_before)


def forget(store: Store[SearchReport], keys: Collection[str]) -> None:
    """Remove what an earlier benchmark made and this one did not: it found other models."""
    store.update(made=tuple(each for each in store.report.made if each.key not in keys))


def add(store: Store[SearchReport], console: Console, made: Made) -> None:
    """Store what a run made."""
    stored = store.report.made
    known = {each.key for each in stored}
    store.update(made=in_place(stored, made) if made.key in known else (*stored, made))
    console.note(
        f"[{store.seconds / 60:4.1f} min] {made.key} {made.title}: {made.reason or f'{len(made.points)} files'}"
    )


def lines(report: SearchReport) -> Iterator[dict[str, str]]:
    """Yield a row for each way, set and seed."""
    for name, seed in dict.fromkeys((each.set, each.seed) for each in report.made):
        floor = report.floors.get(name, 0.0)
        stages = report.of(name, seed, "search")
        budgets = [each for each in report.budgets if (each.set, each.seed) == (name, seed)]
        is_staged = len(stages) > len(budgets)  # searches that were stored whole have one time for all their models
        ours = over_time(stages, floor)
        for way in WAYS:
            runs = [each for each in report.of(name, seed, way) if each.reason is None]
            if not runs:
                continue
            minutes, volume = over_time(runs, floor)[-1]
            later = {"search after as long": minutes, "in a third of it": minutes / 3}
            compared = way != "search" and is_staged
            reached = {title: f"{volume_at(ours, when):.3f}" if compared else "" for title, when in later.items()}
            yield {
                "set": name,
                "seed": str(seed),
                "processor": runs[0].processor,
                "way": TITLES[way],
                "models": str(sum(bool(each.minutes) for each in runs)),
                "minutes": f"{minutes:.1f}",
                "hypervolume": f"{volume:.3f}",
                **reached,
            }


def budget_lines(budgets: Sequence[Budget]) -> Iterator[dict[str, str]]:
    """Yield a row for each budget."""
    for each in budgets:
        yield {
            "set": each.set,
            "seed": str(each.seed),
            "budget": each.asked,
            "winner": each.winner or "none",
            "speed-up, measured again": f"{each.measured:.1f}×" if each.measured else "",
            "met within 5 %": {True: "yes", False: "no", None: ""}[each.is_met],
            "parts": "" if each.parts is None else str(each.parts),
            "worse": "" if each.worse is None else str(each.worse),
        }


def page(report: SearchReport) -> str:
    """Return the page in Markdown."""
    blocks = ["# Search", origin(report), f"{METHOD} At most {report.rows:,} rows of each role."]
    blocks += [table(lines(report), COLUMNS, COLUMNS[4:]), "## Budgets, measured again"]
    blocks.append(table(budget_lines(report.budgets), BUDGET_COLUMNS, BUDGET_COLUMNS[4:5]))
    reasons = [f"- {each.key}: {each.reason}" for each in report.made if each.reason]
    blocks += ["## Not run\n\n" + "\n".join(reasons)] if reasons else []
    return "\n\n".join([*blocks, machine(report)]) + "\n"


def show(report: SearchReport, console: Console) -> None:
    """Print the tables."""
    console.table(list(lines(report)), COLUMNS)
    console.table(list(budget_lines(report.budgets)), BUDGET_COLUMNS)


if __name__ == "__main__":
    run(main)
