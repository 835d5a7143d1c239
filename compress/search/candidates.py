"""The candidates of a search: what each student takes, weighs and scores, and which ones are trained on.

Time and size are known before any training: from untrained models, and by arithmetic. A score
is that of a part as the shared training left it, on rows of train that were held out of it: it ranks parts, and decides
nothing else.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from compress import format_numbers as fmt
from compress.model_folder.model_info import ShapeInfo
from compress.model_shapes import light_shape, part_shape
from compress.quantize import chosen_methods
from compress.recipe.schema import Budget, Recipe
from compress.recipe.student_schema import LightStudent, Part, Vocabulary, held_out_rows
from compress.steps.shared_step import SECTION
from compress.storage.stored_info import Info, up_to
from compress.tasks import primary_metric
from compress.variants import competing_formats

if TYPE_CHECKING:
    from compress.pipeline.graph import Plan
    from compress.pipeline.step_context import StepContext
    from compress.recipe.task_schema import Task
    from compress.search.candidate_times import PartTimes

FLOAT32, EIGHT, FOUR = 32, 8.5, 4.5
"""Bits of a parameter in a file that stores it so, scales included."""
FOUR_BIT_METHODS = frozenset({"embeddings-4bit", "rows-4bit"})
"""Methods that store word vectors in 4 bits."""
COMPARE, COMPARING, SCORES_FILE = "compare-parts", "comparing parts", "scores.json"
"""The step that scores parts, its kind, as a run shows it, and what it writes."""
SLOWEST = 1.4
"""Candidates that take at most this many times less than the slowest are the slowest."""
WHOLE_MODELS = 50
"""Passes of a whole model that all parts take together: 150, a third of the whole on the mean."""
MARGIN = 1.15
"""How much more than the budget an estimate may be: measured, it may be within."""


class Candidate(Info):
    """A part of the shared student, or a student without attention."""

    name: str
    """Of its model in the run of the finalists."""
    student: Part | LightStudent
    milliseconds: float
    """Of an untrained model of its size."""
    bytes: int
    """By arithmetic, of its smallest file and the tokenizer; before pieces are chosen with as few as it can have."""
    score: float | None = None
    """Of a part before it is trained on, on rows held out of train; an error has its sign turned. None where it has not
    been scored."""
    within: bool = True
    """Whether it can be within the budget, by these estimates."""
    is_finalist: bool = False


class Reference(Info):
    """What ratios of a budget are to: the teacher as it is, as far as that is known."""

    bytes: int | None = None
    """Of its files."""
    milliseconds: float | None = None
    """Of a call in PyTorch fp32."""


class SearchInfo(Info):
    """search.json: what was looked at, and what was trained on."""

    schema_version: Annotated[int, up_to(1)] = 1
    name: str
    limits: tuple[Mapping[str, Any], ...]
    """Those of the recipe's budget that are given."""
    max_drop: float
    larger_is_better: bool = True
    """Whether the task's score is none of an error."""
    goal: str
    """What the winner is the first by, as `rank_by` of a recipe."""
    variant: str
    """In which parts were timed."""
    teacher: Reference = Reference()
    candidates: tuple[Candidate, ...]
    tuned: Mapping[str, float] = {}
    """Settings of the finalists' training that trials chose."""
    run: str
    """The run of the finalists, whose report has what they take and score, measured."""
    finished: bool = False
    winner: str | None = None
    """The row of that report that is within the budget and passed the gate; None where there is none."""

    @property
    def budget_text(self) -> str:
        """`p50 0.5ms, size 5MB, drop 0.015`."""
        texts = [f"{name} {_limit_text(value)}" for limits in self.limits for name, value in limits.items()]
        return ", ".join([*texts, f"drop {self.max_drop:g}"])


def _limit_text(value: object) -> str:
    """Return a limit as a budget has it; whole numbers are bytes."""
    if isinstance(value, int):
        return f"{value / 1e6:g}MB"
    return f"{value:g}" if isinstance(value, float) else str(value)


def add_comparison(plan: Plan, cards: Sequence[Path] = ()) -> None:
    """The step that scores all parts of a plan's shared student."""
    settings = {"metric": plan.recipe.task.metric, "seed": plan.recipe.seed}
    run = partial(compare, seed=plan.recipe.seed)
    plan.add(COMPARE, COMPARING, settings, ["data", SECTION], run, predicted_rows=compared_rows)


def compared_rows(train: int) -> float:
    """Return about how many rows of a whole model comparing takes, by the rows of train."""
    return WHOLE_MODELS * held_out_rows(train)


def compare(context: StepContext, seed: int) -> None:
    """Score every part as it is, and write what they reach."""
    from compress.train.shared_student import compare_parts

    compared = compare_parts(context.inputs[SECTION], context.inputs["data"], seed, context.console)
    context.write_json(SCORES_FILE, {"scores": {part.name: score for part, score in compared}})


def read_scores(folder: Path) -> dict[str, float]:
    """Return what each part scored, by its name."""
    scores: dict[str, float] = json.loads((folder / SCORES_FILE).read_bytes())["scores"]
    return scores


class Bits(NamedTuple):
    """Of a parameter in the smallest file that a recipe makes, scales included."""

    pieces: float
    """Of word vectors."""
    others: float


def bits_of(recipe: Recipe, *, has_attention: bool = True) -> Bits:
    """Return them by the recipe's methods of quantization."""
    formats = competing_formats(recipe, has_attention=has_attention)
    methods = recipe.quantize.methods if recipe.quantize else ()
    chosen = chosen_methods(methods, formats, has_attention=has_attention)
    if not chosen:
        return Bits(FLOAT32, FLOAT32)
    return Bits(FOUR if FOUR_BIT_METHODS.intersection(chosen) else EIGHT, EIGHT)


def estimate_light(
    name: str, student: LightStudent, milliseconds: float, pieces: int, tokenizer: int, bits: Bits
) -> Candidate:
    """Return the size of a student without attention of so many pieces beside its time.

    Its own pieces are known only once it is made: until then they are the fewest that it can have (`least_pieces`).
    ``tokenizer``: bytes of its files.
    """
    size = light_shape(student, pieces).parameters * bits.pieces / 8 + tokenizer
    return Candidate(name=name, student=student, milliseconds=milliseconds, bytes=round(size))


def least_pieces(rule: Vocabulary | None, pieces: int, seen: int = 0) -> int:
    """Return how many of a teacher's pieces a rule keeps at least; ``seen``: those that the texts have at least."""
    if rule is None:
        return pieces
    return min(seen if rule == "seen" else rule.keep or 0, pieces)


def with_fewer_pieces(shape: ShapeInfo, share: float) -> ShapeInfo:
    """Return the shape of a shared student with a share of its pieces."""
    pieces, size = round(share * shape.vocabulary), shape.embedding_size or shape.hidden
    left = shape.embedding_parameters - (shape.vocabulary - pieces) * size
    return shape.model_copy(update={"vocabulary": pieces, "embedding_parameters": left})


def estimate(times: PartTimes, shared: ShapeInfo, part: Part, tokenizer: int, bits: Bits) -> Candidate:
    """Return the time and size of a part of a shared student; ``tokenizer``: bytes of its files."""
    size = file_bytes(part_shape(shared, part), bits) + tokenizer
    return Candidate(name=part.name, student=part, milliseconds=times.of(part), bytes=size)


def file_bytes(shape: ShapeInfo, bits: Bits) -> int:
    """Return what the smallest file of a part takes, without its tokenizer."""
    inner = shape.parameters - shape.embedding_parameters
    return round((shape.embedding_parameters * bits.pieces + inner * bits.others) / 8)


def may_fit(candidate: Candidate, budgets: Sequence[Budget], target: str, teacher: Reference) -> bool:
    """Return whether a candidate can be within every budget.

    Args:
        candidate: with its estimates.
        budgets: of which those of time count where they hold at the target.
        target: the title of the one that parts were timed at.
        teacher: what ratios are to.
    """
    for budget in budgets:
        if not may_weigh(candidate.bytes, [budget], teacher.bytes):
            return False
        if budget.target not in (None, target):
            continue
        by_ratio = teacher.milliseconds / budget.speedup if teacher.milliseconds and budget.speedup else None
        times = (budget.p50, budget.p95, budget.end_to_end, by_ratio)
        if any(most is not None and candidate.milliseconds > MARGIN * most for most in times):
            return False
    return True


def may_weigh(size: int, budgets: Sequence[Budget], teacher: int | None) -> bool:
    """Return whether so many bytes can be within every budget."""
    return size <= MARGIN * most_bytes(budgets, teacher)


def most_bytes(budgets: Sequence[Budget], teacher: int | None) -> float:
    """Return the most bytes that all budgets allow; infinity where none limits them."""
    limits = [limit for each in budgets for limit in (each.size, teacher and each.smaller and teacher / each.smaller)]
    return min((limit for limit in limits if limit is not None), default=math.inf)


def more_is_better(score: float, task: Task) -> float:
    """Return a score of which more is better: an error is turned, and one that was turned is turned back."""
    return score if primary_metric(task).larger_is_better else -score


def shown_score(score: float | None, larger_is_better: bool) -> str:
    """Return a candidate's score as text; empty where it has none."""
    return "" if score is None else fmt.score(score if larger_is_better else -score, larger_is_better)


def front(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return those that no other one is better than without being slower, the fastest first."""
    best, kept = -math.inf, list[Candidate]()
    for each in sorted(candidates, key=lambda each: (each.milliseconds, -(each.score or 0.0))):
        if each.score is not None and each.score > best:
            best = each.score
            kept.append(each)
    return kept


def choose_finalists(candidates: Sequence[Candidate], count: int) -> list[Candidate]:
    """Return at most ``count`` of those that may be within the budget, the fastest first.

    They are of the front, spread evenly by their time, the fastest and the best among them; where it is shorter than
    that, of the front of the others too. Where it ends well before what the budget allows, the best of the slowest is
    one of them: few rows rank parts, and a larger one may gain more by its own training.
    """
    left = [each for each in candidates if each.within]
    chosen = _beyond(front(left), left) if count > 2 else []
    while len(chosen) < count and (line := front([each for each in left if each not in chosen])):
        chosen += _spread(line, count - len(chosen))
        left = [each for each in left if each not in line]
    return sorted(chosen, key=lambda each: each.milliseconds)


def _beyond(line: Sequence[Candidate], candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the best of the slowest candidates; none where the front reaches these."""
    slowest = max((each.milliseconds for each in candidates), default=0.0)
    slow = [each for each in candidates if each.milliseconds * SLOWEST >= slowest and each.score is not None]
    return [] if not slow or not line or line[-1] in slow else [max(slow, key=lambda each: each.score or 0.0)]


def _spread(line: Sequence[Candidate], count: int) -> list[Candidate]:
    """Return ``count`` of a front that are evenly spread by the logarithm of their time; the best one alone."""
    if len(line) <= count:
        return [*line]
    if count == 1:
        return [line[-1]]
    times = [math.log(each.milliseconds) for each in line]
    goals = [times[0] + (times[-1] - times[0]) * number / (count - 1) for number in range(count)]
    free = list(range(len(line)))
    for goal in goals:
        free.remove(min(free, key=lambda index: abs(times[index] - goal)))
    return [each for index, each in enumerate(line) if index not in free]
