"""What a session times and when: its inputs, the order of turns, the lifetime of processes, and what fits its budget.

A session is a sequence of generations: in each, the jobs' processes run one or a few rounds; then those that start
quickly are restarted. Rounds come in pairs, the second in the reverse order of the first, so that a machine that slows
down steadily favours no job; the longer a job takes to start, the more generations its processes live. Every job runs
the same few calls, which represent the lengths of all rows.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import ceil
from pathlib import Path

import numpy as np

from compress.batch_arrays import INPUT_ARRAYS
from compress.data.tokenizer import TOKENIZER_FILE, TextTokenizer
from compress.errors import ModelError, pluralize
from compress.model_folder.cascade_info import model_folders
from compress.tasks.base import Arrays, TaskInput
from compress.tasks.kind import collate

DEFAULT_BUDGET = 45.0
"""Seconds of timing for all jobs together where the settings give neither a budget nor rounds or processes."""
DEFAULT_ROUNDS = 30
DEFAULT_PROCESSES = 10
STARTING_SHARE = 0.75
"""Of a user's budget that starting may take, so that what has started can be timed."""
OVERRUN = 0.5
"""Of a user's budget by which it is exceeded at most, where the last models started late: rather than no result."""
CHEAP_START = 2.0
"""Seconds of starting (a turn or two) that a job may spend in every generation. One that takes longer lives for two
generations, four, eight...: powers of two, so that the lifetimes of any two jobs begin and end together."""
BUDGET_ROUNDS = 3
"""Rounds of each process within a budget: the fewest whose median ignores a disturbed one."""
MIN_TURN_SECONDS = 0.1
"""Below this, starting and ending a turn and calls of unequal lengths dominate it."""
MIN_ROUNDS = 3
"""Rounds below which a spread is meaningless."""
LOAD_LAPS = 2
"""How often each number of callers is measured, the jobs interleaved."""
MIN_CALLS_FOR_P95 = 20
LAP_CALLS = -(-MIN_CALLS_FOR_P95 // LOAD_LAPS)
"""Calls to wait for in each lap, so that all laps together give a p95."""
MAX_LAP_SECONDS = 10.0
"""A lap ends after this time even with fewer calls."""


def generations_lived(start_seconds: float) -> int:
    """Return the number of generations that a process with this start-up time lives."""
    generations = 1
    while start_seconds > CHEAP_START * generations:
        generations *= 2
    return generations


def planned_rounds(rounds: int | None, processes: int | None, expected: float, wanted: float) -> list[int]:
    """Return the number of rounds in each generation, as even as possible.

    Models so slow that a pass over the calls exceeds a turn get fewer rounds, down to one a process: long calls are
    disturbed less each, and it is the number of processes that counts.

    Args:
        rounds: of the settings.
        processes: of the settings.
        expected: seconds that a round takes.
        wanted: seconds that it should take.
    """
    rounds, processes = rounds or DEFAULT_ROUNDS, processes or DEFAULT_PROCESSES
    fitting = rounds if expected <= wanted else int(rounds * wanted / expected)
    count = min(rounds, max(fitting, processes, MIN_ROUNDS))
    return [len(part) for part in np.array_split(np.arange(count), min(count, processes))]


def turn_orders(keys: Sequence[str], seed: int) -> Iterator[list[str]]:
    """Yield the order of each round: a shuffled one, its reverse, another shuffled one..."""
    random = np.random.default_rng(seed)
    while True:
        order = [str(key) for key in random.permutation(sorted(keys))]
        yield order
        yield order[::-1]


def turn_seconds(left: float, restart: float, jobs: int, longest: float) -> float:
    """Return the turn length at which `DEFAULT_PROCESSES` processes of `BUDGET_ROUNDS` rounds fit into the budget.

    Args:
        left: seconds left of the budget once all jobs have started.
        restart: seconds that restarting all jobs takes.
        jobs: number of jobs.
        longest: upper limit of the result.
    """
    turns = DEFAULT_PROCESSES * BUDGET_ROUNDS * jobs
    return float(np.clip((left - (DEFAULT_PROCESSES - 1) * restart) / turns, MIN_TURN_SECONDS, longest))


def rounds_that_fit(left: float, restart: float, round_seconds: float) -> int:
    """Return how many rounds (at most `BUDGET_ROUNDS`) of another generation fit into ``left`` seconds."""
    return int(np.clip((left - restart) / max(round_seconds, 1e-9), 0, BUDGET_ROUNDS))


def _named_budget(budget: float, whole: float) -> str:
    share = "" if budget == whole else f", its share of {whole:.3g} s,"
    return f"the budget of {budget:.3g} s{share} for timing"


def budget_too_small(budget: float, whole: float, jobs: int, starting: float | None, more: float) -> str:
    """Return the reason why a budget is too small, with the least that would do.

    Args:
        budget: in seconds, of these jobs.
        whole: the budget that the user set for all sessions.
        jobs: number of jobs.
        starting: seconds that starting all of them takes; None where none has started.
        more: seconds that everything after starting takes.
    """
    reason = f"{_named_budget(budget, whole)} is too small for {pluralize(jobs, 'model')}"
    if starting is None:
        return f"{reason}: it was used up before the first had started"
    return f"{reason}; it takes at least {ceil(starting + more)} s, {starting:.0f} s of them for starting"


def left_out(budget: float, whole: float, jobs: int, starting: float) -> str:
    """Return the reason of a job that is not started because a budget has no time for it.

    Args:
        budget: in seconds, of these jobs.
        whole: the budget that the user set for all sessions.
        jobs: number of jobs.
        starting: seconds that starting all of them would take.
    """
    return (
        f"{_named_budget(budget, whole)} went to the models before it: starting all {jobs} takes about {starting:.0f} s"
    )


def load_test_seconds(callers: Sequence[int], call_seconds: Mapping[str, float], seconds: float) -> float:
    """Return the seconds that all closed loops of ``callers`` will take, given each job's seconds a call."""
    laps = (lap_seconds(seconds, call) + count * call for count in callers for call in call_seconds.values())
    return LOAD_LAPS * sum(laps)


def lap_seconds(seconds: float, call: float) -> float:
    """Return the longest time a lap takes if a call takes ``call`` seconds and calls run one after another."""
    return max(seconds, min(MAX_LAP_SECONDS, LAP_CALLS * call))


Call = tuple[TaskInput, ...]
"""The rows of one batch."""

MAX_CALLS = 64
"""Different calls in a session, at most."""
MIN_CALLS = 9
"""Different calls in a turn at the data's lengths, at least: fewer would not represent their spread."""
SMALL_VOCABULARY = 8
"""Word pieces that any model has, for sessions with a file of unknown vocabulary."""
MAX_PIECES = 512
"""Where longer texts are cut for a model of unknown maximum length."""


def make_calls(texts: Sequence[TaskInput], batch: int, seed: int) -> list[Call]:
    """Return up to 64 batches of rows as they would arrive, from the shortest to the longest.

    Rows meet in batches at random, as in use, so a batch is as long as its longest row. Of more than 64 batches, those
    at even steps of length are taken; if there are fewer rows than a batch holds, rows repeat.
    """
    shuffled = np.random.default_rng(seed).permutation(len(texts))
    count = max(1, len(texts) // batch)
    batches = [np.resize(shuffled[start * batch :], batch) for start in range(count)]
    calls = [tuple(texts[int(row)] for row in rows) for rows in batches]
    calls.sort(key=lambda call: max(len("".join(text)) for text in call))  # of a pair both texts count
    return [calls[index] for index in evenly_spaced(min(MAX_CALLS, count), count)]


def evenly_spaced(count: int, total: int) -> list[int]:
    """Return ``count`` indices below ``total`` at even steps, each in the middle of its share."""
    return [int((index + 0.5) * total / count) for index in range(count)]


def calls_in_turn(available: int, slowest_call: float, seconds: float) -> int:
    """Return how many different calls fit into ``seconds`` of the slowest job: all, or else an odd number.

    Of an even number of lengths the median lies between two of them, and a few disturbed calls move it to the longer.
    """
    affordable = int(seconds / slowest_call)
    count = max(min(MIN_CALLS, available), min(available, affordable))
    return count if count == available else count - 1 + count % 2


def fixed_arrays(model: Path, batch: int, length: int, seed: int, vocabulary: int | None = None) -> Arrays:
    """Return inputs of exactly ``length`` pieces, without padding, drawn from ``vocabulary`` pieces or the model's own.

    Which pieces they are matters little for speed, how many matters more: the vectors of a few stay in the caches.
    """
    known = vocabulary or vocabulary_of(model) or SMALL_VOCABULARY
    pieces = np.random.default_rng(seed).integers(0, known, size=(batch, length), dtype=np.int64)
    return {
        "input_ids": pieces,
        "attention_mask": np.ones_like(pieces),
        "token_type_ids": np.zeros_like(pieces),
    }


def shared_vocabulary(models: Iterable[Path]) -> int | None:
    """Return the number of word pieces that all models have; a few where one is unknown, None where none exists."""
    every = (folder for model in models if model.exists() for folder in model_folders(model))
    return min((vocabulary_of(each) or SMALL_VOCABULARY for each in every), default=None)


def vocabulary_of(model: Path) -> int | None:
    """Return the vocabulary size in the config of a folder, or of the folder of a file; None where it is unknown.

    A config that cannot be read counts as unknown here and fails when the model is opened.
    """
    folder = model if model.is_dir() else model.parent
    with suppress(OSError, ValueError, RecursionError, KeyError, TypeError):
        size = json.loads((folder / "config.json").read_text(encoding="utf-8"))["vocab_size"]
        return size if isinstance(size, int) and size > 0 else None
    return None


def tokenizer_folder(model: Path) -> Path | None:
    """Return the folder of a model's tokenizer (a file's own folder); None where there is none."""
    folder = model if model.is_dir() else model.parent
    return folder if (folder / TOKENIZER_FILE).is_file() else None


def tokenize_without_task(model: Path, calls: Iterable[Call]) -> Iterator[Arrays]:
    """Yield each call as one padded batch for a model of unknown task, cut to the model's maximum length."""
    tokens = TextTokenizer.load(model if model.is_dir() else model.parent)
    for call in calls:
        if columns := next((len(text) for text in call if not isinstance(text, str) and len(text) > 2), None):
            raise ModelError(f"{model} has no task, so its texts have one column or two, not {columns}.")
        pairs = [(text, None) if isinstance(text, str) else text for text in call]
        encoded = [tokens(first, second, tokens.longest or MAX_PIECES) for first, second in pairs]
        examples = [{"input_ids": each.input_ids, "token_type_ids": each.token_type_ids} for each in encoded]
        yield collate(examples, INPUT_ARRAYS, tokens.pad_id)
