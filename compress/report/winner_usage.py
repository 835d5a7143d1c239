"""How a winner is used: the command and the lines of Python that predict with it, on pages and in the terminal."""

from __future__ import annotations

import shlex

from compress.model_info import TaskInfo
from compress.report.report_schema import Report
from compress.report.run_facts import TargetFacts
from compress.tasks import kind_of

ADDRESS_OF_RUN = "runs/{name}/winner/{target}"
"""Relative to the folder in which the run was started: a page names no folder of a machine."""


def run_addresses(report: Report) -> dict[str, str]:
    """Return where a run's own folder has its winners, by target."""
    return {
        verdict.target: ADDRESS_OF_RUN.format(name=report.name, target=verdict.target)
        for verdict in report.verdicts
        if verdict.winner
    }


def predict_command(task: TaskInfo, target: TargetFacts, address: str) -> str:
    """Return the command that predicts with the model at ``address``, with as many texts as the task reads at once."""
    options = () if target.device == "cpu" else ("--device", target.device)
    texts = (f'"{text}"' for text in sample_texts(task))
    return " ".join(["compress predict", *map(shlex.quote, (address, *options)), *texts])


def predict_in_python(task: TaskInfo, target: TargetFacts, address: str) -> list[str]:
    """Return the lines of Python that predict with the model at ``address`` as the target runs it."""
    texts = sample_texts(task)
    given = f'"{texts[0]}"' if len(texts) == 1 else f"({', '.join(f'{chr(34)}{text}{chr(34)}' for text in texts)})"
    lines, placement = ["import compress"], ""
    if (target.device, target.threads) != ("cpu", 1):
        lines.append("from compress.runtime import Placement")
        placement = f', Placement("{target.device}", threads={target.threads})'
    return [*lines, f'compress.open("{address}"{placement}).predict([{given}])']


def sample_texts(task: TaskInfo) -> tuple[str, ...]:
    """Return as many texts as one input of the task has."""
    count = 3 if kind_of(task).is_variadic else len(task.text)
    return ("a text", "another text", "a third text")[:count]
