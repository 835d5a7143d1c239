"""Runs exports with `tokenizers` and ONNX Runtime alone: `python tokenizers_job.py CASES.json ANSWERS.json`."""

from pathlib import Path

import numpy as np
import onnxruntime
from case_files import pack, run
from tokenizers import Tokenizer

FIELDS = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}


def answer(case):
    """Return what the graph computes for each row as tokenizer.json encodes it, with the settings that it has."""
    folder = Path(case["folder"])
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    inputs, names = [each.name for each in session.get_inputs()], [each.name for each in session.get_outputs()]
    alone = []
    for row in case["rows"]:
        encoding = tokenizer.encode(*row)
        results = session.run(names, {name: np.array([getattr(encoding, FIELDS[name])]) for name in inputs})
        alone.append(pack(encoding.ids, {name: result[0] for name, result in zip(names, results, strict=True)}))
    return {"alone": alone, "batched": []}


if __name__ == "__main__":
    run(answer)
