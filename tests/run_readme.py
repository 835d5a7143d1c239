"""Runs the script in a folder's README.md as a user would, in that folder and a process of its own, and reads it."""

import ast
import json
import re
import subprocess
import sys

import numpy as np

from compress.export.runners import MAX_LINES
from compress.tasks import KINDS

TEXTS = ("a good film", "the plot is  not great", "so dull")


def run_readme(folder, *texts):
    """Return what the script prints for these texts, by line."""
    readme = (folder / "README.md").read_text(encoding="utf-8")
    scripts = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    (code,) = [script for script in scripts if "sys.argv" in script]
    assert len(code.splitlines()) <= MAX_LINES
    command = [sys.executable, "-c", code, *texts]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def agrees(kind, lines, predictions):
    """Whether what a script printed are these predictions of compress."""
    if kind == "classification":
        printed = [line.rsplit(" ", 1) for line in lines]
        assert [label for label, _ in printed] == [each["label"] for each in predictions]
        np.testing.assert_allclose([float(p) for _, p in printed], [each["probability"] for each in predictions], 1e-4)
    elif kind == "multi_label":
        assert list(map(ast.literal_eval, lines)) == [each["labels"] for each in predictions]
    elif kind == "regression":
        np.testing.assert_allclose(list(map(float, lines)), [each["score"] for each in predictions], 1e-4)
    elif kind == "token_classification":
        assert list(map(ast.literal_eval, lines)) == [each["tags"] for each in predictions]
    elif kind == "question_answering":
        assert lines == [each["answer"] or "no answer" for each in predictions]
    elif kind == "ranking":
        assert json.loads(lines[0].partition("] ")[0] + "]") == predictions[0]["order"]
    elif kind == "multiple_choice":
        assert lines[0].partition(" ")[0] == predictions[0]["choice"]
    else:
        printed = np.array([list(map(float, re.findall(r"-?\d+\.\d*(?:e-?\d+)?", line))) for line in lines])
        vectors = np.array([each["embedding"] for each in predictions])
        np.testing.assert_allclose(printed, vectors @ vectors.T, atol=1e-4)


def typed_and_given(kind, task):
    """The arguments of a script, and the inputs of `predict` for the same texts."""
    if KINDS[kind].is_variadic:
        return TEXTS, [TEXTS]
    if kind not in ("similarity", "retrieval") and len(task.text) > 1:
        return (*TEXTS[:2], *TEXTS[1:]), [TEXTS[:2], TEXTS[1:]]
    return TEXTS, list(TEXTS)
