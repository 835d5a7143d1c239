"""The report of a run: every figure comes from a step's folder, nothing is computed twice and nothing is filled in."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.data.contents import find_files
from compress.data.roles import Roles, load_roles
from compress.environment import LIBRARIES, describe, versions
from compress.folder import FolderInfo, read_info
from compress.measure import Latency, Quality, assess, footprint
from compress.pipeline.graph import Competitor, Plan
from compress.pipeline.portable import portable
from compress.pipeline.steps import ANSWERS_FILE, LATENCY_FILE, SCORED_FILE, SCORED_ROLES
from compress.pipeline.workbench import Workbench
from compress.recipe.schema import Data, Role, Target
from compress.report.judge import judged
from compress.report.result import (
    AtTarget,
    DataFacts,
    LedgerRow,
    Machine,
    Report,
    Rules,
    StepCost,
    TargetFacts,
)
from compress.tasks import Kind, kind_of

REFERENCE = "torch-fp32"
"""The teacher in this variant is what candidates are judged against: the model as it runs today."""

Answers = dict[str, NDArray[Any]]


def assemble(plan: Plan, bench: Workbench) -> Report:
    """Gather the facts of all steps and judge them."""
    return judged(_Assembly(plan, bench).report())


@dataclass
class _Assembly:
    plan: Plan
    bench: Workbench

    @cached_property
    def roles(self) -> Roles:
        return load_roles(self.bench.inputs["data"])

    @cached_property
    def kind(self) -> Kind:
        return kind_of(self.roles.info.task_info)

    @cached_property
    def gold(self) -> Answers:
        return {role: self.kind.gold(self.roles.rows(role)) for role in SCORED_ROLES}

    @cached_property
    def latencies(self) -> dict[str, Latency]:
        folder = self.bench.inputs.get("measure")
        if folder is None:
            return {}
        found = json.loads((folder / LATENCY_FILE).read_bytes())
        return {key: Latency.model_validate(latency) for key, latency in found.items()}

    def report(self) -> Report:
        recipe = self.plan.recipe
        competitors = self.plan.competitors
        quantize = recipe.quantize
        return Report(
            name=recipe.name,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            versions=versions(LIBRARIES),
            machine=_machine(self.plan),
            recipe=portable(recipe),
            task=self.roles.info.task_info,
            data=self._data(),
            rules=Rules(
                max_drop=recipe.gate.max_drop,
                strict=recipe.gate.strict,
                max_class_drop=recipe.gate.max_class_drop,
                quantize_max_drop=quantize.max_drop if quantize else None,
                rank_by=recipe.rank_by,
            ),
            targets=tuple(self._target(target) for target in recipe.targets),
            steps=tuple(self._step(step.name) for step in self.plan.steps if step.kind != "report"),
            rows=tuple(self._row(competitor) for competitor in competitors),
            teacher=f"teacher/{REFERENCE}",
            unquantized={
                made.key: f"{made.model}/{made.variant.needs}"
                for made in competitors
                if made.variant.method is not None
            },
            floor=self._floor(),
            floor_reason=self.bench.failures.get("floor"),
        )

    def _data(self) -> DataFacts:
        info = self.roles.info
        return DataFacts(
            source=_source(self.plan.recipe.task.data),
            digest=self.bench.records["data"].digest,
            rows=info.counts,
            classes=info.per_class,
            duplicates=info.duplicates,
        )

    def _target(self, target: Target) -> TargetFacts:
        reason = self.plan.missing_targets.get(target.title)
        return TargetFacts(
            title=target.title,
            device=target.device,
            threads=target.threads,
            batch=target.batch,
            length=target.length,
            present=reason is None,
            reason=reason,
        )

    def _step(self, name: str) -> StepCost:
        record = self.bench.records.get(name)
        step = self.plan.step(name)
        if record is None:
            return StepCost(
                name=name,
                fingerprint=step.fingerprint,
                seconds=None,
                status="failed",
                reason=self.bench.failures.get(name),
            )
        return StepCost(
            name=name, fingerprint=step.fingerprint, seconds=record.seconds, reused=name in self.bench.reused
        )

    def _row(self, competitor: Competitor) -> LedgerRow:
        model_step = {"teacher": "finetune", "student": "distill", "pruned": "prune"}[competitor.model]
        folder = self.bench.inputs.get(competitor.step)
        row = LedgerRow(model=competitor.model, step=model_step, variant=competitor.variant.info)
        if folder is None:
            return row.model_copy(update={"status": "failed", "reason": self.bench.failures.get(competitor.step)})
        info: FolderInfo = read_info(folder)
        return row.model_copy(
            update={
                "variant": info.variant or competitor.variant.info,
                "shape": info.shape.text if info.shape else None,
                "footprint": footprint(folder),
                "cost_seconds": self._cost(competitor.step),
                "targets": {
                    target.title: self._at(competitor, target)
                    for target in self.plan.recipe.targets
                    if competitor.variant.runs_on(target.device)
                },
            }
        )

    def _cost(self, step: str) -> float:
        """The seconds of ``step`` and of everything it was made from."""
        needed, waiting = set[str](), [step]
        while waiting:
            name = waiting.pop()
            if name not in needed:
                needed.add(name)
                waiting += self.plan.step(name).needs
        return round(sum(self.bench.records[name].seconds for name in needed if name in self.bench.records), 3)

    def _at(self, competitor: Competitor, target: Target) -> AtTarget:
        return AtTarget(
            select=self._quality(competitor, target, "select"),
            test=self._quality(competitor, target, "test"),
            latency=self._latency(competitor, target),
        )

    def _latency(self, competitor: Competitor, target: Target) -> Latency:
        found = self.latencies.get(f"{target.title} {competitor.key}")
        reason = self.plan.missing_targets.get(target.title) or self.bench.failures.get("measure") or "it was not timed"
        return found or Latency(status="not measured", reason=reason)

    def _quality(self, competitor: Competitor, target: Target, role: Role) -> Quality | None:
        given = self._answers(competitor, target)
        if given is None:
            return None
        scored = json.loads((self.bench.inputs[competitor.scores[target.title]] / SCORED_FILE).read_bytes())
        recipe = self.plan.recipe
        return assess(
            self.kind,
            self.roles.info.task_info,
            given[role],
            self.gold[role],
            role=role,
            teacher_answers=self._others(f"teacher/{REFERENCE}", competitor, target, role),
            unquantized_answers=self._unquantized(competitor, target, role),
            truncated=scored["truncated"][role],
            batch=scored["batch"] if competitor.variant.batch_sensitive else None,
            resampling=recipe.measure.bootstrap,
            seed=recipe.seed,
        )

    def _unquantized(self, competitor: Competitor, target: Target, role: str) -> NDArray[Any] | None:
        if competitor.variant.method is None:
            return None
        return self._others(f"{competitor.model}/{competitor.variant.needs}", competitor, target, role)

    def _others(self, key: str, competitor: Competitor, target: Target, role: str) -> NDArray[Any] | None:
        """The answers of the row called ``key`` at the same target; None for that row itself."""
        if key == competitor.key:
            return None
        other = next((made for made in self.plan.competitors if made.key == key), None)
        answers = self._answers(other, target) if other else None
        return answers[role] if answers else None

    def _answers(self, competitor: Competitor, target: Target) -> Answers | None:
        step = competitor.scores.get(target.title)
        folder = self.bench.inputs.get(step) if step else None
        return _load_answers(folder) if folder else None

    def _floor(self) -> Quality | None:
        folder = self.bench.inputs.get("floor")
        if folder is None:
            return None
        recipe = self.plan.recipe
        return assess(
            self.kind,
            self.roles.info.task_info,
            _load_answers(folder)["test"],
            self.gold["test"],
            resampling=recipe.measure.bootstrap,
            seed=recipe.seed,
        )


def _load_answers(folder: Any) -> Answers:
    with np.load(folder / ANSWERS_FILE, allow_pickle=False) as kept:
        return dict(kept)


def _source(data: Data) -> str:
    """What a reader calls the data: never a path of this machine."""
    if data.hub or data.builtin:
        return data.hub or f"builtin {data.builtin}"
    return ", ".join(path.name for paths in find_files(data).values() for path in paths)


def _machine(plan: Plan) -> Machine:
    found = describe(devices=any(target.device == "cuda" for target in plan.recipe.targets))
    return Machine(
        name=found.cpu.model,
        system=found.system,
        cores=found.cpu.cores,
        instructions=found.cpu.instructions or (),
        memory=found.memory,
        accelerator=found.gpus[0].name if found.gpus else None,
        fingerprint=found.fingerprint,
    )
