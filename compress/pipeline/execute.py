"""Runs a plan: reuses cached steps, runs the others, and keeps all results when a step fails."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from compress import __version__
from compress.console import Console
from compress.environment import LIBRARIES, describe, versions
from compress.errors import CompressError, DeviceUnavailable, ScreenedOut, StepIncomplete, unexpected
from compress.measure.timing.process_limits import peak_memory, reset_peak_memory
from compress.model_folder.model_info import INFO_FILE, read_info, write_info
from compress.pipeline.fingerprint import VERSIONS
from compress.pipeline.graph import Step, StepPlan
from compress.pipeline.run_output import Remaining, RunOutput
from compress.pipeline.step_context import StepContext
from compress.pipeline.step_store import InputRecord, StepRecord, StepStore, content_digest
from compress.pipeline.torchrun_launch import Launch

Status = Literal["cached", "ran", "failed", "skipped"]


@dataclass
class Outcome:
    """The status of each step, with the records of those that have a result."""

    status: dict[str, Status] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    """Why steps failed or were skipped; one of which a part failed has a record too."""
    records: dict[str, StepRecord] = field(default_factory=dict)


class Executor:
    """Runs the steps of one plan in order."""

    def __init__(
        self,
        plan: StepPlan,
        store: StepStore,
        console: Console,
        events: Path,
        launch: Launch,
        log: Path | None = None,
        remaining: Remaining | None = None,
        phase: str = "",
    ) -> None:
        self.plan = plan
        self.store = store
        self.console = console
        self._noted_machine = False
        self.events = events
        self.launch = launch
        self.output = RunOutput(plan.steps, console, log if launch.is_main else None, remaining, phase)
        self.outcome = Outcome()

    def run(self, forced: set[str], until: str | None = None) -> Outcome:
        """Run every step; ``forced`` ones even if they are cached, and none after ``until``."""
        try:
            steps = self.plan.until(until)
            with self.output.shown(steps):
                for position, step in enumerate(steps):
                    self._do(step, step.name in forced, f"[{position + 1}/{len(self.plan.steps)}]")
        finally:
            if self.launch.is_main:
                self.launch.announce(self.store.steps, "stop", "stop")
        return self.outcome

    def cached(self, step: Step) -> StepRecord | None:
        """The record of a finished step that did exactly this on exactly these inputs.

        Inputs count by the digests of their contents: one that was made again with an equal result changes nothing.
        """
        inputs = {name: made.digest for name, made in self._inputs(step).items()}
        record = self.store.record(step.name, step.fingerprint)
        if record and record.input_digests == inputs:
            return record
        return self.store.equal_step(step.name, VERSIONS.get(step.kind, 1), step.settings, inputs)

    def _do(self, step: Step, forced: bool, counter: str) -> None:
        if not self.launch.is_main:
            self._follow(step)
            return
        absent = [need for need in step.needs if need not in self.outcome.records]
        if absent and not step.tolerant:
            if step.trains:  # the other processes go on without it too
                self.launch.announce(self.store.steps, step.name, "cached")
            was_skipped = self.outcome.status[absent[0]] == "skipped"
            reason = f"needs {absent[0]}, which {'was skipped' if was_skipped else 'failed'}"
            self._go_on_without(step, reason, "skipped")
            if not was_skipped:
                self.output.steps.warn(f"{step.name} skipped: {reason}")
            return
        with self.store.hold(f"{step.name}-{step.fingerprint}", self.console):
            record = None if forced else self.cached(step)
            if record and record.fingerprint != step.fingerprint:
                record = self.store.adopt(record, step.fingerprint, self._inputs(step))
            if record and (step.in_effect is None or step.in_effect(self._context(step, self.store.folder_of(record)))):
                self._reuse(step, record, counter)
            else:
                self._run(step, counter, forced)

    def _inputs(self, step: Step) -> dict[str, InputRecord]:
        records = {need: self.outcome.records[need] for need in step.needs if need in self.outcome.records}
        return {need: InputRecord(fingerprint=made.fingerprint, digest=made.digest) for need, made in records.items()}

    def _reuse(self, step: Step, record: StepRecord, counter: str) -> None:
        if step.trains:
            self.launch.announce(self.store.steps, step.name, "cached")
        self._finish(step, "cached", record)
        self.output.reused(step, counter, self.store.folder_of(record))
        now = versions(LIBRARIES)
        before = [(name, old) for name, old in record.versions.items() if name in now and now[name] != old]
        if before:
            changed = ", ".join(f"{name} {old} → {now[name]}" for name, old in before)
            self.output.steps.warn(f"{step.name} was made with other versions ({changed}); --force runs it again")

    def _run(self, step: Step, counter: str, forced: bool) -> None:
        self._event(step, "started")
        inputs = {name: made.digest for name, made in self._inputs(step).items()}
        work = self.store.begin(step.name, step.fingerprint, inputs, forced)
        if step.in_effect is None and (completed := self.store.completed(work)):
            if step.trains:
                self.launch.announce(self.store.steps, step.name, "cached")
            self._keep(step, completed, work)
            return
        if step.trains:
            self.launch.announce(self.store.steps, step.name, "run")
        if not forced:
            self._note_other_machine(step, inputs)
        began, is_own_peak = time.perf_counter(), reset_peak_memory()
        measured, incomplete = None, None
        try:
            self.output.begin(step, counter)
            measured = step.run(self._context(step, work))
        except StepIncomplete as error:
            incomplete = error.full_message
        except Exception as error:
            # Whatever a library raises, an optional step fails alone.
            message = unexpected(error).full_message
            self._event(step, "failed", message=message)
            self.store.abandon(work)
            self.output.log.write(f"{step.name} failed: {message}")
            if not step.optional or (step.trains and self.launch.world > 1):  # the other processes wait within it
                raise
            status: Status = "skipped" if isinstance(error, (DeviceUnavailable, ScreenedOut)) else "failed"
            self._go_on_without(step, message, status, time.perf_counter() - began)
            write = self.output.steps.note if isinstance(error, ScreenedOut) else self.output.steps.warn
            write(f"{step.name} {status}: {message}")
            return
        seconds, peak = time.perf_counter() - began, peak_memory() if is_own_peak else None
        if (work / INFO_FILE).is_file():
            # What a model was made from and by is in step.json: an equal model made again has an equal digest.
            write_info(work, read_info(work).model_copy(update={"made_by": "", "parents": ()}))
        record = StepRecord(
            step=step.name,
            kind=step.kind,
            version=VERSIONS.get(step.kind, 1),
            fingerprint=step.fingerprint,
            settings=step.settings,
            inputs=self._inputs(step),
            digest=content_digest(work),
            seconds=round(seconds, 3),
            rates=measured if step.trains else None,
            measured=None if step.trains else measured,
            incomplete=incomplete,
            machine=describe(self.store.root).fingerprint,
            versions=versions(LIBRARIES),
            made_by=f"compress {__version__}",
            peak_memory=peak,
            created=_now(),
        )
        self._keep(step, record, work)
        if incomplete:
            self._event(step, "failed", message=incomplete)
            self._go_on_without(step, incomplete, "failed")
            self.output.steps.warn(f"{step.name} is incomplete: {incomplete}")

    def _keep(self, step: Step, record: StepRecord, work: Path) -> None:
        self.store.finish(record, work)
        self._finish(step, "ran", record)
        self.output.finished(step, self.store.folder_of(record), record.seconds)

    def _note_other_machine(self, step: Step, inputs: Mapping[str, str]) -> None:
        """Say once why what was timed before is timed again, and built again where a variant depends on the machine."""
        version = VERSIONS.get(step.kind, 1)
        if not self._noted_machine and self.store.has_of_other_machine(step.name, version, step.settings, inputs):
            self._noted_machine = True
            text = f"{step.name} runs again: its result is of another machine, or another number of cores"
            self.output.log.write(text)
            self.console.note(text)

    def _follow(self, step: Step) -> None:
        """A process that is not the main one takes part in training and in nothing else."""
        if not step.trains:
            return
        action = self.launch.wait_for(self.store.steps, step.name)
        if action == "stop":
            raise CompressError("the main process stopped before this step.")
        if action == "run":
            step.run(self._context(step, self.store.partial(step.name, step.fingerprint)))

    def _context(self, step: Step, work: Path) -> StepContext:
        status = self.outcome.status
        return StepContext(
            inputs={
                need: self.store.folder(need, self.plan.step(need).fingerprint)
                for need in step.needs
                if not self.launch.is_main or need in self.outcome.records
            },
            work=work,
            console=self.output.steps,
            records=dict(self.outcome.records),
            failures=dict(self.outcome.failures),
            reused=frozenset(name for name in status if status[name] == "cached"),
            skipped=frozenset(name for name in status if status[name] == "skipped"),
            track=self.plan.track,
        )

    def _finish(self, step: Step, status: Status, record: StepRecord) -> None:
        self.outcome.status[step.name] = status
        self.outcome.records[step.name] = record
        self._event(step, "skipped" if status == "cached" else "finished", seconds=record.seconds)

    def _go_on_without(self, step: Step, reason: str, status: Status, seconds: float = 0.0) -> None:
        """Go on without a step that failed, cannot run here, is not worth its time, or lacks the result of another."""
        self.output.without(step, seconds, failed=status == "failed")
        self.outcome.status[step.name] = status
        self.outcome.failures[step.name] = reason

    def _event(self, step: Step, event: str, **more: Any) -> None:
        line = {"time": _now(), "step": step.name, "fingerprint": step.fingerprint, "event": event, **more}
        self.events.parent.mkdir(parents=True, exist_ok=True)
        with self.events.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
