"""Runs an exported web folder in Node.js, in the WebAssembly that browsers run, and compares it with Python.

So operators that the browser's build lacks, tokenizers that JavaScript cannot read, and texts that it tokenizes
differently are known before the folder is served.
"""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from compress.data.tokenizer import TextTokenizer
from compress.errors import CompressError, ModelError
from compress.export.comparison.golden_inputs import bounded, examples_of, golden_inputs
from compress.export.comparison.parity import TOLERANCE
from compress.model_folder.model_info import TaskInfo
from compress.model_folder.sentence_transformers_files import default_prompt
from compress.runtime.predictor import Predictor
from compress.runtime.text_model import with_prompt
from compress.tasks import kind_of
from compress.tasks.base import Example, TaskInput

TIMEOUT = 600
"""Seconds for loading the model and all golden inputs."""

INT8_TOLERANCE = 0.1
"""The largest difference between WebAssembly and Python in INT8, as a share of the largest output: products of integers
are the same, and where an activation lies between two integers, the last bits decide. MiniLM: up to 0.04."""


@dataclass(frozen=True)
class WebParity:
    """How far a web folder in WebAssembly repeats ONNX Runtime in Python."""

    inputs: int
    other_tokens: tuple[TaskInput, ...]
    """Inputs that JavaScript tokenizes differently."""
    unread: tuple[tuple[TaskInput, str], ...]
    """Inputs that JavaScript cannot tokenize, and why."""
    difference: float
    """Largest difference of an output, where the tokens are the same; NaN where one is not a number."""
    largest_output: float

    def __str__(self) -> str:
        """`in WebAssembly outputs within 1.2e-06 on 28 inputs`."""
        compared = self.inputs - len(self.other_tokens) - len(self.unread)
        return f"in WebAssembly outputs within {self.difference:.2g} on {compared} inputs"


def check_in_node(folder: Path, task: TaskInfo, reference: Predictor, *, is_rounded: bool) -> WebParity:
    """Run the golden inputs of ``task`` in Node.js, one at a time, and compare tokens and outputs with Python's.

    Rows are no longer than those on which other formats are compared: attention at 8,192 tokens takes gigabytes.

    Args:
        folder: a complete web folder.
        task: as its page reads it.
        reference: the same model in Python.
        is_rounded: whether it is in INT8.

    Raises:
        ModelError: it cannot be loaded or run there, tokenizes ordinary sentences differently, or has other outputs.
    """
    tokens = TextTokenizer.load(folder)
    task = bounded(task, tokens.longest)
    prompt, is_empty = default_prompt(folder), kind_of(task).is_empty
    given_inputs = [(group, given) for group, inputs in golden_inputs(task).items() for given in inputs]
    encoded = [
        (group, given, list(examples_of(with_prompt(prompt, given) if prompt else given, task, tokens)))
        for group, given in given_inputs
        if not (prompt and is_empty(given))
    ]
    accepted = [each for each in encoded if each[2]]
    bounds = {"max_length": task.max_length, "max_windows": task.max_windows}
    results = run_in_node(folder, [_as_list(given) for _, given, _ in accepted], bounds)
    other, unread, differences, largest = [], [], [0.0], 0.0
    for (group, given, examples), result in zip(accepted, results, strict=True):
        if "error" in result:
            raise ModelError(f"the page cannot predict for {shortened(given)}: {result['error']}")
        if "unread" in result:
            if group == "sentences":
                raise ModelError(f"the page cannot read {shortened(given)}: {result['unread']}")
            unread.append((given, str(result["unread"])))
            continue
        if result["ids"] != [list(map(int, example["input_ids"])) for example in examples]:
            if group == "sentences":
                raise ModelError(f"the page would read {shortened(given)} as other tokens than Python does.")
            other.append(given)
            continue
        for ours, theirs in _outputs(examples, result["outputs"], reference, tokens.pad_id, task):
            differences.append(float(np.abs(ours - theirs).max(initial=0.0)))
            largest = max(largest, float(np.abs(ours).max(initial=0.0)))
    parity = WebParity(len(accepted), tuple(other), tuple(unread), float(np.max(differences)), largest)
    allowed = (INT8_TOLERANCE if is_rounded else TOLERANCE) * max(1.0, largest)
    if not parity.difference < allowed:
        raise ModelError(
            f"{folder.name} has other outputs in WebAssembly than in Python: they differ by up to "
            f"{parity.difference:.2g}; expected less than {allowed:.2g}."
        )
    return parity


def run_in_node(
    folder: Path, inputs: Sequence[Sequence[str]], bounds: Mapping[str, int] | None = None
) -> list[dict[str, Any]]:
    """Return the ``ids``, ``outputs`` and ``prediction`` of each input; or why it is ``unread``, or its ``error``.

    ``bounds``: settings of the page's task that have other values here.
    """
    node = shutil.which("node")
    if node is None:
        raise CompressError(
            "node is needed to check that the page runs this model, and is not installed.", hint="install Node.js 20"
        )
    given = json.dumps({"inputs": inputs, "bounds": bounds or {}}).encode()
    with tempfile.TemporaryDirectory(prefix="compress-node-") as scratch:
        _copy_scripts(folder, Path(scratch))
        command = [node, str(Path(scratch) / "node_check.js"), str(folder.absolute())]
        try:
            done = subprocess.run(command, input=given, capture_output=True, timeout=TIMEOUT, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CompressError(f"node could not run the page's scripts: {error}") from error
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"it ends with {done.returncode}"]
        reason = next((line for line in lines if "Error" in line), lines[-1])
        raise CompressError(f"node could not run the page's scripts: {reason}", hint="Node.js 20 or later is expected")
    answer = json.loads(done.stdout.splitlines()[-1])
    if "error" in answer:
        raise ModelError(f"this model cannot run in a browser: {answer['error']}")
    results: list[dict[str, Any]] = answer["results"]
    return results


def _copy_scripts(folder: Path, scratch: Path) -> None:
    """Copy the scripts to where Node.js takes them as modules, which it decides by package.json."""
    (scratch / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    (scratch / "runtime").mkdir()
    for script in (*folder.glob("*.js"), *folder.glob("runtime/*.js")):
        shutil.copyfile(script, scratch / script.relative_to(folder))
    shutil.copyfile(Path(__file__).with_suffix(".js"), scratch / "node_check.js")


def _outputs(
    examples: Sequence[Example], outputs: Sequence[dict[str, Any]], reference: Predictor, pad_id: int, task: TaskInfo
) -> Iterator[tuple[Any, Any]]:
    """Yield each output of each example, from Python and from Node.js."""
    kind = kind_of(task)
    for example, theirs in zip(examples, outputs, strict=True):
        for name, ours in reference.predict(kind.collate([example], pad_id)).items():
            yield ours[0], np.asarray(theirs[name], dtype=np.float64)


def _as_list(given: TaskInput) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def shortened(given: TaskInput) -> str:
    """Return an input as messages show it."""
    return repr(given)[:60]
