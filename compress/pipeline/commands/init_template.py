"""`compress init`: writes the shortest recipe that runs, with further keys as comments."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compress.cards import available, find_student
from compress.data.loading.data_digest import check_encoding, file_problems, part_files
from compress.data.loading.file_columns import check_columns
from compress.errors import UsageError, nearest
from compress.families import Family, family_named
from compress.model_sources import source_kind
from compress.pipeline.preflight.recipe_checks import NAMES
from compress.recipe.load import parse_recipe
from compress.recipe.student_schema import LightStudent
from compress.recipe.yaml_lines import dump_yaml
from compress.steps.model_configs import config_of
from compress.storage.atomic_write import atomic_write
from compress.storage.file_names import file_name_like
from compress.tasks import KINDS
from compress.tasks.presets import NAMED_TASKS
from compress.tasks.validate_task import task_problems

TEMPLATE = """\
{name}# compress plan {path}     what it will do and how long that takes; every default with --all
# compress run {path}      run them; run it again to resume; a first try of fewer rows: --set task.data.limit=500
{task}
teacher: {teacher}          # a card (compress ls teachers), a folder, or a hub id owner/name@revision
{compression}
quantize: int8
gate: {{max_drop: 0.01}}    # what the winner may lose against the teacher: one point
targets: [cpu]            # or {{device: cpu, threads: 4, batch: 8}}, or cuda
# in task.data, unlabelled: [texts.txt]   # texts without labels, one a line, bring small students closer to the teacher
# budget: {{p50: 0.5ms, size: 5MB}}   # limits of the winner; compress search {path} looks for shapes within them
# publish: zoo/           # publish the winner at the end of every run; by hand: compress publish NAME
"""

PRUNED_TEACHER = """\
prune: {to: {speedup: 2}}   # of the teacher, measured on this machine; or shares removed: {heads: 0.5, ffn: 0.5}
# student: half-depth       # fewer layers, distilled from the teacher and then pruned (compress ls students)"""
"""Keeps more of the score than a student of the same speed (docs/pruning.md)."""

STUDENT = """\
student: {student}         # a card (compress ls students), a folder, or a shape: {{layers: 3}}
distill: {{{losses}}}"""

LIGHT = "student: {student}         # or several of one teacher: [half-depth, {student}]"
"""Nothing is pruned after it."""

PRUNED_STUDENT = "prune: {heads: 0.25, ffn: 0.5}   # shares removed; or to: {speedup: 2}, measured on this machine"

DATA_SETTINGS = {
    "range": "  range: [0.0, 1.0]       # the labels of two texts that have nothing in common, and that mean the same"
}
"""Settings that depend on the rows, each as the line of its default."""


def write_starter(
    path: Path,
    *,
    task: str | None,
    train: str | None,
    text: Sequence[str] | None,
    label: str | None,
    kind: str | None,
    teacher: str,
    student: str | None,
    encoding: str | None = None,
    cards: Sequence[Path] = (),
) -> Path:
    """Write a valid recipe whose files have its columns; existing files are not overwritten."""
    if path.exists():
        raise UsageError(f"{path} already exists.", hint="give another name, or delete it first")
    if task is not None and task not in NAMED_TASKS:
        hint = "or --train FILE for your own rows"
        raise UsageError(f"no task is called '{task}'{nearest(task, NAMED_TASKS)}", hint=hint)
    if kind is not None and kind not in KINDS:
        raise UsageError(f"no task kind is called '{kind}'{nearest(kind, KINDS)}")
    own = {"kind": kind, "text": list(text) if text else None, "label": label}
    own = {key: value for key, value in own.items() if value}
    if train is None and encoding is not None:
        raise UsageError("--train FILE is missing: --encoding is that of a file of your own rows.")
    if train is None and task is None and own:
        raise UsageError("--train FILE is missing: a kind and its columns need a file of your own rows.")
    source_kind(teacher, "teachers", cards)
    if student is not None and student not in available("students", cards):
        source_kind(student, "students", cards)
    model_type = config_of(teacher, None, cards).get("model_type")
    named = find_student(student, cards) if student and student in available("students", cards) else None
    is_light = named is not None and isinstance(named.shape, LightStudent)
    family = family_named(model_type) if model_type else None
    compression = LIGHT.format(student=_quoted(student)) if is_light else _compression(student, family)
    name = file_name_like(path.stem)
    name = "" if name == path.stem else f'name: "{name}"\n'
    content = TEMPLATE.format(
        name=name,
        path=shlex.quote(str(path)),
        task=_task(task, train, encoding, own),
        teacher=_quoted(teacher),
        compression=compression,
    )
    recipe = parse_recipe(content, str(path), (), NAMES)
    if problems := [*task_problems(recipe.task), *file_problems(recipe.task.data)]:
        raise UsageError("; ".join(map(str, problems)))
    check_columns(recipe.task)
    for file in part_files(recipe.task.data, "train"):
        check_encoding(file, recipe.task.data)
    atomic_write(path, content)
    return path


def _quoted(text: str | None) -> str:
    """Return a text as a value of a recipe, in quotes where YAML needs them."""
    return dump_yaml([text]).strip()[1:-1]


def _compression(student: str | None, family: Family | None) -> str:
    """Return the sections that make a teacher of this family small; None: not known before it is downloaded.

    The teacher is pruned; where a student is given, or the family cannot be pruned, a student is distilled.
    """
    prunable = family is None or family.prunable
    if student is None and prunable:
        return PRUNED_TEACHER
    losses = ["soft_label", "hidden_state"] + (["attention"] if family is None or family.query else [])
    weights = ", ".join(f"{loss}: 1.0" for loss in losses)
    lines = STUDENT.format(student=_quoted(student or "half-depth"), losses=weights)
    return f"{lines}\n{PRUNED_STUDENT}" if prunable else lines


def _task(task: str | None, train: str | None, encoding: str | None, own: Mapping[str, Any]) -> str:
    """Return the recipe's task: a named one, the user's own file, or the one that needs no data."""
    if train is None and not own:
        return f"task: {task or 'sentence_starts'}"
    section: dict[str, Any] = {**({"name": task} if task else {"kind": "classification"}), **own}
    if train:
        section["data"] = {"train": train, "test_share": 0.1, **({"encoding": encoding} if encoding else {})}
    lines = dump_yaml({"task": section}).strip()
    settings = () if task else KINDS[section["kind"]].settings  # a named task gives them itself
    return "\n".join([lines, *(line for name, line in DATA_SETTINGS.items() if name in settings)])
