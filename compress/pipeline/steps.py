"""What each kind of step does: read its inputs, call one function of its room, leave the result in its folder.

A step returns how much work it did where later runs are forecast by that. Heavy libraries are imported inside, so that
a plan, and a run that skips everything, load none of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from compress.pipeline.graph import Done
from compress.pipeline.rates import rates_of
from compress.pipeline.shapes import shape_of_folder
from compress.pipeline.workbench import Workbench
from compress.pipeline.workload import asks
from compress.recipe.forms import Role
from compress.recipe.measuring import Measure, Target
from compress.recipe.schema import Task, Teacher
from compress.recipe.training import Distill, Finetune, FurtherTeacher, Prune, Student, Training

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from compress.data.batches import Encoded
    from compress.measure.predict import Searched
    from compress.pipeline.graph import Competitor, Plan
    from compress.tasks.kind import Given, Kind, Row
    from compress.train.made import Made
    from compress.variants import Variant

    Asked = tuple[Sequence[Row], Sequence[Row]]
    """Rows, and the documents among which their answers are searched."""

ANSWERS_FILE = "answers.npz"
SCORED_FILE = "scored.json"

SCORED_ROLES: tuple[Role, ...] = ("select", "test")
SLICES_FILE = "slices.json"
DISAGREEMENTS_FILE = "disagreements.jsonl"
"""Holds texts of the user's data: it stays in the run's folder, and is never published."""

LENGTHS = "lengths"
"""Key of the kept answers under which the pieces of each test row stand."""

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
    bench: Workbench,
    teacher: Teacher,
    settings: Finetune | Literal[False],
    seed: int,
    cards: Sequence[Path],
    beside: Sequence[FurtherTeacher] = (),
) -> Done:
    """Make the teacher: fine-tuned, or taken as it is. Those that will teach ``beside`` it are looked at first."""
    from compress.data.roles import load_roles
    from compress.train.finetune import finetune as train
    from compress.train.teachers import check_further

    for named in beside:
        check_further(named, load_roles(bench.inputs["data"]).info.task_info)
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
    return _done(bench, made, settings)


def distill(bench: Workbench, student: Student, settings: Distill | Literal[False], seed: int) -> Done:
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
    return _done(bench, made, settings)


def prune(bench: Workbench, parent: str, settings: Prune, seed: int) -> Done:
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
    return _done(bench, made, settings.recover)


def _done(bench: Workbench, made: Made, settings: Training | Literal[False]) -> Done:
    """The rows that went through a training, and how fast."""
    from compress.data.roles import load_roles

    if made.result is None or not settings or made.info.shape is None:
        return Done(made.rows_seen)
    teacher = shape_of_folder(bench.inputs.get("finetune"))
    asked = (teacher,) * (1 + len(settings.teachers)) if teacher and isinstance(settings, Distill) else ()
    select = load_roles(bench.inputs["data"]).info.counts["select"]
    teachers = asked if asks(settings) else ()
    return Done(made.rows_seen, rates_of(made.result, made.info.shape, teachers, select, settings.restarts))


def build(bench: Workbench, parent: str, variant: Variant) -> None:
    """Export or quantize one model; its answers are compared with its parent's on rows of train."""
    from compress.data.batches import by_length, encode_rows
    from compress.data.roles import load_roles
    from compress.data.tokens import Tokens

    roles, source = load_roles(bench.inputs["data"]), bench.inputs[parent]
    task = roles.info.task_info
    rows = roles.rows("train")
    few = [rows[index] for index in range(min(PARITY_ROWS, len(rows)))]
    encoded = encode_rows(few, task, Tokens.load(source))
    sample = [encoded.batch(indices) for indices in by_length(encoded.lengths, PARITY_BATCH)]
    variant.make(source, bench.work, sample=sample, console=bench.console)


def slices(bench: Workbench, task: Task, seed: int) -> None:
    """Note the values of the columns by which the scores of test are told apart."""
    from compress.data.roles import load_roles
    from compress.data.slices import slice_values

    info = load_roles(bench.inputs["data"]).info
    values = slice_values(task, info.labels, seed, info.counts["test"], bench.console)
    _write(bench.work / SLICES_FILE, {"schema_version": 1, "columns": values})


def score(bench: Workbench, parent: str, variant: Variant, device: Literal["cpu", "cuda"], batch: int) -> float:
    """Answer every row of select and test with one variant, and keep the answers."""
    import numpy as np

    from compress.data.roles import load_roles

    roles = load_roles(bench.inputs["data"])
    rows: dict[str, Asked] = {role: (roles.rows(role), roles.documents(role)) for role in SCORED_ROLES}
    kept, truncated, examples = {}, {}, {}
    for role, answers, encoded, searched in _answered(bench, parent, variant, device, batch, rows):
        kept[role], truncated[role] = answers, encoded.truncated
        examples[role] = len(encoded) / len(encoded.counts)
        if searched is not None:
            truncated[f"{role}'s documents"] = searched.truncated
        if role == "test":
            row = np.repeat(np.arange(len(encoded.counts)), encoded.counts)
            kept[LENGTHS] = np.bincount(row, weights=encoded.lengths).astype(np.int64)
    np.savez(bench.work / ANSWERS_FILE, allow_pickle=False, **kept)
    told = {"truncated": truncated, "examples": examples, "batch": batch, "device": device}
    _write(bench.work / SCORED_FILE, {"schema_version": 1, **told})
    return float(sum(len(kept[role]) for role in rows))


def perturb(
    bench: Workbench,
    parent: str,
    variant: Variant,
    device: Literal["cpu", "cuda"],
    batch: int,
    names: Sequence[str],
    seed: int,
) -> float:
    """Answer every row of test with its texts changed in each way of ``names``, and keep the answers by that name."""
    import numpy as np

    from compress.data.roles import load_roles
    from compress.measure.robustness import PerturbedRows
    from compress.tasks import kind_of

    roles = load_roles(bench.inputs["data"])
    kind, test, documents = kind_of(roles.info.task_info), roles.rows("test"), roles.documents("test")
    rows: dict[str, Asked] = {name: (PerturbedRows(test, kind, name, seed), documents) for name in names}
    kept = {name: answers for name, answers, *_ in _answered(bench, parent, variant, device, batch, rows)}
    np.savez(bench.work / ANSWERS_FILE, allow_pickle=False, **kept)
    return float(sum(map(len, kept.values())))


def _answered(
    bench: Workbench,
    parent: str,
    variant: Variant,
    device: Literal["cpu", "cuda"],
    batch: int,
    rows: Mapping[str, Asked],
) -> Iterator[tuple[str, NDArray[Any], Encoded, Searched | None]]:
    """What one variant makes of each set of rows, the rows as it read them, and the documents they search.

    Sets that follow each other and search the same documents have them embedded once. The task is the folder's own: it
    has the thresholds that were tuned for this model.
    """
    from compress.data.tokens import Tokens
    from compress.environment import usable_cores
    from compress.folder import read_info
    from compress.measure.predict import answer_rows, embed_documents
    from compress.runtime import open_predictor
    from compress.runtime.predictor import Place

    folder = bench.inputs[parent]
    predictor = open_predictor(folder, Place(device, usable_cores()), None if variant.build else variant.info)
    task, tokens = read_info(folder).task, Tokens.load(folder)
    assert task is not None  # every model of a run was made for its task
    searched, embedded = None, None
    for name, (given, documents) in rows.items():
        if documents is not embedded:
            searched = embed_documents(predictor.predict, documents, task, tokens, batch)
            embedded = documents
        yield name, *answer_rows(predictor.predict, given, task, tokens, batch, searched), searched


def floor(bench: Workbench, seed: int) -> float:
    """What something simple makes of the task."""
    import numpy as np

    from compress.data.roles import load_roles
    from compress.measure.floor import floor_answers

    roles = load_roles(bench.inputs["data"])
    task = roles.info.task_info
    answers = floor_answers(roles.rows("train"), roles.rows("test"), task, seed, roles.documents("test"))
    np.savez(bench.work / ANSWERS_FILE, test=answers)
    return float(roles.info.counts["train"])


def measure(
    bench: Workbench,
    targets: Sequence[Target],
    settings: Measure,
    competitors: Sequence[Competitor],
    seed: int,
    limits: bool,
) -> float:
    """Time every variant at every target it runs on, and what else the recipe asks about speed and memory."""
    from compress.data.roles import load_roles
    from compress.pipeline.measured import Entrant, measure_all, turn_seconds, write_measured
    from compress.tasks import kind_of

    roles = load_roles(bench.inputs["data"])
    entrants = [
        Entrant(
            key=competitor.key,
            folder=bench.inputs[competitor.step],
            variant=None if competitor.variant.build else competitor.variant.info,
            titles=frozenset(competitor.scores),
        )
        for competitor in competitors
        if competitor.step in bench.inputs
    ]
    task = roles.info.task_info
    texts = sample_texts(roles.rows("test"), kind_of(task), TIMED_ROWS)
    measured = measure_all(
        entrants, targets, texts, settings, longest=task.max_length, seed=seed, limits=limits, console=bench.console
    )
    write_measured(bench.work, measured)
    return turn_seconds({entrant.key: entrant.titles for entrant in entrants}, targets, settings)


def sample_texts(rows: Sequence[Row], kind: Kind, most: int) -> list[Given]:
    """What would be handed over of rows at even steps through all: the same ones every time."""
    step = max(1, len(rows) // most)
    return [kind.given(rows[index]) for index in range(0, len(rows), step)][:most]


def report(bench: Workbench, plan: Plan) -> None:
    """Put everything that was found together, judge it and draw it; rows that stand out go into a file beside it."""
    from compress.data.roles import load_roles
    from compress.measure.disagreement import write_disagreements
    from compress.pipeline.assemble import assemble, disagreements
    from compress.report.render import write_pages
    from compress.tasks import kind_of

    made = assemble(plan, bench)
    write_pages(bench.work, made)
    rows = load_roles(bench.inputs["data"]).rows("test")
    answer_fields = kind_of(made.task).answer_fields
    write_disagreements(bench.work / DISAGREEMENTS_FILE, rows, disagreements(made), answer_fields)


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
