"""How long a probe of all layers takes, and its memory, with sentences of 20 words and one task.

    python -m benchmarks.probe_speed [--model minilm-l6] [--rows 5000] [--file 9000]

Rows that are scored come on top of those that are fitted: up to 2,000. Run it on an idle machine.
"""

import argparse
import json
import random
import resource
import tempfile
import time
from pathlib import Path

import compress
from compress.console import Console

TEXT = "film plot story actor music scene ending cast river house garden window market paper yellow quickly"
WORDS = TEXT.split(" ")
LENGTH = 20


def write_rows(path: Path, count: int) -> None:
    """Write sentences of random words, labelled by the fourth."""
    draw = random.Random(0)
    with path.open("w", encoding="utf-8") as stream:
        for number in range(count):
            words = draw.choices(WORDS, k=LENGTH - 1)
            label = "first" if words[3] in WORDS[: len(WORDS) // 2] else "second"
            stream.write(json.dumps({"text": " ".join([*words, f"v{number}"]), "label": label}) + "\n")


def main() -> None:
    """Probe one model, and print seconds and megabytes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="minilm-l6")
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--file", type=int, default=9000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        write_rows(path, options.file)
        data = {"train": str(path), "test_share": 0.05, "select_share": 0.25}
        recipe = {"name": "speed", "task": {"kind": "classification", "data": data}, "teacher": "minilm-l6"}
        began = time.perf_counter()
        report = compress.probe_model(options.model, recipe, rows=options.rows)
        total = time.perf_counter() - began
    scores = report.tasks[0]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    Console().line(
        f"{scores.fitted:,} rows fitted, {scores.scored:,} scored: {report.seconds:.0f} s, "
        f"{total:.0f} s with reading and loading; {memory:.0f} MB; {report.cpu}"
    )


if __name__ == "__main__":
    main()
