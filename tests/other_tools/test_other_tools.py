"""Exports of trained models in the tools that their users have: the same outputs and the same decisions as here.

Slow: each tool has an environment of its own. Models are trained, and environments installed, once per machine.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from benchmarks.distill_throughput.environments import NotInstalled
from compress.model_folder.model_info import read_info
from compress.quantize.calibration_rows import calibration_batches
from compress.tasks import kind_of
from tests.conftest import machine_folder
from tests.other_tools.browser_job import run_in_chromium
from tests.other_tools.comparison import Export, differences, unpack
from tests.other_tools.tool_environments import TOLERANCES, TOOLS, Tool, installed, node_packages
from tests.other_tools.tool_inputs import PLAIN
from tests.other_tools.trained_models import KINDS, MODELS, trained_models
from tests.variant_builder import build

DOCS = Path(__file__).parents[2] / "docs" / "other-tools.md"
JOBS = Path(__file__).parent / "jobs"
PARENTS = {"onnx-fp32": None, "onnx-int8": "onnx-fp32", "openvino-fp32": "onnx-fp32", "openvino-int8": "onnx-fp32"}
"""What each variant is made from; None: the model folder."""
BATCH = 16
MINUTES = 20

Case = tuple[str, str, str]
"""Kind, model and variant."""
CASES: tuple[Case, ...] = tuple(
    case
    for case in product(KINDS, MODELS, PARENTS)
    if case[0] == "classification" or not (case[1] == "student" and "openvino" in case[2])
)
"""A student differs from its teacher by its number of layers: OpenVINO's are exported of one kind."""


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all test processes of this session share."""
    folder = machine_folder(tmp_path_factory) / "other-tools"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def exports(shared: Path, data_folder: Path) -> Mapping[Case, Path]:
    """The folder of every export; test processes build different kinds at the same time."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    start = number * len(KINDS) // 2 % len(KINDS)
    for kind in (*KINDS[start:], *KINDS[:start]):
        with FileLock(shared / f"{kind}.lock"):
            if not (shared / kind / "done").is_file():
                _export(kind, trained_models(kind, data_folder), shared / kind)
    return {case: shared.joinpath(*case) for case in CASES}


def _export(kind: str, models: Mapping[str, Path], to: Path) -> None:
    for name, model in models.items():
        for variant, parent in PARENTS.items():
            if (kind, name, variant) not in CASES:
                continue
            work = to / name / variant
            work.mkdir(parents=True, exist_ok=True)
            task = read_info(model).task
            count = 1 if task is None else 3 if kind_of(task).is_variadic else len(task.text)
            lines = [(text, "\t".join([text] * count)) for text in PLAIN]
            build(
                variant,
                to / name / parent if parent else model,
                work,
                calibration=lambda: calibration_batches(lines, model, task),  # noqa: B023
            )
    (to / "done").touch()


@pytest.fixture(scope="session")
def answers_of(shared: Path, exports: Mapping[Case, Path]):
    """Returns what a tool answers, by case: each tool runs once for all test processes."""
    read: dict[str, dict[Case, Any]] = {}

    def answers(name: str) -> dict[Case, Any]:
        if name not in read:
            tool, file = TOOLS[name], shared / f"{name}.json"
            cases = [case for case in exports if tool.runs(*case)]
            with FileLock(shared / f"{name}.lock"):
                if not file.is_file():
                    _run(name, [_described(tool, case, exports[case]) for case in cases], file)
            read[name] = dict(zip(cases, json.loads(file.read_bytes()), strict=True))
        return read[name]

    return answers


def _described(tool: Tool, case: Case, folder: Path) -> dict[str, Any]:
    export = Export(folder)
    assert export.info.variant is not None
    batch = BATCH if tool.batches and not export.info.variant.batch_sensitive else None
    return {
        "folder": str(folder),
        "opens": tool.opens[case[0]],
        "options": dict(tool.options),
        "rows": export.rows,
        "batch": batch,
    }


def _run(name: str, cases: list[dict[str, Any]], file: Path) -> None:
    """Run a tool's job in its environment."""
    tool, work = TOOLS[name], file.with_suffix(".cases")
    work.write_text(json.dumps(cases), encoding="utf-8")
    script = JOBS / tool.job
    try:
        if tool.environment is not None:
            command = [str(installed(tool.environment)), str(script)]
        elif "Chromium" in name:
            run_in_chromium(node_packages(), script, cases, file)
            return
        else:
            command = [
                "node",
                str(script),
                str(node_packages() / "@huggingface/transformers/dist/transformers.node.mjs"),
            ]
    except NotInstalled as error:
        pytest.skip(str(error))
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [*command, str(work), str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60 * MINUTES,
        cwd=file.parent,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, tool in TOOLS.items() for kind in tool.opens])
def test_outputs_and_decisions_are_those_of_compress(name, kind, exports, answers_of):
    problems = []
    for (_, model, variant), answer in ((case, each) for case, each in answers_of(name).items() if case[0] == kind):
        which = f"{model} {variant}"
        if "error" in answer:
            problems.append(f"{which}: {answer['error']}")
            continue
        ours = Export(exports[kind, model, variant]).answers(in_javascript=TOOLS[name].in_javascript)
        tolerance = TOOLS[name].tolerances.get(variant, TOLERANCES[variant])
        for how in ("alone", "batched"):
            theirs = [unpack(row) for row in answer[how]]
            if theirs:
                tokens, difference, decisions = differences(kind, ours, theirs, tolerance)
                if tokens or decisions or difference > tolerance:
                    problems.append(f"{which} {how}: tokens {tokens}, outputs {difference:.2g}, decisions {decisions}")
    assert not problems, "\n".join(problems)


def test_the_table_in_the_docs_is_what_is_tested():
    lines = DOCS.read_text(encoding="utf-8").partition("| task kind |")[2].splitlines()
    names, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:1] + lines[2:] if line]
    kinds = {row[0]: row[1:] for row in rows[: len(KINDS)]}
    assert kinds.keys() == set(KINDS)
    for name, tool in TOOLS.items():
        package, _, version = name.removesuffix(" (node)").removesuffix(" (Chromium)").partition(" ")
        columns = [index for index, title in enumerate(names) if title.startswith(package) and version in title]
        for kind, cells in kinds.items():
            assert [cells[index] for index in columns] == [f"`{tool.opens[kind]}`" if kind in tool.opens else ""] * len(
                columns
            )
        assert columns or package == "tokenizers"
