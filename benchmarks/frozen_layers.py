"""`python -m benchmarks.frozen_layers OUT`: how many frozen layers are best for how much data, on SST-2.

Fine-tunes MiniLM (6 layers) from its probe with its lowest layers frozen, and fits its last layer alone. Settings are
`auto`. Each training is one line of a JSON-lines file, appended when it ends: a killed run goes on with the others.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.defaults.real_sets import SETS
from benchmarks.defaults.sweep import TEACHER, draw
from benchmarks.report_store import positive
from compress.console import Console
from compress.data.tokenizer import TextTokenizer
from compress.measure.machine_snapshot import snapshot_machine
from compress.models.fetch import fetch
from compress.models.load_save import load_tokenizer, read_config
from compress.recipe.training_schema import Finetune
from compress.train.core import training_data
from compress.train.core.seed_restarts import context_in_memory, train_best
from compress.train.core.training_data import make_evaluator
from compress.train.frozen_encoder import fit_frozen
from compress.train.last_layer_fit import START, WHOLE
from compress.train.objective import TaskObjective
from compress.train.start_models import StartModels

SET, SELECT = "sst2", 600
"""The set, and the rows on which epochs are compared."""
WAYS: Mapping[str, Mapping[str, Any]] = {
    "method: frozen": {"method": "frozen"},
    "nothing": {},
    "6 layers": {"freeze": 6},
    "4 layers": {"freeze": 4},
    "2 layers": {"freeze": 2},
    "embeddings": {"freeze": "embeddings"},
}
"""What is frozen."""


class Rows:
    """Encoded rows of train and select, and a score on test."""

    def __init__(self, work: Path) -> None:
        self.roles = SETS[SET].prepare(work)
        self.task = self.roles.info.task_info
        self.source = fetch(TEACHER)

    @cached_property
    def tokens(self) -> TextTokenizer:
        """What cuts texts into pieces."""
        return training_data.fast_tokenizer(read_config(self.source), load_tokenizer(self.source))

    def train(self, settings: Finetune, count: int, seed: int) -> dict[str, Any]:
        """Return the scores of one training on ``count`` rows, and how long it took."""
        rows = draw(self.roles.rows("train"), count), draw(self.roles.rows("select"), SELECT)
        data = training_data.from_rows(*rows, self.task, self.tokens, Console("quiet"))
        objective, test = TaskObjective(self.task), self.roles.rows("test")
        with context_in_memory("finetune", seed, None, None, None) as context:
            is_frozen = settings.is_frozen
            limit = WHOLE if is_frozen else START
            starts = StartModels(self.source, objective, "mean", True, data.train, context, limit)
            began = time.monotonic()
            if is_frozen:
                model, result, _ = fit_frozen(starts, data)
            else:
                model, result = train_best(
                    lambda seed: starts.build(seed)[0], lambda model, seed: objective, data, settings, context
                )
            seconds = round(time.monotonic() - began, 1)
        model.train(False)
        scored = make_evaluator(test, self.task, self.tokens)(model)
        return {"select": result.score, "test": scored, "test_rows": len(test), "updates": result.updates} | {
            "best_at": result.best_at,
            "seconds": seconds,
        }


def main(arguments: Sequence[str]) -> int:
    """Train what is missing, one line each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frozen_layers", description=__doc__)
    parser.add_argument("out", type=Path, help="a JSON-lines file")
    parser.add_argument("--sizes", type=positive, nargs="+", default=[500, 2000, 8000], help="rows of train")
    parser.add_argument("--seeds", type=positive, default=3, help="how many seeds")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="what is frozen")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="of the trainings")
    given = parser.parse_args(arguments)
    done = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    rows = Rows(given.out.with_suffix(".data"))
    machine = {
        "cpu": snapshot_machine().cpu,
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "precision": given.precision,
    }
    for size in given.sizes:
        for seed in range(given.seeds):
            for name in given.ways:
                cell = {"frozen": name, "rows": size, "seed": seed}
                if any(cell.items() <= line.items() for line in done):
                    continue
                result = rows.train(Finetune(precision=given.precision, **WAYS[name]), size, seed)
                with given.out.open("a") as file:
                    file.write(json.dumps(cell | result | machine) + "\n")
                Console("human").note(f"{cell}: {result}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
