"""What compress computes for the rows of a tool, and where the tool's outputs or decisions are others."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.data.tokenizer import TextTokenizer, read_tokenizer
from compress.errors import UsageError
from compress.export.comparison.golden_inputs import bounded, single_texts
from compress.model_folder.model_info import FolderInfo, read_info
from compress.runtime import open_predictor
from compress.runtime.predictor import Predictor
from compress.tasks import kind_of
from tests.other_tools.tool_inputs import CHOICES, Row, rows_of

WHOLE = 10**6
"""More tokens than any row has."""

Outputs = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Answer:
    """A row's tokens and the outputs for them."""

    tokens: list[int]
    outputs: Outputs


@dataclass(frozen=True)
class Export:
    """An exported folder as compress runs it."""

    folder: Path

    @cached_property
    def info(self) -> FolderInfo:
        """Its compress.json."""
        return read_info(self.folder)

    @cached_property
    def predictor(self) -> Predictor:
        """Its model."""
        return open_predictor(self.folder)

    @cached_property
    def rows(self) -> list[Row]:
        """The rows that tools are given."""
        return rows_of(self.info.task)

    def answers(self, *, in_javascript: bool = False) -> list[Answer | None]:
        """Return what compress computes for each row alone; None where it refuses it.

        Of a text in windows it is the first. With ``in_javascript`` tokens are those that transformers.js makes of rows
        that are too long, which it cuts at the end of all tokens, and of an empty second text, which it takes for none.
        """
        return [None if tokens is None else self.run(*tokens) for tokens in self._tokens(in_javascript)]

    def run(self, ids: Sequence[int], types: Sequence[int]) -> Answer:
        """Return the outputs for these tokens."""
        arrays = {"input_ids": np.array([ids]), "token_type_ids": np.array([types])}
        arrays["attention_mask"] = np.ones_like(arrays["input_ids"])
        return Answer(list(ids), {name: values[0] for name, values in self.predictor.predict(arrays).items()})

    def _tokens(self, in_javascript: bool) -> Iterator[tuple[list[int], list[int]] | None]:
        tokens = TextTokenizer.load(self.folder)
        task = self.info.task or bounded(single_texts(), tokens.longest)
        whole = TextTokenizer(read_tokenizer(self.folder), tokens.pad_id)
        kind = kind_of(task)
        for row in self.rows:
            try:
                given = (*row, *row[1:]) if kind.is_variadic else row[0] if len(row) == 1 else row
                example = kind.examples(kind.from_input(given, task), task, tokens)[0]
            except (UsageError, IndexError):
                yield None
                continue
            if in_javascript:
                uncut = whole(row[0], row[1] or None if len(row) > 1 else None, WHOLE)
                yield uncut.input_ids[: task.max_length], uncut.token_type_ids[: task.max_length]
            else:
                yield list(example["input_ids"]), list(example["token_type_ids"])


def unpack(row: Mapping[str, Any]) -> Answer:
    """Return what a job wrote for a row."""
    outputs = {
        name: np.frombuffer(base64.b64decode(packed["data"]), dtype=np.float32).reshape(packed["shape"])
        for name, packed in row["outputs"].items()
    }
    return Answer(row["tokens"], outputs)


def differences(
    kind: str, ours: Sequence[Answer | None], theirs: Sequence[Answer], tolerance: float
) -> tuple[list[int], float, list[int]]:
    """Compare a tool's answers with ours.

    Returns:
        The rows whose tokens are others; the largest difference of an output, as a share of the largest output where
        that exceeds 1; and the rows whose decision is another though ours is clear by more than ``tolerance`` of that.
    """
    other_tokens = [
        index for index, (our, their) in enumerate(zip(ours, theirs, strict=True)) if our and our.tokens != their.tokens
    ]
    compared = {
        index: (our, their)
        for index, (our, their) in enumerate(zip(ours, theirs, strict=True))
        if our and our.tokens == their.tokens
    }
    largest, scale = 0.0, 1.0
    for our, their in compared.values():
        shared = our.outputs.keys() & their.outputs.keys()
        assert shared, f"only {', '.join(their.outputs)}; expected {', '.join(our.outputs)}"
        for name in shared:
            values = their.outputs[name]
            largest = max(largest, float(np.abs(values - our.outputs[name]).max(initial=0.0)))
            scale = max(scale, float(np.abs(our.outputs[name]).max(initial=0.0)))
    decided = [
        index for index, (mine, other) in decisions(kind, compared).items() if _is_other(mine, other, tolerance * scale)
    ]
    return other_tokens, largest / scale, decided


def decisions(kind: str, answers: Mapping[int, tuple[Answer, Answer]]) -> dict[int, tuple[Any, Any]]:
    """Return, by row, the scores (decisions, options) of which the largest one decides, ours and theirs."""
    if kind in ("multiple_choice", "ranking"):
        groups = [range(start, start + CHOICES) for start in range(0, max(answers, default=-1) + 1, CHOICES)]
        return {
            group[0]: tuple(
                np.array([[answers[index][side].outputs["logits"][0] for index in group]]) for side in (0, 1)
            )
            for group in groups
            if all(index in answers for index in group)
        }
    if kind in ("similarity", "retrieval"):  # which other text is the nearest
        return _nearest(answers)
    named = {"question_answering": ("start_logits", "end_logits")}.get(kind, ("logits",))
    if kind in ("regression", "encoder"):
        return {}
    result = {}
    for index, pair in answers.items():
        sides = []
        for answer in pair:
            scores = np.stack([answer.outputs[name] for name in named]) if len(named) > 1 else answer.outputs[named[0]]
            scores = np.atleast_2d(scores)
            sides.append(np.stack([scores[0], np.zeros_like(scores[0])], axis=-1) if kind == "multi_label" else scores)
        result[index] = tuple(sides)
    return result


def _nearest(answers: Mapping[int, tuple[Answer, Answer]]) -> dict[int, tuple[Any, Any]]:
    vectors = [np.stack([pair[side].outputs["sentence_embedding"] for pair in answers.values()]) for side in (0, 1)]
    cosines = [each @ each.T - 2 * np.eye(len(each)) for each in vectors]
    return {index: (cosines[0][[row]], cosines[1][[row]]) for row, index in enumerate(answers)}


def _is_other(mine: NDArray[np.float32], other: NDArray[np.float32], margin: float) -> bool:
    ranked = np.sort(mine, axis=-1)
    clear = ranked[:, -1] - ranked[:, -2] > margin
    return bool((mine.argmax(-1) != other.argmax(-1))[clear].any())
