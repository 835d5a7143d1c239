"""`compress plan` of a pretraining recipe: its long form, the state of its steps, texts and device."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compress import format_numbers as fmt
from compress.console import Console, duration
from compress.environment import describe_cpu
from compress.pipeline.execute import Executor
from compress.pipeline.planning.pretrain_plan import PretrainPlan, make_pretrain_plan
from compress.pipeline.pretrain_run import PretrainOptions, read_pretrain_recipe
from compress.pipeline.step_store import StepStore
from compress.pipeline.torchrun_launch import Launch
from compress.recipe.load import dump_recipe
from compress.recipe.pretrain_schema import PretrainRecipe, Text


def show_pretrain_plan(source: Path, overrides: list[str], options: PretrainOptions, console: Console) -> None:
    """Print what `compress pretrain` would do; nothing runs."""
    plan = make_pretrain_plan(read_pretrain_recipe(source, overrides), options.cards)
    rows = list(_rows(plan, options.runs))
    if console.format == "json":
        console.data({"recipe": plan.recipe.model_dump(mode="json"), "steps": rows})
        return
    if console.format == "human":
        console.line(dump_recipe(plan.recipe))
    console.table(rows, ["step", "state", "takes"])
    console.note(f"texts: {_texts(plan.recipe.text)}")
    console.note(f"training: {_training(plan.recipe)}")
    console.note(f"device: a CUDA device where torch has one, else {describe_cpu().model}")
    console.note(f"next: compress pretrain {source}")


def _rows(plan: PretrainPlan, runs: Path) -> Iterator[dict[str, Any]]:
    store = StepStore(runs)
    executor = Executor(plan, store, Console("quiet"), Path("unused"), Launch())
    for step in plan.steps:
        if record := executor.cached(step):
            executor.outcome.records[step.name] = record
            yield {"step": step.name, "state": "done", "takes": f"took {duration(record.seconds)}"}
        else:
            started = (store.steps / ".partial" / f"{step.name}-{step.fingerprint}").is_dir()
            yield {"step": step.name, "state": "started" if started else "to do", "takes": "unknown before it ran"}


def _texts(text: Text) -> str:
    if text.hub:
        return f"split {text.split} of {text.hub}"
    return ", ".join(f"{file} ({fmt.size(Path(file).stat().st_size)})" for file in text.files or ())


def _training(recipe: PretrainRecipe) -> str:
    """Return the size of the training; its time is known from its first steps on."""
    train = recipe.train
    limit = f", or about {train.minutes:g} minutes" if train.minutes else ""
    rows = train.batch_size * train.accumulate
    return f"{train.steps:,} steps of {rows:,} sequences of up to {train.length} pieces{limit}"
