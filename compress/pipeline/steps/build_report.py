"""The report step: results of all other steps as report.json and pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from compress import __version__
from compress.data.loading.data_digest import part_files
from compress.data.splits.prepare_splits import PreparedData, load_prepared
from compress.environment import LIBRARIES, versions
from compress.label.service_info import read_service
from compress.measure.machine_snapshot import describe_machine
from compress.measure.resources.footprint import footprint
from compress.model_folder.model_info import FolderInfo, find_info, read_info
from compress.pipeline.graph import ModelVariant, Plan
from compress.pipeline.step_context import StepContext
from compress.pipeline.steps.cascade_step import share_on_test
from compress.pipeline.steps.prepare_data import data_facts
from compress.pipeline.steps.provenance import chosen_precisions, chosen_settings, curves, provenance, trials
from compress.pipeline.steps.scoring_steps import QualityScorer, reference_key
from compress.pipeline.steps.select_step import failure_of, join_ledgers, rules_of
from compress.pipeline.strip_paths import recipe_without_paths
from compress.prune.latency_table import SpeedupResult
from compress.recipe.measure_schema import Target
from compress.report.report_schema import PROBE_FILE, PROBE_PAGE, LedgerRow, Report, ReportModel
from compress.report.run_facts import ServiceFacts, StepCost, TargetFacts, pruned_structure
from compress.report.winner_summary import compare_winners, run_addresses
from compress.select.cascade_threshold import CascadeFacts
from compress.select.ledger import Ledger, PackagedFormat, read_ledger
from compress.select.quantized_files import Fallback
from compress.steps.model_step import PlannedModel
from compress.storage.atomic_write import atomic_write
from compress.storage.file_digests import file_digest
from compress.tasks import kind_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from compress.report.pages.rows_page import Disagreements, WrongRows


def report(context: StepContext, plan: Plan) -> None:
    """Write the report as JSON and pages, and the rows that the winners got wrong as a page of their own."""
    from compress.report.pages.render import write_pages
    from compress.report.pages.rows_page import write_rows_page

    builder = ReportBuilder(plan, context)
    facts = compare_winners(builder.report())
    models, differing = list(errors_of_winners(facts, builder.scorer)), list(differing_rows(facts, builder.scorer))
    if models or any(each.rows for each in differing):
        write_rows_page(context.work, facts.name, models, differing)  # before the report, which links to it
    if probed := context.inputs.get("probe"):
        for name in (PROBE_FILE, PROBE_PAGE):  # before the report, which links to it
            atomic_write(context.work / name, (probed / name).read_bytes())
    write_pages(context.work, facts, run_addresses(facts))


def errors_of_winners(report: Report, scorer: QualityScorer) -> Iterator[WrongRows]:
    """Yield the wrong rows of the row that the report shows in detail on each target, each model's answers once."""
    from compress.report.pages.rows_page import wrong_rows

    task, rows = scorer.roles.info.task_info, scorer.roles.rows("test")
    kind, numbers = kind_of(task), scorer.roles.test_numbers()
    for key, targets, answers, teachers in _detailed_answers(report, scorer):
        others, gold = None if key == report.teacher else teachers, scorer.gold["test"]
        found = wrong_rows(kind, task, rows, gold, answers, others, model=key, targets=targets, numbers=numbers)
        if found:
            yield found


def differing_rows(report: Report, scorer: QualityScorer) -> Iterator[Disagreements]:
    """Yield the rows on which the row in detail and the teacher differ most, each model's answers once."""
    from compress.report.pages.rows_page import disagreements

    task, rows = scorer.roles.info.task_info, scorer.roles.rows("test")
    for key, targets, answers, teachers in _detailed_answers(report, scorer):
        if key != report.teacher and teachers is not None:
            gold = scorer.gold["test"]
            yield disagreements(kind_of(task), task, rows, gold, answers, teachers, model=key, targets=targets)


def _detailed_answers(
    report: Report, scorer: QualityScorer
) -> Iterator[tuple[str, list[str], NDArray[Any], NDArray[Any] | None]]:
    """Yield the row that the report shows in detail on each target, the targets, its answers and the teacher's."""
    titles: dict[tuple[str, str], list[str]] = {}
    for title in report.titles:
        key = report.detailed(title)
        if step := scorer.step_of(key, title):
            titles.setdefault((key, step), []).append(title)
    for (key, _), targets in titles.items():
        answers, teachers = (scorer.answers(each, targets[0]) for each in (key, report.teacher))
        if answers is not None:
            yield key, targets, answers, teachers


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
    def scorer(self) -> QualityScorer:
        """The outputs of all rows."""
        return QualityScorer(self.plan, self.context)

    def report(self) -> Report:
        """Join the ledgers of the steps, and gather what the run was made of."""
        recipe, infos = self.plan.recipe, self._infos()
        variants = self.plan.variants
        ledger = join_ledgers(self.context, self.plan, "quality", "measure", "select")
        ledger = ledger.model_copy(update={"packaged": tuple(self._packaged())})
        return Report(
            **{name: getattr(ledger, name) for name in Ledger.model_fields if name != "schema_version"},
            name=recipe.name,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            versions={"compress-encoders": __version__, **versions(LIBRARIES)},
            machine=describe_machine(device=any(target.device == "cuda" for target in recipe.targets)),
            recipe=recipe_without_paths(recipe),
            task=self.roles.info.task_info.model_copy(update={"name": recipe.task_title}),
            data=data_facts(self.plan, self.context, self.roles, self.scorer.reference_facts),
            rules=rules_of(recipe),
            targets=tuple(self._target(target) for target in recipe.targets),
            steps=tuple(self._step(step.name) for step in self.plan.steps if step.kind not in ("report", "publish")),
            rows=tuple(self._row(entry) for entry in variants),
            teacher=reference_key(self.plan),
            unquantized={entry.key: entry.unquantized for entry in variants if entry.unquantized},
            floor_name=kind_of(recipe.task).baseline.name,
            floor_reason=failure_of(self.context, "floor"),
            probe_name=self._probe_name(),
            layer_maps={model: info.layer_map for model, info in infos.items() if info.layer_map},
            pruned={
                model: pruned_structure(pruning).model_copy(update=self._speedup(model))
                for model, pruning in self._first(infos, "pruning").items()
            },
            vocabularies=self._first(infos, "vocabulary"),
            models=tuple(self._model(model) for model in self.plan.evaluated),
            service=self._service(),
            makings=provenance(self.plan, self._folders()),
            chosen=chosen_settings(self.plan, self._folders()),
            precisions=chosen_precisions(self.plan, self._folders()),
            trials=trials(self.plan, self._folders()),
            curves=curves(self.plan, self._folders()),
            cascades=dict(self._cascades()),
            remarks=tuple(self.plan.left_out.values()),
        )

    def _row(self, entry: ModelVariant) -> LedgerRow:
        """Return the row of a variant; of one that was not built, why."""
        folder, records = self.context.inputs.get(entry.step), self.context.records
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
            if cause != entry.step and status == "failed":  # of a file that was screened out the step is of no interest
                reason = f"{cause}: {reason}"
            return row.model_copy(update={"status": status, "reason": reason})
        info, steps = read_info(folder), self._steps_to(entry.step)
        changes = {
            "variant": info.variant or entry.variant.info,
            "shape": info.shape.text if info.shape else None,
            "footprint": footprint(folder),
            "cost_seconds": round(sum(records[name].seconds for name in steps), 3),
            "steps": steps,
        }
        return row.model_copy(update=changes)

    def _fallback(self, entry: ModelVariant) -> Fallback | None:
        record = self.context.records.get(entry.fallback or "")
        return Fallback.model_validate(record.measured) if record and record.measured else None

    def _cause(self, step: str) -> str:
        """The step because of which ``step`` has no result: itself, or one that it was made from."""
        if self.plan.step(step).tolerant and step in self.context.failures:
            return step  # it went on without what was absent
        absent = [need for need in self.plan.step(step).needs if need in self.context.failures]
        return self._cause(absent[0]) if absent else step

    def _steps_to(self, step: str) -> tuple[str, ...]:
        """The names of ``step`` and of all steps it depends on, of those that have a result."""
        needed = {step}
        for each in reversed(self.plan.steps):
            needed |= {*each.needs} if each.name in needed else set()
        return tuple(name for name in self.context.records if name in needed)

    def _cascades(self) -> Iterator[tuple[str, CascadeFacts]]:
        """Yield by row what cascades are made of, of those that were made."""
        names = {model.name for model in self.plan.cascades}
        for entry in (entry for entry in self.plan.variants if entry.model in names):
            record = self.context.records.get(entry.step)
            scored = next((step for step in entry.scores.values() if step in self.context.inputs), None)
            if record is not None and record.measured:
                facts = CascadeFacts.model_validate(record.measured)
                share = None if scored is None else share_on_test(self.context.inputs[scored])
                yield entry.key, facts.model_copy(update={"test_share": share})

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
        winners = read_ledger(self.context.inputs["select"]).winners
        for form, step in self.plan.packages.items():
            if folder := self.context.inputs.get(step):
                yield from read_ledger(folder).packaged
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

    def _first(self, infos: Mapping[str, FolderInfo], record: Literal["pruning", "vocabulary"]) -> dict[str, Any]:
        """Return a record of what was removed, by the first model that has it."""
        kept = {model: own for model, info in infos.items() if (own := getattr(info, record))}
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

    def _target(self, target: Target) -> TargetFacts:
        reason = self.plan.missing_targets.get(target.title)
        usage = target.model_dump(exclude={"name"})
        return TargetFacts(title=target.title, present=reason is None, reason=reason, **usage)

    def _step(self, name: str) -> StepCost:
        record, reason = self.context.records.get(name), failure_of(self.context, name)
        return StepCost(
            name=name,
            fingerprint=self.plan.step(name).fingerprint,
            seconds=record.seconds if record else None,
            reused=name in self.context.reused,
            status="skipped" if name in self.context.skipped else "ok" if record and reason is None else "failed",
            reason=reason,
        )
