"""The probe step: the encoder and every model of the run, each compared with what it was made from."""

from collections.abc import Sequence
from pathlib import Path

from compress.data.splits.prepare_splits import load_prepared
from compress.pipeline.graph import Plan
from compress.pipeline.step_context import StepContext

ROWS = 2_000
"""Rows of train: half a minute for each model of MiniLM's size."""


def probe(context: StepContext, plan: Plan, cards: Sequence[Path]) -> None:
    """Write probe.json and probe.html."""
    from compress.models.fetch import fetch
    from compress.probe.probe_models import make_questions, probe_models
    from compress.probe.probe_page import write_probe
    from compress.probe.probe_tasks import sample_rows
    from compress.probe.states import ProbedModel
    from compress.probe.surface_tasks import SURFACE_TASKS

    recipe = plan.recipe
    source = fetch(recipe.teacher.source, recipe.teacher.revision, cards)
    models = [ProbedModel.open(source, "encoder")]
    numbers, pairs = dict[str, int](), list[tuple[int, int]]()
    for each in plan.evaluated:
        if each.step in context.inputs and each.has_attention:  # others have no layers that could be compared
            parent = plan.evaluated_parent(each.name)
            pairs.append((numbers.get(parent.name, 0) if parent else 0, len(models)))
            numbers[each.name] = len(models)
            models.append(ProbedModel.open(context.inputs[each.step], each.name))
    rows = sample_rows(load_prepared(context.inputs["data"]), ROWS, recipe.seed)
    name = recipe.task.name or recipe.task.kind
    questions = make_questions(rows, name, list(SURFACE_TASKS), recipe.seed, {})
    report = probe_models(models, questions, recipe.task.max_length, ROWS, recipe.seed, context.console, pairs)
    write_probe(context.work, report)
