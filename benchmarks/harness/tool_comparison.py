"""The harness compared with other tools: the same file, inputs, threads and cores, in alternating turns."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.harness_results import Row, Turn
from benchmarks.harness.harness_setting import Setting
from benchmarks.harness.other_tools import (
    APP,
    BARE,
    BERT_PERF_TEST,
    WITHOUT_VNNI,
    Task,
    Tool,
    ToolFailed,
    displayed_command,
    missing,
    pinned_to,
    run_tool,
)
from benchmarks.harness.verdicts import CLOSE, compare_with_tool
from compress.environment import describe_cpu
from compress.errors import CompressError
from compress.measure.timing.latency import Job, Latency
from compress.measure.timing.timing_session import time_jobs
from compress.model_folder.model_info import VariantInfo
from compress.pipeline.strip_paths import strip_paths
from compress.runtime import RUN_MODES

OURS = "ours"
FEWEST_CALLS, MOST_CALLS = 30, 2000
"""Calls of a tool in a turn."""
ONNX = None
"""How the harness opens a bare ONNX file by default: in ONNX Runtime."""
OPENVINO = RUN_MODES["openvino"]


@dataclass(frozen=True)
class Group:
    """One file in one runtime, and the tools that time it there."""

    precision: str
    runtime: str
    variant: VariantInfo | None
    tools: tuple[Tool, ...]


GROUPS = (
    Group("fp32", "ONNX Runtime", ONNX, (BARE, BERT_PERF_TEST)),
    Group("int8", "ONNX Runtime", ONNX, (BARE, BERT_PERF_TEST)),
    Group("fp32", "OpenVINO", OPENVINO, (APP,)),
)
TITLES = {
    "bare": "a bare session.run loop",
    "bert_perf_test": "onnxruntime.transformers.bert_perf_test",
    "benchmark_app": "OpenVINO's benchmark_app",
}


def planned(parts: Sequence[str]) -> list[Row]:
    """Return the rows of the requested tools."""
    return [_row(group, tool) for group in GROUPS for tool in group.tools if tool.name in parts]


def _row(group: Group, tool: Tool) -> Row:
    return Row(
        key=f"{tool.name}-{group.precision}",
        part=tool.name,
        what=f"{group.precision} in {group.runtime}, against {TITLES[tool.name]}",
        goal=f"medians within {CLOSE:.0%}",
    )


def compare(setting: Setting, parts: Sequence[str]) -> Iterator[Row]:
    """All groups, a row after every turn."""
    for group in GROUPS:
        wanted = [tool for tool in group.tools if tool.name in parts]
        if wanted:
            yield from _compare_group(setting, group, wanted)


def _compare_group(setting: Setting, group: Group, tools: Sequence[Tool]) -> Iterator[Row]:
    rows = {tool.name: _row(group, tool) for tool in tools}
    available = {}
    for tool in tools:
        if why := _unable(group, tool):
            yield rows[tool.name].model_copy(update={"reason": why})
        else:
            available[tool.name] = tool
    turns: dict[str, list[Turn]] = {name: [] for name in available}
    calls = FEWEST_CALLS
    for number in range(setting.turns):
        if setting.over or not available:
            return
        # Ours, theirs; theirs, ours: drift affects both equally.
        order = [OURS, *available] if number % 2 == 0 else [*reversed(available), OURS]
        times, faults = _take_turn(setting, group, [(name, available.get(name)) for name in order], calls)
        for name in set(available) & (set(available) if OURS in faults else set(faults)):
            fault = faults.get(OURS) or faults[name]
            yield rows[name].model_copy(update={"passed": False, "result": fault, "reason": fault})
            del available[name]
        if available:
            calls = min(MOST_CALLS, max(FEWEST_CALLS, round(setting.seconds * 1e3 / times[OURS])))
        for name, tool in available.items():
            turns[name].append(Turn(ours=times[OURS], theirs=times[name]))
            row = rows[name].model_copy(update={"setup": _setup(setting, group, tool, calls)})
            yield compare_with_tool(row, turns[name], setting.turns)


def _unable(group: Group, tool: Tool) -> str | None:
    """Why the tool cannot be compared with here."""
    return WITHOUT_VNNI if group.precision == "int8" and not describe_cpu().has_vnni else missing(tool)


def _take_turn(
    setting: Setting, group: Group, order: Sequence[tuple[str, Tool | None]], calls: int
) -> tuple[dict[str, float], dict[str, str]]:
    """Return all medians, and the errors of those that have none."""
    times: dict[str, float] = {}
    faults: dict[str, str] = {}
    for name, tool in order:
        try:
            times[name] = _time_theirs(setting, group, tool, calls) if tool else _time_ours(setting, group)
        except ToolFailed as error:
            faults[name] = str(error)
    return times, faults


def _time_ours(setting: Setting, group: Group) -> float:
    """The harness's own median, in a separate session as short as the tool's turn."""
    job = Job(
        OURS, setting.files.bare[group.precision], group.variant, setting.placement, setting.batch, setting.length
    )
    try:
        with pinned_to(setting.cores):
            latency: Latency = time_jobs([job], (), setting.comparison)[OURS]
    except CompressError as error:
        raise ToolFailed(strip_paths(error.message)) from error
    if latency.model is None:
        raise ToolFailed(f"the harness gave no figure: {strip_paths(latency.reason or latency.status)}")
    return latency.model.p50.value


def _time_theirs(setting: Setting, group: Group, tool: Tool, calls: int) -> float:
    """The tool's own median."""
    with tempfile.TemporaryDirectory(dir=setting.work) as work, pinned_to(setting.cores):
        return run_tool(tool, _task(setting, group, calls, Path(work)))


def _setup(setting: Setting, group: Group, tool: Tool, calls: int) -> dict[str, str]:
    """How the tool was called, for the report."""
    return {"command": displayed_command(tool, _task(setting, group, calls, setting.work / "work"))}


def _task(setting: Setting, group: Group, calls: int, work: Path) -> Task:
    return Task(
        model=setting.files.bare[group.precision],
        inputs=setting.files.inputs,
        batch=setting.batch,
        length=setting.length,
        threads=setting.threads,
        calls=calls,
        work=work,
    )
