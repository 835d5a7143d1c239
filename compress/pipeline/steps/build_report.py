"""The report step: results of all other steps as report.json and pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from compress.data.encode import encode_sample
from compress.data.loading.data_digest import find_files, part_files
from compress.data.splits.prepare_splits import PreparedData, load_prepared
from compress.data.splits.unlabelled_texts import UNLABELLED, unlabelled_info
from compress.data.tokenizer import TextTokenizer
from compress.environment import LIBRARIES, describe, versions
from compress.label.service_info import read_service
from compress.measure.baselines import baseline_for
from compress.measure.quality.disagreement import write_disagreements
from compress.measure.quality.quality_result import Disagreement
from compress.measure.resources.footprint import Footprint, footprint
from compress.measure.roofline.roofline import find_limits, shares_of_limits
from compress.model_history import VocabularyInfo
from compress.model_info import FolderInfo, find_info, read_info
from compress.pipeline.graph import QAT, VOCABULARY, ModelVariant, Plan, PlannedModel
from compress.pipeline.step_context import StepContext
from compress.pipeline.steps.measure_step import Measured
from compress.pipeline.steps.provenance import chosen_settings, provenance, trials
from compress.pipeline.steps.quality_step import QualityResults, read_quality, reference_key
from compress.pipeline.steps.select_step import failure_of, latency_at, read_timings, rules_of, targets_of
from compress.pipeline.strip_paths import recipe_without_paths, strip_paths_deep
from compress.prune.latency_table import SpeedupResult
from compress.recipe.measure_schema import Target
from compress.recipe.schema import Data
from compress.report.apply_selection import apply_selection
from compress.report.packaged_format import PackagedFormat, read_packaged
from compress.report.pruned_units import pruned_structure
from compress.report.report_schema import LedgerRow, Report, ReportModel, TargetResult
from compress.report.run_facts import DataFacts, Machine, ServiceFacts, StepCost, TargetFacts
from compress.select.quantization_loss import Fallback
from compress.select.selection import read_selection
from compress.storage.file_digests import file_digest
from compress.tasks import kind_of

DISAGREEMENTS_FILE = "disagreements.jsonl"
"""Holds texts of the user's data: it stays in the run's folder, and is never published."""

TRUNCATION_ROWS = 10_000
"""Rows of train on which the share of truncated texts is determined, at most."""


def report(context: StepContext, plan: Plan) -> None:
    """Write the report as JSON and pages, and the largest disagreements with the teacher as a file of rows."""
    from compress.report.pages.render import write_pages

    builder = ReportBuilder(plan, context)
    facts = apply_selection(builder.report(), read_selection(context.inputs["select"]))
    write_pages(context.work, facts)
    label_fields = kind_of(facts.task).label_fields
    write_disagreements(
        context.work / DISAGREEMENTS_FILE, builder.roles.rows("test"), disagreements(facts), label_fields
    )


def disagreements(report: Report) -> dict[str, Sequence[Disagreement]]:
    """The largest disagreements with the teacher by row; a target is named where they differ from the first's."""
    largest: dict[str, Sequence[Disagreement]] = {}
    for row in report.rows:
        for title, result in row.targets.items():
            rows = result.test.disagreements if result.test else ()
            if rows and largest.setdefault(row.key, rows) != rows:
                largest[f"{row.key} at {title}"] = rows
    return largest


@dataclass
class ReportBuilder:
    """Reads the results of a run's steps."""

    plan: Plan
    context: StepContext

    @cached_property
    def roles(self) -> PreparedData:
        """The prepared rows."""
        return load_prepared(self.context.inputs["data"])

    @cached_property
    def quality(self) -> QualityResults:
        """The scores of all rows."""
        return read_quality(self.context.inputs["quality"])

    @cached_property
    def measured(self) -> Measured:
        """The timings, without paths of this machine."""
        return Measured.model_validate(strip_paths_deep(read_timings(self.context).model_dump()))

    def report(self) -> Report:
        """Gather everything but gates and winners."""
        recipe = self.plan.recipe
        variants, infos = self.plan.variants, self._infos()
        return Report(
            name=recipe.name,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            versions=versions(LIBRARIES),
            machine=_machine(self.plan),
            recipe=recipe_without_paths(recipe),
            task=self.roles.info.task_info.model_copy(update={"name": recipe.task.name}),
            data=self._data(),
            rules=rules_of(recipe),
            targets=tuple(self._target(target) for target in recipe.targets),
            steps=tuple(self._step(step.name) for step in self.plan.steps if step.kind not in ("report", "publish")),
            rows=tuple(self._row(entry) for entry in variants),
            teacher=reference_key(self.plan),
            unquantized={entry.key: entry.unquantized for entry in variants if entry.unquantized},
            floor=self.quality.floor,
            floor_name=baseline_for(recipe.task.kind).name,
            floor_reason=failure_of(self.context, "floor"),
            probe=self.quality.probe,
            probe_name=self._probe_name(),
            grid=self.measured.grid,
            surroundings=self.measured.surroundings,
            limits=self.measured.limits,
            layer_maps={model: info.layer_map for model, info in infos.items() if info.layer_map},
            pruned={
                model: pruned_structure(info.pruning).model_copy(update=self._speedup(model))
                for model, info in infos.items()
                if info.pruning and info.step not in (VOCABULARY, QAT)  # shown with the model that it was cut from
            },
            vocabularies=self._vocabularies(infos),
            models=tuple(self._model(model) for model in self.plan.evaluated),
            service=self._service(),
            packaged=tuple(self._packaged()),
            makings=provenance(self.plan, self._folders()),
            chosen=chosen_settings(self.plan, self._folders()),
            trials=trials(self.plan, self._folders()),
        )

    def _service(self) -> ServiceFacts | None:
        """Return the service whose answers are the labels, and whether test holds those that were held back."""
        recipe = self.plan.recipe
        if recipe.service is None:
            return None
        info = read_service(Path(recipe.service))
        tested = [info.test_digest] == [*map(file_digest, part_files(recipe.task.data, "test"))]
        return ServiceFacts(
            model=info.model,
            tested=tested,
            self_agreement=info.self_agreement,
            cost_of_million=info.cost_of_million,
        )

    def _packaged(self) -> Iterator[PackagedFormat]:
        """Yield the formats of the winners; of a step without a result, why it has none."""
        winners = read_selection(self.context.inputs["select"]).winners
        for form, step in self.plan.packages.items():
            if folder := self.context.inputs.get(step):
                yield from read_packaged(folder).formats
                continue
            status: Literal["not built", "failed"] = "not built" if step in self.context.skipped else "failed"
            reason = failure_of(self.context, step)
            for target, winner in winners.items():
                yield PackagedFormat(target=target, winner=winner, format=form, status=status, reason=reason)

    def _probe_name(self) -> str:
        folder = self._folders().get(self.plan.teacher.name)
        info = find_info(folder) if folder else None
        if info is None or info.probe is None:
            return "the untrained encoder"
        return f"a linear probe ({info.probe.pooling})" if info.probe.pooling else "a linear probe"

    def _model(self, model: PlannedModel) -> ReportModel:
        """Return a model and its nearest ancestor with rows of its own."""
        parent = self.plan.evaluated_parent(model.name)
        return ReportModel(name=model.name, parent=parent and parent.name, section=model.section)

    def _vocabularies(self, infos: Mapping[str, FolderInfo]) -> dict[str, VocabularyInfo]:
        """Return what pruning kept of vocabularies, by the first model that has it."""
        kept = {model: info.vocabulary for model, info in infos.items() if info.vocabulary}
        parents = {model.name: self.plan.evaluated_parent(model.name) for model in self.plan.models}
        return {
            model: own
            for model, own in kept.items()
            if (parent := parents[model]) is None or kept.get(parent.name) != own
        }

    def _folders(self) -> dict[str, Path]:
        """The folders of the models that were made, by name."""
        inputs = self.context.inputs
        return {model.name: inputs[model.step] for model in self.plan.models if model.step in inputs}

    def _infos(self) -> dict[str, FolderInfo]:
        """What the folders of evaluated models state, by name."""
        infos = {model: find_info(folder) for model, folder in self._folders().items()}
        shown = {model.name for model in self.plan.evaluated}
        return {model: info for model, info in infos.items() if info is not None and model in shown}

    def _speedup(self, model: str) -> dict[str, Any]:
        """Return how the cut of a pruned model reached its goal of speed-up, and at which target."""
        prune, recipe = self.plan.recipe.prune, self.plan.recipe
        line = [self.plan.model(name) for name in (model, self.plan.model(model).parent) if name]
        measured = [record.measured for each in line if (record := self.context.records.get(each.step))]
        found = next(filter(None, measured), None)
        if found is None or prune is None:
            return {}
        target = None if prune.latency_table else prune.target or recipe.targets[0].title
        return {"speedup": SpeedupResult.model_validate(found), "target": target}

    def _data(self) -> DataFacts:
        info, folder = self.roles.info, self.context.inputs.get(UNLABELLED)
        unlabelled = unlabelled_info(folder) if folder else None
        return DataFacts(
            source=_source(self.plan.recipe.task.data),
            digest=self.context.records["data"].digest,
            rows={**info.counts, **({UNLABELLED: unlabelled.count} if unlabelled else {})},
            classes=info.per_class,
            documents=info.documents.get("test"),
            contradictory=info.contradictory,
            duplicates=info.duplicates,
            skipped=info.skipped + (unlabelled.skipped if unlabelled else 0),
            truncated={**self._truncated_of_train(), **self.quality.truncated},
            examples_per_row=self.quality.examples_per_row,
        )

    def _truncated_of_train(self) -> dict[str, float]:
        """The share of train's rows that the teacher's tokenizer truncates; of a sample if no step encoded all."""
        folder, rows = self.context.inputs.get(self.plan.teacher.step), self.roles.rows("train")
        if folder is None:
            return {}
        chosen = np.arange(0, len(rows), -(-len(rows) // TRUNCATION_ROWS))
        encoded, _ = encode_sample(rows, chosen, self.roles.info.task_info, TextTokenizer.load(folder))
        return {"train": encoded.truncated}

    def _target(self, target: Target) -> TargetFacts:
        reason = self.plan.missing_targets.get(target.title)
        usage = target.model_dump(exclude={"name"})
        return TargetFacts(title=target.title, present=reason is None, reason=reason, **usage)

    def _step(self, name: str) -> StepCost:
        record, reason = self.context.records.get(name), self.context.failures.get(name)
        return StepCost(
            name=name,
            fingerprint=self.plan.step(name).fingerprint,
            seconds=record.seconds if record else None,
            reused=name in self.context.reused,
            status="skipped" if name in self.context.skipped else "ok" if record and reason is None else "failed",
            reason=reason,
        )

    def _row(self, entry: ModelVariant) -> LedgerRow:
        folder = self.context.inputs.get(entry.step)
        row = LedgerRow(
            model=entry.model,
            step=self.plan.model(entry.model).section,
            variant=entry.variant.info,
            fallback=self._fallback(entry),
        )
        if folder is None:
            cause = self._cause(entry.step)
            reason = failure_of(self.context, cause)
            status = "not measured" if cause in self.context.skipped else "failed"
            reason = reason if cause == entry.step else f"{cause}: {reason}"
            return row.model_copy(update={"status": status, "reason": reason})
        info, size = read_info(folder), footprint(folder)
        targets, steps, records = targets_of(self.plan, entry.variant), self._steps_to(entry.step), self.context.records
        return row.model_copy(
            update={
                "variant": info.variant or entry.variant.info,
                "shape": info.shape.text if info.shape else None,
                "footprint": size,
                "cost_seconds": round(sum(records[name].seconds for name in steps), 3),
                "steps": steps,
                "targets": {target.title: self._at(entry, target, info, size) for target in targets},
            }
        )

    def _fallback(self, entry: ModelVariant) -> Fallback | None:
        record = self.context.records.get(entry.fallback or "")
        return Fallback.model_validate(record.measured) if record and record.measured else None

    def _cause(self, step: str) -> str:
        """The step because of which ``step`` has no result: itself, or one that it was made from."""
        absent = [need for need in self.plan.step(step).needs if need in self.context.failures]
        return self._cause(absent[0]) if absent else step

    def _steps_to(self, step: str) -> tuple[str, ...]:
        """The names of ``step`` and of all steps it depends on, of those that have a result."""
        needed = {step}
        for each in reversed(self.plan.steps):
            needed |= {*each.needs} if each.name in needed else set()
        return tuple(name for name in self.context.records if name in needed)

    def _at(self, entry: ModelVariant, target: Target, info: FolderInfo, size: Footprint) -> TargetResult:
        latency = latency_at(self.context, self.plan, self.measured, entry, target)
        scores = self.quality.at(entry.key, target.title)
        limits = find_limits(self.measured.limits, target.device, target.threads)
        shares = None
        if latency.timed and limits and info.shape:
            weights = size.bytes_weights
            shares = shares_of_limits(latency, info.shape, limits, entry.variant.precision, weights, target.batch)
        return TargetResult(
            select=scores.select,
            test=scores.test,
            latency=latency,
            shares=shares,
            serving=self.measured.serving.get(f"{target.device} t{target.threads} {entry.key}", ()),
        )


def _source(data: Data) -> str:
    """The name of the data for readers, without paths of this machine."""
    if data.hub or data.builtin:
        return data.hub or f"builtin {data.builtin}"
    return ", ".join(path.name for paths in find_files(data).values() for path in paths)


def _machine(plan: Plan) -> Machine:
    machine = describe(devices=any(target.device == "cuda" for target in plan.recipe.targets))
    return Machine(
        name=machine.cpu.model,
        system=machine.system,
        cores=machine.cpu.cores,
        instructions=machine.cpu.instructions or (),
        memory=machine.memory,
        accelerator=machine.gpus[0].name if machine.gpus else None,
        fingerprint=machine.fingerprint,
    )
