"""The model card: README.md with the front matter that the Hugging Face hub reads, generated from the report."""

from pathlib import Path
from typing import Any

import yaml

from compress import format_numbers as fmt
from compress.cards import HubCheckpoint, TeacherCard, available, find_teacher
from compress.data.tokenizer import read_json
from compress.export.other_tools import VERSION, transformers_js_section
from compress.export.runners import (
    batch_note,
    cascade_section,
    describe_task,
    runner_section,
    sentence_transformers_section,
)
from compress.formats import FORMATS
from compress.measure.quality.quality_result import Quality
from compress.model_folder.cascade_info import is_cascade
from compress.model_folder.model_readme import loading_section
from compress.model_folder.sentence_transformers_files import default_prompt
from compress.model_sources import HUB_ID
from compress.publish.entry import Entry, PublishedVariant
from compress.report.report_schema import Report
from compress.report.retention import quality_on_test, winner_above_baseline
from compress.report.tables import ledger_tables
from compress.report.tables.ledger_tables import packaged_table
from compress.report.tables.machine_facts import describe_target, row_counts, truncation
from compress.report.tables.speed_tables import describe_call, format_p50, per_call_suffix, timed_unit, unstable_reasons
from compress.report.winner_summary import predict_in_python
from compress.runtime import runtime_of
from compress.runtimes import EVERYWHERE, OLDEST
from compress.select.ledger import Verdict
from compress.steps import STEPS
from compress.tables import make_table, markdown_cell, markdown_table
from compress.tasks import kind_of

VERIFICATION = (
    "## Verification\n\n`compress verify` compares every file with `digests.json`. `report/` holds the full report,"
    " as a page (`report.html`), as text and as data (`report.json`)."
)

UNDECIDED = (
    "Its gate is undecided: the rows on which winners are selected cannot tell whether it lost more than allowed."
)


def model_card(entry: Entry) -> str:
    """Return the README.md of an entry."""
    front = yaml.safe_dump(front_matter(entry), sort_keys=False, allow_unicode=True)
    parts = [
        _headline(entry),
        _usage(entry),
        _without_opening(entry.main),
        sentence_transformers_section(entry.main.info),
        transformers_js_section(entry.main.info, entry.main.exported_file, entry.name)
        if entry.main.exported_file
        else "",
        batch_note(entry.main.info.variant) if entry.main.info.variant else "",
        _runtimes(entry),
        _variants(entry),
        _formats(entry),
        _scores(entry),
        *(_speed(entry, variant, verdict) for variant in entry.variants for verdict in variant.verdicts),
        _requirements(entry),
        _origin(entry),
        VERIFICATION,
    ]
    return "\n\n".join([f"---\n{front}---", f"# {entry.name}", *filter(None, parts)]) + "\n"


def front_matter(entry: Entry) -> dict[str, Any]:
    """Return the metadata that the hub reads; unknown facts are left out."""
    report, stated = entry.report, entry.report.recipe.get("publish", {})
    pipeline = kind_of(report.task).hub_pipeline
    library = each.hub_library if (each := FORMATS.get(entry.main.row.variant.format)) else None
    if library == "transformers" and pipeline == "sentence-similarity":
        library = "sentence-transformers"
    fields = {
        "license": stated.get("license"),
        "language": stated.get("language"),
        "library_name": library,
        "pipeline_tag": pipeline,
        "base_model": base_model(report),
        "datasets": hub_data(report),
        "tags": ["compress", "encoder", *_tags(entry)],
        "metrics": [report.task.metric],
        "model-index": [{"name": entry.name, "results": _results(entry)}],
    }
    return {key: value for key, value in fields.items() if value}


def teacher_card(report: Report) -> TeacherCard | None:
    """Return the teacher's card if the recipe names one of this installation."""
    source = _source(report)
    return find_teacher(source) if source in available("teachers") else None


def base_model(report: Report) -> str | None:
    """Return the teacher's hub id; None for local folders, whose paths are private."""
    card, source = teacher_card(report), _source(report)
    if card is not None:
        return card.checkpoint.hub if isinstance(card.checkpoint, HubCheckpoint) else None
    return source.partition("@")[0] if HUB_ID.match(source) and not Path(source).exists() else None


def hub_data(report: Report) -> list[str] | None:
    """Return the data set's hub id without its configuration; None for files and builtin data."""
    name = "/".join(report.data.source.split("/")[:2])
    return [name] if HUB_ID.match(name) else None


def _source(report: Report) -> str:
    return str(report.recipe.get("teacher", {}).get("source", ""))


def _tags(entry: Entry) -> list[str]:
    """`distilled`, `pruned` … where the main variant is, and the precision of every variant."""
    sections = dict.fromkeys(model.section for model in entry.report.lineage(entry.main.row.model))
    done = [STEPS[section].tag for section in sections if section in STEPS and STEPS[section].tag]
    return [*done, *dict.fromkeys(variant.row.variant.precision for variant in entry.variants)]


def _results(entry: Entry) -> list[dict[str, Any]]:
    test = entry.main.result.test
    if test is None:
        return []
    report = entry.report
    metrics = [{"type": name, "value": round(score.value, 4)} for name, score in test.scores.items()]
    dataset = {"name": report.task.name, "type": report.data.source, "split": "test"}
    return [{"task": {"type": kind_of(report.task).hub_pipeline}, "dataset": dataset, "metrics": metrics}]


def _headline(entry: Entry) -> str:
    report, row, verdict = entry.report, entry.main.row, entry.main.verdicts[0]
    versus = verdict.comparison_with(report.teacher)
    what = markdown_cell(describe_task(report.task))
    shape = f", {row.shape}" if row.shape else ""
    if versus is None or versus.speedup is None:
        return f"{what}{shape}, {row.variant.name}."
    kept, above = versus.kept, winner_above_baseline(report, verdict)
    parts = [
        f"{what}{shape}, {row.variant.name}: {fmt.ratio(versus.speedup.value)} faster",
        per_call_suffix(report, report.target(verdict.target)),
        f" and {fmt.ratio(versus.smaller)} smaller than its teacher in PyTorch fp32",
        f", with {fmt.percent(kept)} of its {fmt.metric(report.task.metric)}" if kept else "",
        f" ({fmt.percent(above)} of what it gains over {report.floor_name})" if above is not None else "",
    ]
    return f"{''.join(parts)}.{f' {UNDECIDED}' if report.is_undecided(verdict) else ''}"


def _usage(entry: Entry) -> str:
    """Return the code that opens the root folder on the target that it won."""
    task, target = entry.report.task, entry.report.target(entry.main.verdicts[0].target)
    runtime = runtime_of(entry.main.row.variant)
    package = f"compress-encoders[{runtime.extra}]" if runtime.extra else "compress-encoders"
    lines = [f"# pip install '{package}'"]
    if runtime.extra is not None or target.device != "cpu":
        lines.append(f"# It needs {runtime.needs}.")
    return "\n".join(["```python", *lines, *predict_in_python(task, target, entry.name), "```"])


def _without_opening(variant: PublishedVariant) -> str:
    """Return how the root folder is opened by other tools: an export, or a model of our own classes."""
    if variant.exported_file:
        return runner_section(variant.info, variant.exported_file, default_prompt(variant.source))
    if is_cascade(variant.info):
        return cascade_section(variant.source)
    return loading_section(read_json(variant.source / "config.json"))


def _runtimes(entry: Entry) -> str:
    """Return where the root folder runs beside its own runtime, and what was left for that."""
    reason, libraries = entry.main.why_not_everywhere, (entry.main.info.variant or entry.main.row.variant).libraries
    if reason:
        runtimes = " and ".join(EVERYWHERE)
        return f"## Where it runs\n\nIn its own runtime; nothing was published here that runs in {runtimes}: {reason}."
    text = (
        f"ONNX Runtime {libraries.get('onnxruntime', OLDEST)} or later, transformers.js {VERSION} in Node.js and"
        " browsers, optimum."
    )
    faster = [f"`{each.path}`: {each.why_not_everywhere}" for each in entry.variants if each.why_not_everywhere]
    if faster:
        text += f" A faster or smaller variant with fewer runtimes is in {'; '.join(faster)}."
    return f"## Where it runs\n\n{text}"


def _variants(entry: Entry) -> str:
    """Return the table of variants with their targets; empty for an entry that won on one target only."""
    if len(entry.variants) == len(entry.main.verdicts) == 1:
        return ""
    target = entry.report.target
    rows = [
        {
            "variant": variant.row.key,
            "folder": f"{entry.name}/{variant.path}".rstrip("/"),
            "fastest on": ", ".join(f"{won.target} ({describe_target(target(won.target))})" for won in variant.won)
            or fmt.ABSENT,
            "runs everywhere": "no" if variant.why_not_everywhere else "yes",
            "p50": ", ".join(format_p50(variant.results[won.target].latency) for won in variant.verdicts),
            "size": fmt.size(variant.row.footprint.bytes_total if variant.row.footprint else None),
            "batch": _batch(variant),
        }
        for variant in entry.variants
    ]
    note = (
        "Each folder opens on its own; the scores below are those of the first. Batch: rows that run together, as they"
        " were scored; any where outputs do not depend on it."
    )
    return f"## Variants\n\n{note}\n\n{markdown_table(make_table(rows, names=3))}"


def _batch(variant: PublishedVariant) -> str:
    stored = variant.info.variant
    return str(stored.scored_batch or 1) if stored and stored.batch_sensitive else "any"


def _formats(entry: Entry) -> str:
    """Return the table of further formats that the entry holds beside its variants."""
    report = entry.report
    folders = {won.target: variant.path for variant in entry.variants for won in variant.won[:1]}
    held = [each for each in report.packaged if each.is_delivered and each.target in folders]
    if not held:
        return ""
    paths = ["/".join(filter(None, [entry.name, folders[each.target], each.format])) for each in held]
    shown = zip(paths, packaged_table(report, held).rows, strict=True)
    table = make_table(
        ({"folder": path, **cells} for path, cells in shown), names=4, left=("gate",), sentences=("reason",)
    )
    note = "The same model for other runtimes, each folder complete. Scores are on test, in the format's own runtime."
    return f"## Formats\n\n{note}\n\n{markdown_table(table)}"


def _scores(entry: Entry) -> str:
    report, title, test = entry.report, entry.main.verdicts[0].target, entry.main.result.test
    if test is None:
        return ""
    teacher = quality_on_test(report, report.teacher, title)
    directions = _directions(report)
    rows = [
        {
            "metric": fmt.metric(name),
            "score": fmt.score(score.value, directions[name]),
            "95 % interval": fmt.interval(score, directions[name]),
            "teacher": _score(teacher, name, directions[name]),
            **{
                fmt.drop_article(title): _score(baseline, name, directions[name])
                for title, baseline in report.baselines.items()
            },
        }
        for name, score in test.scores.items()
    ]
    table = make_table(rows, names=1, left=["95 % interval"])
    where = f"{test.rows:,} test rows of {markdown_cell(report.data.source)}"
    batch = f", scored in batches of {test.batch} as its target uses it" if test.batch else ""
    return f"## Scores\n\nOn {where}{batch}.\n\n{markdown_table(table)}"


def _score(quality: Quality | None, name: str, larger_is_better: bool) -> str:
    score = quality.scores.get(name) if quality else None
    return fmt.score(score.value if score else None, larger_is_better)


def _speed(entry: Entry, variant: PublishedVariant, verdict: Verdict) -> str:
    report, title = entry.report, verdict.target
    single = len(entry.variants) == len(entry.main.verdicts) == 1
    stages = ledger_tables.stage_table(report, title, variant.row.key)
    parts = [
        "## Speed" if single else f"## Speed on {markdown_cell(title)}: {variant.row.key}",
        f"“Faster” is the model alone, {describe_call(report)}. Measured with {describe_target(report.target(title))},"
        f" on {markdown_cell(report.machine.cpu)}. Other machines give other figures, and other ratios where their"
        " instructions differ.",
        markdown_table(ledger_tables.comparison_table(report, verdict)),
    ]
    unstable = unstable_reasons(report, title, variant.row.key, report.teacher)
    parts += [f"≈ An unstable timing, to be read as a rough estimate. {markdown_cell(reason)}." for reason in unstable]
    if stages.rows:
        parts += ["What each stage cost and gained:", markdown_table(stages)]
    return "\n\n".join(parts)


def _requirements(entry: Entry) -> str:
    """Return what serving the main variant requires; what was not measured is left out."""
    size, result = entry.main.row.footprint, entry.main.result
    lines, unit = [], timed_unit(entry.report)
    if size is not None and size.parameters is not None:
        lines.append(
            f"{fmt.count(size.parameters)} parameters, {fmt.count(size.encoder_parameters)} without embeddings"
        )
        lines += [f"{fmt.flop(count)} for a {unit} of {length} word pieces" for length, count in size.flops_at.items()]
    lines += [
        f"{fmt.size(memory.peak)} of memory at most for a process that serves in batches of {memory.batch}"
        for memory in result.serving
        if memory.peak is not None
    ]
    latency = result.latency
    if latency.first_answer_seconds is not None:
        lines.append(f"{fmt.seconds(latency.first_answer_seconds)} from process start to the first prediction")
    if latency.joules_per_row is not None:
        lines.append(f"{fmt.energy(latency.joules_per_row)} a {unit}, read from {latency.energy}")
    return "\n".join(["## Requirements", "", *(f"- {markdown_cell(line)}" for line in lines)]) if lines else ""


def _origin(entry: Entry) -> str:
    report, card = entry.report, teacher_card(entry.report)
    lines = ["## Origin", ""]
    teacher = f"{markdown_cell(card.title)} (`{card.name}`)" if card else f"`{base_model(report)}`"
    if card is not None or base_model(report):
        lines.append(f"- Teacher: {teacher}")
    if card is not None and card.licence is not None:
        lines.append(f"- Licence of the teacher's weights: {card.licence.name} ({markdown_cell(card.licence.source)})")
    lines.append(f"- Data: {markdown_cell(report.data.source)}; rows: {row_counts(report)}")
    if report.service is not None:
        lines.append(
            f"- Labels: answers of the service's model {markdown_cell(report.service.model)}{_agreement(entry)}"
        )
    lines.append(f"- Truncated texts: {markdown_cell(truncation(report))}")
    if (kept := entry.main.info.vocabulary) is not None:
        changed = ", ".join(f"{fmt.percent(share)} of {role}" for role, share in kept.changed.items())
        pieces = f"{kept.pieces:,} of {kept.pieces_before:,} word pieces ({kept.rule})"
        lines.append(f"- Vocabulary: {pieces}; rows tokenized differently than before: {changed}")
    if (variant := entry.main.info.variant) and variant.fp32_layers:
        lines.append(f"- Not quantized: {markdown_cell(', '.join(variant.fp32_layers))}")
    lines += [f"- Built from: step {parent.step}, {parent.fingerprint[:16]}" for parent in entry.main.info.parents]
    lines += [f"- Note: {markdown_cell(remark)}" for remark in report.remarks]
    return "\n".join(lines)


def _agreement(entry: Entry) -> str:
    """Return how often the main variant answers like the service; empty where test holds other labels."""
    report, test = entry.report, entry.main.result.test
    if report.service is None or not report.service.tested or test is None:
        return ""
    metric, score = report.task.metric, test.scores[report.task.metric]
    larger_is_better = _directions(report)[metric]
    value, interval = fmt.score(score.value, larger_is_better), fmt.interval(score, larger_is_better)
    held_back = f"{test.rows:,} answers that were held back"
    return f"; agreement with it on {held_back}: {fmt.metric(metric)} {value} (95 % interval {interval})"


def _directions(report: Report) -> dict[str, bool]:
    """Return whether larger is better, by metric."""
    return {metric.name: metric.larger_is_better for metric in kind_of(report.task).metrics}
