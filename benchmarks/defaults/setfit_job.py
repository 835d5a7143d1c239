"""SetFit in an environment of its own: `python setfit_job.py JOB.json`, with nothing of compress imported.

The job has `model` (a folder), `max_length`, `train` (pairs of text and class), `test` (texts), `seed`, `iterations`
and `output`.
"""

import json
import sys
from pathlib import Path

from datasets import Dataset
from setfit import SetFitModel, Trainer, TrainingArguments  # type: ignore[import-not-found]


def main() -> None:
    """Train with the default settings and write the probabilities of the test texts."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    model = SetFitModel.from_pretrained(job["model"], device="cpu")  # mean pooling, and a logistic regression
    model.model_body.max_seq_length = job["max_length"]
    texts, labels = zip(*job["train"], strict=True)
    rows = Dataset.from_dict({"text": list(texts), "label": list(labels)})
    settings = TrainingArguments(
        output_dir=job["output"] + ".training", seed=job["seed"], num_iterations=job["iterations"], report_to="none"
    )
    Trainer(model=model, args=settings, train_dataset=rows).train()
    probabilities = model.predict_proba(job["test"], as_numpy=True)
    Path(job["output"]).write_text(json.dumps(probabilities.tolist()), encoding="utf-8")


if __name__ == "__main__":
    main()
