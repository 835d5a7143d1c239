"""What a run shows: a line for each stage, on a terminal one live line, and everything else in log.txt."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from compress import __version__
from compress.console import Console, Progress, duration
from compress.errors import CompressError, pluralize
from compress.pipeline.graph import Step
from compress.pipeline.stages import Stage, StageSteps, stages_of
from compress.terminal import OverallLine

LOG_FILE = "log.txt"
PROGRESS_INTERVAL = 60.0
"""Seconds between two lines of progress in the log, and where there is no terminal."""

Remaining = Callable[[Sequence[Step], float], str]
"""Describes the time that is left, of the steps that are still to do and the seconds that the first of them took."""


class RunLog:
    """The file that holds everything a run did, with times; further runs append to it."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def write(self, text: str) -> None:
        """Append a message."""
        if self._path is None:
            return
        now = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as stream:
            stream.writelines(f"{now}  {line}\n" for line in text.splitlines())


class StepConsole(Console):
    """The console of a step: its notes go to the log, and are shown where the run is verbose; warnings always are."""

    def __init__(self, shown: Console, log: RunLog) -> None:
        super().__init__(shown.format, shown._out, shown._err, verbose=shown.verbose)
        self._shown, self._log = shown, log

    def note(self, text: str) -> None:
        """Log what is being done."""
        self._log.write(text)
        if self.verbose:
            self._shown.note(text)

    def warn(self, text: str) -> None:
        """Log and show what the user should know before trusting the result."""
        self._log.write(f"warning: {text}")
        self._shown.warn(text)

    @contextmanager
    def progress(self, total: float | None, label: str, unit: str = "steps") -> Iterator[Progress]:
        """Show the progress of a piece of work in the live line; without one, as in the log, a line a minute."""
        live = self._shown.live
        write = self.note if live else self._show_and_log
        logged = Progress(lambda state: write(f"{label}: {state}"), total, unit, PROGRESS_INTERVAL)
        if live is None:
            yield logged
        else:
            with live.work(f"{label}: ", total, unit, logged) as work:
                yield work
        if logged.elapsed >= PROGRESS_INTERVAL:
            self.note(f"{label}: {logged.done:g} {unit} in {duration(logged.elapsed)}")

    def _show_and_log(self, text: str) -> None:
        self._log.write(text)
        self._shown.note(text)


@dataclass
class _StageState:
    """What has happened in a stage so far."""

    stage: Stage
    steps: Sequence[Step]
    seconds: float = 0.0
    ran: list[str] = field(default_factory=list)
    reused: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


class RunOutput:
    """Shows the steps of a plan by stages, as they are done."""

    def __init__(
        self,
        steps: Sequence[Step],
        console: Console,
        log: Path | None,
        remaining: Remaining | None,
        phase: str = "",
    ) -> None:
        """``phase``: of what the run is a part, before its stages in the live line."""
        self.log = RunLog(log)
        self.console = console
        self.steps = StepConsole(console, self.log)
        self._all: list[Step] = []
        states = [_StageState(stage, own) for stage, own in stages_of(steps)]
        self._of = {step.name: state for state in states for step in state.steps}
        self._remaining = remaining
        self._phase = f"{phase} " if phase else ""
        self._unchanged: list[str] = []
        self._current: _StageState | None = None
        self._done: set[str] = set()
        self._folders: dict[str, Path] = {}
        self._line: OverallLine | None = None

    @contextmanager
    def shown(self, steps: Sequence[Step]) -> Iterator[None]:
        """Show the live line on a terminal while these steps run, and the line of the last stage at the end."""
        self._all = list(steps)
        self.log.write(f"compress {__version__}: {pluralize(len(self._all), 'step')}")
        with self.console.overall() as self._line:
            yield
            self._enter(None)
            self._flush_unchanged()

    def begin(self, step: Step, counter: str) -> None:
        """Show that a step is being run."""
        self._enter(self._of[step.name])
        self._flush_unchanged()
        self.steps.note(f"{counter} {step.name}")
        if self._line is not None:
            began, state = time.monotonic(), self._of[step.name]
            stages = list(dict.fromkeys(self._of[each.name].stage for each in self._all))
            place = f"{self._phase}[{stages.index(state.stage) + 1}/{len(stages)}] {state.stage.title}"
            self._line.show(place, lambda: self._left(time.monotonic() - began))

    def reused(self, step: Step, counter: str, folder: Path) -> None:
        """Record that nothing of a step changed."""
        self.steps.note(f"{counter} {step.name}: nothing changed, skipped")
        self._end(step, self._of[step.name].reused, folder)

    def finished(self, step: Step, folder: Path, seconds: float) -> None:
        """Record that a step has a result."""
        self.steps.note(f"{step.name} took {duration(seconds)}")
        state = self._of[step.name]
        state.seconds += seconds
        self._end(step, state.ran, folder)

    def without(self, step: Step, seconds: float = 0.0, *, failed: bool) -> None:
        """Record that a step has no result, since it failed, cannot run here or is not worth its time."""
        state = self._of[step.name]
        state.seconds += seconds
        self._end(step, state.failed if failed else [], None)

    def _end(self, step: Step, names: list[str], folder: Path | None) -> None:
        self._enter(self._of[step.name])
        names.append(step.name)
        self._done.add(step.name)
        if folder is not None:
            self._folders[step.name] = folder

    def _left(self, spent: float) -> str:
        """Return how much time is left, as far as that is known."""
        due = [step for step in self._all if step.name not in self._done]
        return self._remaining(due, spent) if self._remaining and due else ""

    def _enter(self, state: _StageState | None) -> None:
        """Show what came of the stage before, where another one begins."""
        if state is self._current:
            return
        before, self._current = self._current, state
        if before is None:
            return
        if not before.ran and not before.failed:
            self._unchanged += [before.stage.title] if before.reused else []
            return
        self._flush_unchanged()
        line = self._describe(before)
        self.log.write(line)
        self.console.note(line)

    def _flush_unchanged(self) -> None:
        if self._unchanged:
            self.console.note(f"nothing changed: {', '.join(self._unchanged)}")
            self._unchanged.clear()

    def _describe(self, state: _StageState) -> str:
        """Return `pruning: 3 min 20 s; accuracy 91.4 of 100 on select`."""
        made = [step for step in state.steps if step.name in self._folders]
        try:
            outcome = state.stage.outcome(StageSteps(made, self._folders))
        except CompressError:  # the step that reads it says so
            outcome = ""
        parts = [duration(state.seconds) if state.seconds >= 0.5 else "< 1 s", outcome if made else ""]
        if state.reused:
            parts.append(f"{pluralize(len(state.reused), 'step')} of an earlier run")
        if state.failed:
            parts.append(f"{len(state.failed)} failed")
        return f"{state.stage.title}: {'; '.join(filter(None, parts))}"
