"""Runs exports in sentence-transformers: `python sentence_transformers_job.py CASES.json ANSWERS.json`.

`opens` is one of its classes; the backend is that of the folder's file, with the options that our READMEs name.
"""

from pathlib import Path

import torch
from case_files import pack, run
from sentence_transformers import CrossEncoder, SentenceTransformer

BACKENDS = {"model.onnx": "onnx", "openvino_model.xml": "openvino", "model.safetensors": "torch"}
OPTIONS = {"openvino": {"ov_config": {"INFERENCE_PRECISION_HINT": "f32"}}}


def answer(case):
    """Return the embedding of each text, or the score of each pair."""
    backend = next(name for file, name in BACKENDS.items() if (Path(case["folder"]) / file).is_file())
    opened = {"SentenceTransformer": SentenceTransformer, "CrossEncoder": CrossEncoder}[case["opens"]]
    model = opened(case["folder"], backend=backend, device="cpu", model_kwargs=OPTIONS.get(backend))
    score = embed if case["opens"] == "SentenceTransformer" else rank
    rows, size = case["rows"], case["batch"]
    return {"alone": score(model, rows, 1), "batched": score(model, rows, size) if size else []}


def embed(model, rows, size):
    """Return the embeddings of texts in batches."""
    texts = [text for (text,) in rows]
    vectors = model.encode(texts, batch_size=size)
    return [
        pack(tokens_of(model, [text]), {"sentence_embedding": each}) for text, each in zip(texts, vectors, strict=True)
    ]


def rank(model, rows, size):
    """Return the scores of pairs in batches; as the model gives them, not squeezed between 0 and 1."""
    scores = model.predict([tuple(row) for row in rows], batch_size=size, activation_fn=torch.nn.Identity())
    return [pack(tokens_of(model, row), {"logits": [each]}) for row, each in zip(rows, scores, strict=True)]


def tokens_of(model, row):
    """Return the tokens of a row as the model's own tokenizer cuts it."""
    return model.tokenizer(*([text] for text in row), truncation=True)["input_ids"][0]


if __name__ == "__main__":
    run(answer)
