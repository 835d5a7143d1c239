"""`python -m benchmarks.serving_kills NAME=FOLDER --texts FILE:COLUMN`: the service killed under load, many times.

Callers send requests until the process is killed at a random moment. Each request must have the right answer, or see
its connection closed: none may have a wrong answer or wait in vain. Exit code 1 where one did.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import psutil

from benchmarks.bulk import read_texts
from benchmarks.serving import OURS, Calls, client_process, served
from compress.console import Console
from compress.runtime.text_model import TextModel

LONGEST = 1.0
"""Seconds of load before a kill, at most."""
AFTER = 0.2
"""Seconds for which callers go on after the longest."""
PATIENCE = 10.0
"""Seconds after which a request has waited in vain."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Kill, count and print; 1 where an answer was wrong or did not come."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving_kills", description=__doc__)
    parser.add_argument("model", metavar="NAME=FOLDER")
    parser.add_argument("--texts", required=True, metavar="FILE:COLUMN")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--callers", type=int, default=8)
    given = parser.parse_args(arguments)
    name, _, place = given.model.partition("=")
    texts, console = list(read_texts(given.texts))[:500], Console("human")
    expected, draw = TextModel.open(Path(place)).predict(texts, batch=1), random.Random(0)
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as work, console.progress(given.kills, "kills", "kills") as progress:
        for _ in range(given.kills):
            with served(next(iter(OURS)), None, name, Path(place), Path(), Path(work)) as process:
                calls = Calls(name, texts, expected, LONGEST + AFTER, given.callers)
                counts.update(_until_killed(process, calls, draw.uniform(0.1, LONGEST)))
            progress.advance()
    counts["kills"] = given.kills
    names = ("kills", "answered", "refused", "lost", "wrong", "in vain")
    console.table([{each: f"{counts[each]:,}" for each in names}])
    return 1 if counts["wrong"] or counts["in vain"] else 0


def _until_killed(process: psutil.Process, calls: Calls, seconds: float) -> dict[str, int]:
    """Return the counts of callers whose service is killed after so many seconds."""
    pipe, client = client_process(calls)
    time.sleep(seconds)
    process.kill()
    if not pipe.poll(LONGEST + AFTER + PATIENCE):
        client.kill()
        return {"in vain": 1}
    facts = pipe.recv()
    client.join()
    return {name: facts[name] for name in ("answered", "refused", "lost", "wrong")}


if __name__ == "__main__":
    sys.exit(main())
