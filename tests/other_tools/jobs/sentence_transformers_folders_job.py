"""What sentence-transformers answers for our folders, run in an environment of its own: `JOB.json OUT.json`."""

import json
import sys
from pathlib import Path

import sentence_transformers


def answer(folder: str, kind: str, backend: str, texts: list[str]) -> list[list[float]]:
    """Return the vector of each text, or the score of each with the first, and the length at which texts are cut."""
    # On processors with bf16 OpenVINO computes in it by itself.
    options = {"ov_config": {"INFERENCE_PRECISION_HINT": "f32"}} if backend == "openvino" else {}
    model = getattr(sentence_transformers, kind)(folder, backend=backend, device="cpu", model_kwargs=options)
    if kind == "CrossEncoder":
        return [model.predict([(texts[0], text) for text in texts]).tolist(), [model.max_seq_length]]
    return [*model.encode(texts).tolist(), [model.max_seq_length]]


if __name__ == "__main__":
    job, out = map(Path, sys.argv[1:])
    out.write_text(json.dumps([answer(*each) for each in json.loads(job.read_bytes())]), encoding="utf-8")
