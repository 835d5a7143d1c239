"""`python -m benchmarks.quick_last_layer`: what the limited search of a last layer loses, on many tags and classes.

The last layer from which fine-tuning starts takes at most a tenth of the training's operations. Where there are many
outputs, fewer strengths of the penalty are compared on fewer rows. Each set's layer is fitted to the same encoder with
the most thorough search, within the default limit, and within a tenth of that, and scored on test. Sets are SNIPS slots
and sentences of 1,000 articles, whose title is the class (COMPRESS_DATA).
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.defaults.real_sets import SETS, RealSet
from benchmarks.defaults.wiki_articles import write_wiki_articles
from benchmarks.report_store import positive
from compress.console import Console
from compress.errors import CompressError
from compress.models.fetch import fetch
from compress.models.load_save import load_model, load_tokenizer, read_config
from compress.recipe.training_schema import Finetune
from compress.train.core import training_data
from compress.train.finetune import probe_operations
from compress.train.last_layer_fit import START, fit_last_layer
from compress.train.objective import TaskObjective

TEACHER = "minilm-l6"
MANY_CLASSES = replace(SETS["wiki_articles"], write=partial(write_wiki_articles, articles=1000, train=10, test=4))
CASES = {"snips_slots": SETS["snips_slots"], "1,000 articles": MANY_CLASSES}


def compare(name: str, case: RealSet, rows: int | None, work: Path, console: Console) -> Iterator[dict[str, Any]]:
    """Yield what each limit gives."""
    roles, folder = case.prepare(work / name, rows), fetch(TEACHER)
    task, tokenizer = roles.info.task_info, load_tokenizer(folder)
    tokens = training_data.fast_tokenizer(read_config(folder), tokenizer)
    data = training_data.from_rows(roles.rows("train"), roles.rows("test"), task, tokens, console)
    limited = probe_operations(folder, Finetune(), data, "mean", task)
    assert limited is not None
    assert data.evaluate is not None
    loss = TaskObjective(task).loss_of
    for search, operations in (("thorough", None), ("default", limited), ("a tenth of it", limited / 10)):
        model = load_model(folder, task, pooling="mean", console=console)
        began = time.monotonic()
        layer = fit_last_layer(model, data.train, loss, 0, replace(START, operations=operations), console)
        seconds = time.monotonic() - began
        layer.apply_to(model)
        yield {
            "set": name,
            "outputs": len(layer.bias),
            "search": search,
            "rows": layer.info.rows,
            "strength": layer.info.strength,
            "operations": f"{layer.info.operations:.1e}",
            "seconds": round(seconds),
            "test": round(100 * data.evaluate(model), 1),
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quick_last_layer", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--rows", type=positive, help="of each role, at most (default: all)")
    parser.add_argument("--format", choices=("human", "json"), default="human")
    options = parser.parse_args(arguments)
    console = Console(options.format)
    try:
        with tempfile.TemporaryDirectory() as work:
            console.table(
                [row for name, case in CASES.items() for row in compare(name, case, options.rows, Path(work), console)]
            )
    except CompressError as error:
        console.error(error)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
