"""Distillation through the public function of compress, in the precision in which this CPU multiplies faster."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from safetensors.torch import save_file

from benchmarks.distill_throughput.race_job import STUDENT, Clock, Job, run_contestant
from compress.console import Console, Progress
from compress.model_folder.model_info import read_info
from compress.models import load
from compress.models.load_save import load_tokenizer
from compress.recipe.distill_schema import Distill
from compress.train.core.optimizer import named_weights
from compress.train.distill import distill_from_model
from compress.train.precision import choose_precision


class Ticker(Progress):
    """Progress that moves the clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(lambda state: None, None, "rows")
        self._job_clock = clock

    def advance(self, amount: float = 1, note: str = "", left: str | None = None) -> None:
        """Count rows."""
        self._job_clock.step(int(amount))


class Timed(Console):
    """A quiet console whose progress moves the clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__("quiet")
        self._clock = clock

    @contextmanager
    def progress(self, total: float | None, label: str, unit: str = "steps") -> Iterator[Progress]:
        """The training reports every update; other progress is not timed."""
        yield Ticker(self._clock if label == "distill" else Clock(0))


def distil(job: Job, clock: Clock) -> str:
    """Train on the job's rows."""
    teacher, student, settings = load(job.teacher), load(job.student), settings_of(job)
    task = read_info(job.teacher).task
    assert task is not None
    rows = [line["row"] for line in job.lines()]
    trained = distill_from_model(
        teacher, student, load_tokenizer(job.teacher), rows, (), task, settings, seed=job.seed, console=Timed(clock)
    )
    save_file(
        {name: tensor.contiguous().clone() for name, tensor in named_weights(trained).items()}, job.output / STUDENT
    )
    return settings.precision


def settings_of(job: Job) -> Distill:
    """Return the job's settings; others have their defaults."""
    values: dict[str, Any] = {
        "epochs": job.epochs,
        "batch_size": job.batch,
        "learning_rate": job.rate,
        "temperature": job.temperature,
        "losses": {"soft_label": 1.0, "hidden_state": 1.0, "attention": 1.0},
        "hard_label": 0.0,
        "layer_map": job.pairs,
        "precision": choose_precision("auto", torch.device("cpu"), None).precision,
    }
    return Distill.model_validate(values if job.cache else {**values, "cache": False})


if __name__ == "__main__":
    run_contestant(distil)
