"""model2vec in an environment of its own: `python model2vec_job.py JOB.json`, with nothing of compress imported.

The job has `encoder` (a folder), `dimensions`, `train`, `select` (pairs of text and class), `test` and `timed` (texts),
`seed`, and `output`.
"""

import json
import statistics
import sys
import time
from pathlib import Path

import torch
from model2vec.distill import distill  # type: ignore[import-not-found]
from model2vec.train import StaticModelForClassification  # type: ignore[import-not-found]


def main() -> None:
    """Distil the encoder, train as the documentation says, and write the classes of the test texts and the times."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    torch.set_num_threads(1)
    started = time.monotonic()
    static = distill(job["encoder"], pca_dims=job["dimensions"], device="cpu")
    model = StaticModelForClassification.from_static_model(model=static)
    (texts, labels), (held_texts, held_labels) = (zip(*job[role], strict=True) for role in ("train", "select"))
    held = {"X_val": list(held_texts), "y_val": list(held_labels)}
    model.fit(list(texts), list(labels), device="cpu", random_seed=job["seed"], **held)
    seconds = time.monotonic() - started
    pipeline = model.to_pipeline()
    folder = Path(job["output"]).with_suffix("")
    pipeline.save_pretrained(str(folder))
    begun = time.monotonic()
    classes = [str(label) for label in pipeline.predict(job["test"])]
    bulk = len(job["test"]) / (time.monotonic() - begun)
    result = {
        "classes": classes,
        "seconds": seconds,
        "milliseconds": single_texts(pipeline, job["timed"]),
        "rows_per_second": bulk,
        "bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
    }
    Path(job["output"]).write_text(json.dumps(result), encoding="utf-8")


def single_texts(pipeline: StaticModelForClassification, texts: list[str]) -> float:
    """Return the median milliseconds from one text to its answer."""
    times = []
    for text in texts * 4:
        begun = time.perf_counter()
        pipeline.predict([text])
        times.append(1e3 * (time.perf_counter() - begun))
    return statistics.median(times[len(texts) :])


if __name__ == "__main__":
    main()
