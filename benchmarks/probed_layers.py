"""Students whose layers a probe chose, beside those that `spread` chooses: is the probe worth its minutes?

    python -m benchmarks.probed_layers OUT [--seeds 0 1 2] [--tasks sst2 mrpc snips_slots] [--rows 800]

For each task and seed one teacher is fine-tuned, probed on rows of train and select, and distilled into students of
three layers: those that the probe chooses, and those that `spread` does. Both are scored on test, paired by row. What
is finished is in OUT/results.json and is not done again. Data comes from the folder that COMPRESS_DATA names.
"""

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import compress
from compress.console import Console
from compress.pipeline.run_lock import step_folder
from compress.storage.atomic_write import atomic_write

LAYERS = 3
FILES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "sst2": ("glue/SST-2", {"train": "train.tsv.gz", "test": "dev.tsv.gz"}),
    "mrpc": ("glue/MRPC", {"train": "train.tsv.gz", "test": "dev.tsv.gz"}),
    "snips_slots": ("snips", {"train": "train.jsonl.gz", "select": "valid.jsonl.gz", "test": "test.jsonl.gz"}),
}


def recipe(task: str, rows: int, seed: int, layers: int | Sequence[int]) -> dict[str, Any]:
    """Return the recipe of one student."""
    folder, files = FILES[task]
    root = Path(os.environ["COMPRESS_DATA"]) / folder
    data = {role: str(root / name) for role, name in files.items()}
    return {
        "name": f"{task}-{seed}-{layers if isinstance(layers, int) else '-'.join(map(str, layers))}",
        "seed": seed,
        "task": {"name": task, "data": {**data, "limit": rows}},
        "teacher": "minilm-l6",
        "finetune": {"epochs": 3},
        "student": {"layers": layers},
        "distill": {"epochs": 4},
        "export": [],
        "gate": {"max_drop": 0.5},
        "measure": {"budget": "5s"},
    }


def compare_choices(task: str, rows: int, seed: int, work: Path, console: Console) -> dict[str, Any]:
    """Return what the two choices of one teacher's layers gave."""
    runs = work / "runs"
    spread_recipe = recipe(task, rows, seed, LAYERS)
    spread = compress.run(spread_recipe, runs=runs, console=console)
    teacher = step_folder(runs / spread.name, "finetune")
    probed = compress.probe_model(teacher, spread_recipe, rows=rows, seed=seed, console=console)
    chosen = probed.tasks[0].rising_layers(LAYERS)
    other = compress.run(recipe(task, rows, seed, list(chosen)), runs=runs, console=console)
    scores = {name: _score(report) for name, report in (("spread", spread), ("probe", other))}
    return {
        "task": task,
        "seed": seed,
        "chosen": list(chosen),
        "probe": [each.score.value for each in probed.tasks[0].layers],
        "teacher": _score(spread, "teacher"),
        "scores": scores,
        "cpu": spread.machine.cpu,
    }


def _score(report: Any, model: str = "student") -> float:
    row = next(each for each in report.rows if each.model == model)
    result = report.result(row.key, report.titles[0])
    return float(result.test.primary.value)


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("to", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tasks", nargs="+", default=list(FILES), choices=list(FILES))
    parser.add_argument("--rows", type=int, default=800)
    options = parser.parse_args()
    console = Console()
    stored = options.to / "results.json"
    results: list[dict[str, Any]] = json.loads(stored.read_text()) if stored.is_file() else []
    for seed in options.seeds:
        for task in options.tasks:
            if any((each["task"], each["seed"]) == (task, seed) for each in results):
                continue
            results.append(compare_choices(task, options.rows, seed, options.to / "work", console))
            atomic_write(stored, json.dumps(results, indent=1) + "\n")
    for each in results:
        difference = each["scores"]["probe"] - each["scores"]["spread"]
        shown = {**each["scores"], "teacher": each["teacher"]}
        console.line(f"{each['task']} {each['seed']} {each['chosen']} {difference:+.4f} {shown}")
    gains = [each["scores"]["probe"] - each["scores"]["spread"] for each in results]
    console.line(f"mean {np.mean(gains):+.4f}, standard error {np.std(gains, ddof=1) / len(gains) ** 0.5:.4f}")


if __name__ == "__main__":
    main()
