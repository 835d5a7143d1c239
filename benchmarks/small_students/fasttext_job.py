"""fastText in an environment of its own: `python fasttext_job.py JOB.json`, with nothing of compress imported.

The job has `train`, `select` (pairs of text and class), `test` and `timed` (texts), `seed`, `minutes` and `output`.
"""

import json
import statistics
import sys
import time
from pathlib import Path

import fasttext  # type: ignore[import-not-found]


def write_rows(path: Path, rows: list[list[str]]) -> None:
    """Write rows as fastText reads them."""
    lines = (f"__label__{label} {' '.join(text.lower().split())}\n" for text, label in rows)
    path.write_text("".join(lines), encoding="utf-8")


def main() -> None:
    """Train with its own search of settings, and write the classes of the test texts and the times."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    folder = Path(job["output"]).parent
    files = {role: folder / f"fasttext-{role}.txt" for role in ("train", "select")}
    for role, path in files.items():
        write_rows(path, job[role])
    begun = time.monotonic()
    model = fasttext.train_supervised(
        str(files["train"]),
        autotuneValidationFile=str(files["select"]),
        autotuneDuration=int(60 * job["minutes"]),
        seed=job["seed"],
        thread=1,
        verbose=0,
    )
    seconds = time.monotonic() - begun
    path = folder / "fasttext.bin"
    model.save_model(str(path))
    begun = time.monotonic()
    classes = [class_of(model, text) for text in job["test"]]
    bulk = len(classes) / (time.monotonic() - begun)
    times = []
    for text in job["timed"] * 4:
        begun = time.perf_counter()
        class_of(model, text)
        times.append(1e3 * (time.perf_counter() - begun))
    result = {
        "classes": classes,
        "seconds": seconds,
        "milliseconds": statistics.median(times[len(job["timed"]) :]),
        "rows_per_second": bulk,
        "bytes": path.stat().st_size,
    }
    Path(job["output"]).write_text(json.dumps(result), encoding="utf-8")


def class_of(model: object, text: str) -> str:
    """Return the class of one text."""
    labels, _ = model.predict(" ".join(text.lower().split()))  # type: ignore[attr-defined]
    return str(labels[0]).removeprefix("__label__")


if __name__ == "__main__":
    main()
