"""Puts a probe together: what is asked, one encoding of each model, and what the states, heads and weights say."""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from compress.console import Console
from compress.environment import LIBRARIES, versions
from compress.environment.cpu import describe_cpu
from compress.errors import DataError, UsageError
from compress.probe.head_patterns import PATTERNS, Heads, describe_heads, geometry, pattern_of
from compress.probe.layer_change import compare_models
from compress.probe.linear_probes import probe_layers
from compress.probe.probe_items import Corpus, ProbeTask, text_words
from compress.probe.probe_result import (
    HeadPatterns,
    LayerGeometry,
    ModelFacts,
    ProbeReport,
)
from compress.probe.probe_scores import task_scores
from compress.probe.probe_tasks import ProbeRows, task_of_rows
from compress.probe.states import ProbedModel, States, encode_states
from compress.probe.surface_tasks import SURFACE_TASKS

DESCRIBED_TEXTS, DESCRIBED_WORDS = 400, 8_000
"""Texts on which heads are described and models compared, and words of them."""
MOST_ALIKE = 10

MakeTask = Callable[[Corpus], ProbeTask]


@dataclass
class Questions:
    """The tasks of a probe and the texts they need, made before any model runs."""

    corpus: Corpus = field(default_factory=Corpus)
    tasks: list[ProbeTask] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    words: list[int] = field(default_factory=list)
    """On which models are compared and geometry is measured."""
    groups: list[int] = field(default_factory=list)
    """Their texts."""
    texts: list[tuple[str, str | None]] = field(default_factory=list)
    """On which heads are described."""

    def ask(self, name: str, make: MakeTask, *, optional: bool) -> None:
        """Add a task; one that these rows do not allow is left out with its reason if it is ``optional``."""
        try:
            self.tasks.append(make(self.corpus))
        except DataError as error:
            if not optional:
                raise
            self.left_out[name] = error.message

    def describe(self, texts: Sequence[tuple[bool, int, str]], seed: int) -> None:
        """Choose the texts and words on which models are described."""
        order = np.random.default_rng(seed).permutation(len(texts))
        for index in order[:DESCRIBED_TEXTS].tolist():
            text = texts[index][2]
            number = self.corpus.add_text(text)
            self.texts.append((text, None))
            for start, end in text_words(text):
                if len(self.words) < DESCRIBED_WORDS:
                    self.words.append(self.corpus.add_word(number, start, end))
                    self.groups.append(number)


def make_questions(
    rows: ProbeRows,
    own: str | None,
    surface: Sequence[str],
    seed: int,
    further: Mapping[str, MakeTask],
    named: frozenset[str] = frozenset(),
) -> Questions:
    """Return the questions of a probe.

    Args:
        rows: of the recipe.
        own: the name of the recipe's own task; None: it is not asked.
        surface: the tasks made of texts.
        seed: of samples.
        further: tasks of other columns.
        named: tasks that were asked for by name: a reason against them is an error.
    """
    questions = Questions()
    if own is not None:
        questions.ask(own, lambda corpus: task_of_rows(rows, own, corpus, seed), optional=False)
    for name, make in further.items():
        questions.ask(name, make, optional=False)
    texts = rows.texts()
    for name in surface:
        make_task = partial(SURFACE_TASKS[name], texts, seed=seed)
        questions.ask(name, make_task, optional=name not in named)
    questions.describe(texts, seed)
    if len(questions.words) < 2:
        raise DataError("the texts have no words to describe models on.")
    if not questions.tasks:
        reasons = "; ".join(questions.left_out.values())
        raise DataError(f"nothing can be probed: {reasons}")
    return questions


def probe_models(
    models: Sequence[ProbedModel],
    questions: Questions,
    max_length: int,
    rows: int,
    seed: int,
    console: Console,
    pairs: Sequence[tuple[int, int]] | None = None,
) -> ProbeReport:
    """Probe models one by one; ``pairs`` are compared, by default each with the one before it."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="compress-probe-") as name:
        states = [
            encode_states(model, questions.corpus, max_length, Path(name) / str(number), console)
            for number, model in enumerate(models)
        ]
        seen = np.logical_and.reduce([each.seen for each in states])
        words = np.array(questions.words, dtype=np.int64)
        groups = np.array(questions.groups, dtype=np.int64)
        _check_seen(states, words)
        heads = [describe_heads(model, questions.texts, max_length, console) for model in models]
        facts = [_facts(*each, words, seed) for each in zip(models, states, heads, strict=True)]
        tasks = [
            task_scores(each.name, probe_layers(task, each, _usable(task, seen), seed), seed)
            for each in states
            for task in _announced(questions.tasks, each.name, console)
        ]
        compared = pairs if pairs is not None else [(number - 1, number) for number in range(1, len(models))]
        changes = [
            compare_models((models[one], models[other]), (states[one], states[other]), words, groups, heads[one], seed)
            for one, other in compared
        ]
    return ProbeReport(
        models=tuple(facts),
        tasks=tuple(tasks),
        changes=tuple(changes),
        left_out=questions.left_out,
        rows=rows,
        seconds=round(time.monotonic() - started, 1),
        cpu=describe_cpu().model,
        versions=versions(LIBRARIES),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _check_seen(states: Sequence[States], words: NDArray[np.int64]) -> None:
    for each in states:
        if each.seen[words].sum() < 2:
            raise UsageError(
                f"{each.name} sees no two words of these texts: its tokenizer gives no characters of its pieces, or "
                "task.max_length is too small."
            )


def _usable(task: ProbeTask, seen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return seen[task.items[:, 0]] if task.reads == "word" else np.ones(len(task.items), dtype=np.bool_)


def _announced(tasks: Sequence[ProbeTask], model: str, console: Console) -> Iterator[ProbeTask]:
    with console.progress(len(tasks), f"{model}: probe", "tasks") as progress:
        for task in tasks:
            yield task
            progress.advance(1, task.name)


def _facts(probed: ProbedModel, states: States, heads: Heads | str, words: NDArray[np.int64], seed: int) -> ModelFacts:
    layers = geometry(states, words[states.seen[words]], seed)
    return ModelFacts(
        model=probed.name,
        layers=len(states.layers) - 1,
        geometry=tuple(
            LayerGeometry(layer=name, anisotropy=each.anisotropy, dimension=each.dimension)
            for name, each in zip(states.layers, layers, strict=True)
        ),
        heads=None if isinstance(heads, str) else _patterns(probed.name, heads),
        no_heads=heads if isinstance(heads, str) else None,
    )


def _patterns(model: str, heads: Heads) -> HeadPatterns:
    upper = np.triu_indices(len(heads.distance), 1)
    order = np.argsort(heads.divergence[upper])[:MOST_ALIKE]
    return HeadPatterns(
        model=model,
        per_layer=heads.per_layer,
        shares=_rounded(heads.shares),
        patterns=PATTERNS,
        pattern=tuple(pattern_of(shares) for shares in heads.shares),
        distance=tuple(round(float(value), 2) for value in heads.distance),
        entropy=tuple(round(float(value), 2) for value in heads.entropy),
        alike=tuple(
            (int(upper[0][pair]), int(upper[1][pair]), round(float(heads.divergence[upper][pair]), 4))
            for pair in order.tolist()
        ),
        divergence=_rounded(heads.divergence),
        tokens=heads.tokens,
    )


def _rounded(values: NDArray[np.float64]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(round(float(value), 4) for value in row) for row in values)
