"""The model card: README.md with the front matter that the Hugging Face hub reads, drawn from the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from compress.cards import HubCheckpoint, TeacherCard, available, find_teacher
from compress.measure.result_base import Score
from compress.model_info import FolderInfo
from compress.model_sources import HUB_ID
from compress.report.format_numbers import (
    drop_article,
    format_count,
    format_energy,
    format_flop,
    format_interval,
    format_metric,
    format_percent,
    format_ratio,
    format_score,
    format_seconds,
    format_size,
)
from compress.report.pages.render import conditions, markdown_cell, markdown_table
from compress.report.report_schema import LedgerRow, Report, TargetFacts, Verdict
from compress.report.speedup_breakdown import speedup_stages
from compress.report.tables import ledger_tables, speed_tables
from compress.report.tables.machine_facts import row_counts, truncation
from compress.report.tables.quality_tables import above_floor
from compress.report.tables.table_type import Table
from compress.report.tables.throughput_unit import describe_call, per_call_suffix, timed_unit
from compress.runtime import runtime_of
from compress.tasks import kind_of

LIBRARIES = {"onnx": "onnx", "openvino": "openvino", "torch": "transformers"}
"""The hub's name for what loads a format."""
PIPELINES = {
    "classification": "text-classification",
    "multi_label": "text-classification",
    "regression": "text-classification",
    "token_classification": "token-classification",
    "question_answering": "question-answering",
    "multiple_choice": "multiple-choice",
    "similarity": "sentence-similarity",
    "retrieval": "sentence-similarity",
    "ranking": "text-ranking",
}
"""The hub's name for what a kind of task does."""

QUESTION_AND_TEXTS = '("a question", "a text", "another text")'
SAMPLES = {
    "question_answering": '("a question", "the text that answers it")',
    "multiple_choice": QUESTION_AND_TEXTS,
    "ranking": QUESTION_AND_TEXTS,
}
"""What one asks, where it is more than a text or a pair of them."""


@dataclass(frozen=True)
class Subject:
    """What a card is about: one row of a report, under the name it is published by."""

    name: str
    report: Report
    verdict: Verdict
    row: LedgerRow
    info: FolderInfo


def model_card(subject: Subject) -> str:
    """The whole README.md."""
    front = yaml.safe_dump(front_matter(subject), sort_keys=False, allow_unicode=True)
    told = (_headline, _use, _scores, _speed, _takes, _origin, _check)
    parts = [tell(subject) for tell in told]
    return "\n\n".join([f"---\n{front}---", f"# {subject.name}", *filter(None, parts)]) + "\n"


def front_matter(subject: Subject) -> dict[str, Any]:
    """What machines read of a card; what is not known is left out."""
    report, teacher = subject.report, teacher_card(subject.report)
    found = {
        "license": teacher.licence.name if teacher and teacher.licence else None,
        "language": [name for name in teacher.languages if name != "multilingual"] if teacher else None,
        "library_name": _library(subject),
        "pipeline_tag": PIPELINES.get(report.task.kind),
        "base_model": base_model(report),
        "datasets": hub_data(report),
        "tags": ["compress", "encoder", *_tags(subject)],
        "metrics": [report.task.metric],
        "model-index": [{"name": subject.name, "results": _results(subject)}],
    }
    return {key: value for key, value in found.items() if value}


def _library(subject: Subject) -> str | None:
    """What loads the folder; embeddings in PyTorch's format are read by sentence-transformers too."""
    library = LIBRARIES.get(subject.row.variant.format)
    embeds = PIPELINES.get(subject.report.task.kind) == "sentence-similarity"
    return "sentence-transformers" if library == "transformers" and embeds else library


def teacher_card(report: Report) -> TeacherCard | None:
    """The teacher's card, where the recipe names one that comes with this installation."""
    source = _source(report)
    return find_teacher(source) if source in available("teachers") else None


def base_model(report: Report) -> str | None:
    """The teacher's hub id; None for local folders, whose paths are nobody's business."""
    card, source = teacher_card(report), _source(report)
    if card is not None:
        return card.checkpoint.hub if isinstance(card.checkpoint, HubCheckpoint) else None
    return source.partition("@")[0] if HUB_ID.match(source) and not Path(source).exists() else None


def hub_data(report: Report) -> list[str] | None:
    """The data set's hub id, without its configuration; None for files and builtin data."""
    name = "/".join(report.data.source.split("/")[:2])
    return [name] if HUB_ID.match(name) else None


def _source(report: Report) -> str:
    teacher = report.recipe.get("teacher")
    return str(teacher.get("source", "")) if isinstance(teacher, dict) else str(teacher or "")


def _tags(subject: Subject) -> list[str]:
    stages = {"distill": "distilled", "prune": "pruned"}
    done = [
        stages[link.stage]
        for link in speedup_stages(subject.report, subject.row.key, subject.verdict.target)
        if link.stage in stages
    ]
    return [*done, subject.row.variant.precision]


def _results(subject: Subject) -> list[dict[str, Any]]:
    test = subject.row.targets[subject.verdict.target].test
    if test is None:
        return []
    report = subject.report
    metrics = [{"type": name, "value": round(score.value, 4)} for name, score in test.scores.items()]
    dataset = {"name": report.task.name, "type": report.data.source, "split": "test"}
    return [
        {"task": {"type": PIPELINES.get(report.task.kind, report.task.kind)}, "dataset": dataset, "metrics": metrics}
    ]


def _headline(subject: Subject) -> str:
    report, row = subject.report, subject.row
    today = next((one for one in subject.verdict.comparisons if one.key == report.teacher), None)
    what = f"An encoder for {markdown_cell(report.task.name)} ({report.task.kind.replace('_', ' ')})"
    shape = f", {row.shape}" if row.shape else ""
    if today is None or today.speedup is None:
        return f"{what}{shape}, {row.variant.name}."
    faster = f"{format_ratio(today.speedup.value)} faster{per_call_suffix(report, target_of(subject))}"
    gains = f"{faster} and {format_ratio(today.smaller)} smaller"
    kept = f", with {format_percent(today.kept)} of its {format_metric(report.task.metric)}" if today.kept else ""
    above = f" ({told} above {report.floor_name})" if report.floor and (told := _above_floor(subject)) else ""
    return f"{what}{shape}, {row.variant.name}: {gains} than its teacher in PyTorch fp32{kept}{above}."


def _above_floor(subject: Subject) -> str:
    test = subject.row.targets[subject.verdict.target].test
    return above_floor(subject.report, test, subject.verdict.target)


def _use(subject: Subject) -> str:
    task = subject.report.task
    sample = SAMPLES.get(task.kind, '("a text", "another text")' if len(task.text) == 2 else '"a text"')
    runtime, target = runtime_of(subject.row.variant), target_of(subject)
    package = f"compress-encoders[{runtime.extra}]" if runtime.extra else "compress-encoders"
    base_install = runtime.extra is None and target.device == "cpu"
    lines = [f"# pip install '{package}'", "" if base_install else f"# It needs {runtime.needs}.", "import compress"]
    place = ""
    if (target.device, target.threads) != ("cpu", 1):
        lines.append("from compress.runtime import Placement")
        place = f', Placement("{target.device}"' + (f", threads={target.threads})" if target.threads != 1 else ")")
    lines.append(f'compress.open("{subject.name}"{place}).predict([{sample}])')
    return "\n".join(["```python", *filter(None, lines), "```"])


def target_of(subject: Subject) -> TargetFacts:
    """The place of use at which it won."""
    return next(target for target in subject.report.targets if target.title == subject.verdict.target)


def _scores(subject: Subject) -> str:
    test = subject.row.targets[subject.verdict.target].test
    if test is None:
        return ""
    reference = subject.report.row(subject.report.teacher)
    place = reference.targets.get(subject.verdict.target) if reference else None
    theirs = place.test.scores if place and place.test else {}
    directions = {metric.name: metric.larger_is_better for metric in kind_of(subject.report.task).metrics}
    floors = subject.report.floor.scores if subject.report.floor else {}

    def score(scores: Mapping[str, Score], name: str) -> str:
        return format_score(scores[name].value if name in scores else None, directions[name])

    rows = tuple(
        {
            "metric": format_metric(name),
            "score": score(test.scores, name),
            "95 % interval": format_interval(found, directions[name]),
            "teacher": score(theirs, name),
            drop_article(subject.report.floor_name): score(floors, name),
        }
        for name, found in test.scores.items()
    )
    columns = ("metric", "score", "95 % interval", "teacher", drop_article(subject.report.floor_name))
    table = Table(columns, rows, frozenset({"score", *columns[3:]}))
    where = f"{test.rows:,} test rows of {markdown_cell(subject.report.data.source)}"
    batch = f", scored in batches of {test.batch} as its target uses it" if test.batch else ""
    return f"## Scores\n\nOn {where}{batch}.\n\n{markdown_table(table)}"


def _speed(subject: Subject) -> str:
    report, title, target = subject.report, subject.verdict.target, target_of(subject)
    stages = ledger_tables.stages(report, title, subject.row.key)
    parts = [
        "## Speed",
        f"“Faster” is the model alone, {describe_call(report)}. Measured at {conditions(target)}, on"
        f" {markdown_cell(report.machine.name)}. Other machines give other figures, and other ratios where their"
        " instructions differ.",
        markdown_table(ledger_tables.comparisons(report, subject.verdict)),
    ]
    parts += [f"≈ An unstable timing, no more than a hint. {markdown_cell(reason)}." for reason in _shaky(subject)]
    if stages.rows:
        parts += ["What each stage cost and gained:", markdown_table(stages)]
    return "\n\n".join(parts)


def _shaky(subject: Subject) -> list[str]:
    rows = subject.row, subject.report.row(subject.report.teacher)
    title = subject.verdict.target
    return speed_tables.noise_reasons(
        {row.key: row.targets[title].latency for row in rows if row is not None and title in row.targets}
    )


def _takes(subject: Subject) -> str:
    """What serving it takes; what was not measured is left out."""
    size, place = subject.row.footprint, subject.row.targets[subject.verdict.target]
    lines, one = [], timed_unit(subject.report)
    if size is not None and size.parameters is not None:
        lines.append(
            f"{format_count(size.parameters)} parameters, {format_count(size.encoder_parameters)} without embeddings"
        )
        lines += [
            f"{format_flop(count)} for a {one} of {length} word pieces" for length, count in size.flops_at.items()
        ]
    for each in place.serving:
        if each.peak is not None:
            how = "one by one" if each.batch == 1 else f"in batches of {each.batch}"
            lines.append(f"{format_size(each.peak)} of memory at most for a process that serves {how}")
    if place.latency.first_answer_seconds is not None:
        lines.append(
            f"{format_seconds(place.latency.first_answer_seconds)} from the start of a process to its first answer"
        )
    if place.latency.joules_per_row is not None:
        lines.append(f"{format_energy(place.latency.joules_per_row)} a {one}, read from {place.latency.energy}")
    return "\n".join(["## What it takes", "", *(f"- {markdown_cell(line)}" for line in lines)]) if lines else ""


def _origin(subject: Subject) -> str:
    report, card = subject.report, teacher_card(subject.report)
    lines = ["## Where it comes from", ""]
    if card is not None:
        lines.append(f"- Teacher: {markdown_cell(card.title)} (`{card.name}`)")
    elif base_model(report):
        lines.append(f"- Teacher: `{base_model(report)}`")
    if card is not None and card.licence is not None:
        lines.append(f"- Licence of the teacher's weights: {card.licence.name} ({markdown_cell(card.licence.source)})")
    lines.append(f"- Data: {markdown_cell(report.data.source)}; rows: {row_counts(report)}")
    lines.append(f"- Texts that were cut: {markdown_cell(truncation(report))}")
    lines += [f"- Made from: step {parent.step}, {parent.fingerprint[:16]}" for parent in subject.info.parents]
    lines += [f"- Note: {markdown_cell(remark)}" for remark in report.remarks]
    return "\n".join(lines)


def _check(subject: Subject) -> str:
    return (
        "## Check it\n\n`compress verify` compares every file with `digests.json`. `report/` holds the full report, as"
        " a page (`report.html`), as text and as data (`report.json`)."
    )
