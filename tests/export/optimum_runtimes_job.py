"""Opens exports with optimum's classes: `python optimum_runtimes_job.py JOB.json OUT.json`, without any of compress.

The job lists (folder, class of `optimum.onnxruntime` or `optimum.intel`, texts). The output has for each of them, and
for each text, the tokens of the folder's tokenizer and the model's outputs.
"""

import importlib
import json
import sys
from pathlib import Path

from transformers import AutoTokenizer

PACKAGES = {
    "ORT": ("optimum.onnxruntime", {}),
    # Else OpenVINO computes in bf16 where the processor can.
    "OV": ("optimum.intel", {"ov_config": {"INFERENCE_PRECISION_HINT": "f32"}}),
}
"""By the beginning of a class's name, its package and what it is opened with."""


def main():
    """Answer every text alone."""
    answers = []
    for folder, name, texts in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        package, options = next(opened for prefix, opened in PACKAGES.items() if name.startswith(prefix))
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = getattr(importlib.import_module(package), name).from_pretrained(folder, **options)
        answers.append([answer(model, tokenizer, text) for text in texts])
    Path(sys.argv[2]).write_text(json.dumps(answers), encoding="utf-8")


def answer(model, tokenizer, text):
    """Return a text's tokens and the outputs by name."""
    encoded = tokenizer(text, return_tensors="pt")
    outputs = {name: values.tolist() for name, values in model(**encoded).items() if values is not None}
    return {"tokens": encoded["input_ids"][0].tolist(), "outputs": outputs}


if __name__ == "__main__":
    main()
