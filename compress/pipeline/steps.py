"""What each kind of step does: read its inputs, call one function of its room, leave the result in its folder.

A step returns how much work it did where later runs are forecast by that. Heavy libraries are imported inside, so that
a plan, and a run that skips everything, load none of them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from compress.pipeline.workbench import Workbench
from compress.recipe.schema import Distill, Finetune, Measure, Prune, Role, Student, Target, Task, Teacher

if TYPE_CHECKING:
    from compress.pipeline.graph import Competitor, Plan
    from compress.tasks.kind import Row
    from compress.variants import Variant

ANSWERS_FILE = "answers.npz"
SCORED_FILE = "scored.json"
LATENCY_FILE = "latency.json"

SCORED_ROLES: tuple[Role, ...] = ("select", "test")

PARITY_ROWS, PARITY_BATCH = 128, 8
"""Rows of train, and rows together, on which a variant's answers are compared with its parent's."""

TIMED_ROWS = 512
"""Rows of test whose texts stand for all of them when timing."""


def data(bench: Workbench, task: Task, seed: int) -> float:
    """Read the rows of every role into memory-mapped files."""
    from compress.data.roles import prepare

    info = prepare(task, seed, bench.work, bench.console)
    return float(sum(info.counts.values()))


def finetune(
    bench: Workbench, teacher: Teacher, settings: Finetune | Literal[False], seed: int, cards: Sequence[Path]
) -> float:
    """Make the teacher: fine-tuned, or taken as it is."""
    from compress.train.finetune import finetune as train

    made = train(
        teacher.source,
        bench.inputs["data"],
        settings,
        seed,
        bench.work,
        revision=teacher.revision,
        cards=cards,
        console=bench.console,
        track=bench.track,
    )
    return made.rows_seen


def distill(bench: Workbench, student: Student, settings: Distill | Literal[False], seed: int) -> float:
    """Make the student out of the teacher."""
    from compress.train.distill import distill as train

    made = train(
        bench.inputs["finetune"],
        student,
        bench.inputs["data"],
        settings,
        seed,
        bench.work,
        console=bench.console,
        track=bench.track,
    )
    return made.rows_seen


def prune(bench: Workbench, parent: str, settings: Prune, seed: int) -> float:
    """Cut heads and neurons out of the student (or the teacher, where there is no student) and recover."""
    from compress.prune.step import prune as cut

    made = cut(
        bench.inputs[parent],
        bench.inputs["finetune"],
        bench.inputs["data"],
        settings,
        seed,
        bench.work,
        console=bench.console,
        track=bench.track,
    )
    return made.rows_seen


def build(bench: Workbench, parent: str, variant: Variant) -> None:
    """Export or quantize one model; its answers are compared with its parent's on rows of train."""
    from compress.data.batches import by_length, encode_rows
    from compress.data.roles import load_roles
    from compress.data.tokens import Tokens
    from compress.tasks import kind_of

    roles, source = load_roles(bench.inputs["data"]), bench.inputs[parent]
    task = roles.info.task_info
    rows = roles.rows("train")
    few = [rows[index] for index in range(min(PARITY_ROWS, len(rows)))]
    encoded = encode_rows(few, kind_of(task), task, Tokens.load(source))
    sample = [encoded.batch(indices) for indices in by_length(encoded.lengths, PARITY_BATCH)]
    variant.make(source, bench.work, sample=sample, console=bench.console)


def score(bench: Workbench, parent: str, variant: Variant, device: Literal["cpu", "cuda"], batch: int) -> float:
    """Answer every row of select and test with one variant, and keep the answers."""
    import numpy as np

    from compress.data.batches import encode_rows
    from compress.data.roles import load_roles
    from compress.data.tokens import Tokens
    from compress.environment import usable_cores
    from compress.measure.quality import predict_role
    from compress.runtime import open_predictor
    from compress.runtime.predictor import Place
    from compress.tasks import kind_of

    folder, roles = bench.inputs[parent], load_roles(bench.inputs["data"])
    task = roles.info.task_info
    kind = kind_of(task)
    predictor = open_predictor(folder, Place(device, usable_cores()), None if variant.build else variant.info)
    answers, truncated = {}, {}
    for role in SCORED_ROLES:
        encoded = encode_rows(roles.rows(role), kind, task, Tokens.load(folder))
        answers[role] = kind.answers(predict_role(predictor, encoded, batch), encoded.counts.tolist())
        truncated[role] = encoded.truncated
    np.savez(bench.work / ANSWERS_FILE, select=answers["select"], test=answers["test"])
    _write(bench.work / SCORED_FILE, {"schema_version": 1, "truncated": truncated, "batch": batch, "device": device})
    return float(sum(len(given) for given in answers.values()))


def floor(bench: Workbench, seed: int) -> float:
    """What a bag of words makes of the task."""
    import numpy as np

    from compress.data.roles import load_roles
    from compress.measure.floor import bag_of_words

    roles = load_roles(bench.inputs["data"])
    answers = bag_of_words(roles.rows("train"), roles.rows("test"), roles.info.task_info, seed)
    np.savez(bench.work / ANSWERS_FILE, test=answers)
    return float(roles.info.counts["train"])


def measure(bench: Workbench, targets: Sequence[Target], settings: Measure, competitors: Sequence[Competitor]) -> None:
    """Time every variant at every target it runs on, all in one session."""
    from compress.data.roles import load_roles
    from compress.measure import Job, time_jobs
    from compress.runtime.predictor import Place

    jobs = [
        Job(
            key=f"{target.title} {competitor.key}",
            folder=bench.inputs[competitor.step],
            variant=None if competitor.variant.build else competitor.variant.info,
            place=Place(target.device, target.threads),
            batch=target.batch,
            length=None if target.length == "data" else target.length,
        )
        for target in targets
        for competitor in competitors
        if target.title in competitor.scores and competitor.step in bench.inputs
    ]
    texts = sample_texts(load_roles(bench.inputs["data"]).rows("test"), TIMED_ROWS)
    found = time_jobs(jobs, texts, settings, console=bench.console)
    _write(bench.work / LATENCY_FILE, {key: latency.model_dump(mode="json") for key, latency in found.items()})


def sample_texts(rows: Sequence[Row], most: int) -> list[str | tuple[str, str]]:
    """Texts at even steps through the rows: the same ones every time."""
    step = max(1, len(rows) // most)
    chosen = [rows[index] for index in range(0, len(rows), step)][:most]
    return [row["text"] if row.get("text_pair") is None else (row["text"], row["text_pair"]) for row in chosen]


def report(bench: Workbench, plan: Plan) -> None:
    """Put everything that was found together, judge it and draw it."""
    from compress.pipeline.assemble import assemble
    from compress.report.render import write_pages

    write_pages(bench.work, assemble(plan, bench))


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
