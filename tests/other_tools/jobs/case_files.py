"""What a job reads and writes; it runs in a tool's environment, which has none of compress."""

import base64
import json
import sys
from pathlib import Path

import numpy as np


def run(answer):
    """Answer every case of the file that the command line names first, into the one that it names second.

    A case has a `folder`, the name of what `opens` it, and `rows` of one or two texts, which are run alone; where it
    has `batch`, also in batches of that size. What a tool raises is the answer to the case.
    """
    answers = []
    for case in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        try:
            answers.append(answer(case))
        except Exception as error:  # noqa: BLE001  # the comparison reports it
            answers.append({"error": f"{type(error).__name__}: {error}"[:2000]})
    Path(sys.argv[2]).write_text(json.dumps(answers), encoding="utf-8")


def pack(tokens, outputs):
    """Return a row's tokens and its outputs by name, as plain values."""
    arrays = {name: np.asarray(values, dtype=np.float32) for name, values in outputs.items()}
    packed = {
        name: {"shape": array.shape, "data": base64.b64encode(array.tobytes()).decode()}
        for name, array in arrays.items()
    }
    return {"tokens": [int(token) for token in tokens], "outputs": packed}


def groups(rows, size):
    """Yield the rows in batches, each as its first texts and, of pairs, its second ones."""
    for start in range(0, len(rows), size):
        yield list(map(list, zip(*rows[start : start + size], strict=True)))
