"""What word vectors weigh, most of a small model: how large a budget lets them be, how small they can be."""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from compress.console import Console
from compress.data.splits.prepare_splits import PreparedData
from compress.data.tokenizer import TOKENIZER_FILE, TextTokenizer, read_tokenizer, whole_texts
from compress.data.tokenizer_subset import keepable_pieces
from compress.errors import ModelError
from compress.families import family_named
from compress.model_folder.model_info import ShapeInfo
from compress.model_shapes import part_shape, parts_of, shape_of_folder, student_shape
from compress.model_sources import local_folder
from compress.recipe.schema import Budget, Recipe
from compress.recipe.student_schema import Shared, Vocabulary, VocabularyRule
from compress.runtime.model_formats import COMPANIONS
from compress.search.candidates import MARGIN, PIECE_BITS, file_bytes, least_pieces, most_bytes
from compress.steps.shared_step import SECTION, whole_student

FP32_BYTES = 4
FACTORS = 3
"""How many times fewer numbers than the hidden size a word vector has where it is stored in factors."""
FEWEST = 1.5
"""Times as many pieces as any text may need: below that too few are left beside the single characters."""
SHORTER = 0.7
"""Bytes in a tokenizer of a piece that the texts have, by those of all pieces on the mean."""
COUNTED_ROWS = 2_000
"""Rows of train whose pieces are counted before anything is trained: a moment, and fewer than all have."""
TIMES = ("p50", "p95", "end_to_end", "speedup")


def within_size(recipe: Recipe, console: Console, cards: Sequence[Path]) -> Shared:
    """Return the shared student with smaller word vectors where most parts weigh too much with the teacher's.

    Vectors in factors come first: they keep every word. Then pieces go. What the recipe gives of both stays.
    """
    shared, needs = recipe.shared, ", as the budget's size needs"
    folder = local_folder(recipe.teacher.source, recipe.teacher.revision, cards)
    teacher = shape_of_folder(folder)
    if folder is None or teacher is None or shared.vocabulary or _sizes(recipe, teacher, folder).middle_fits:
        return shared
    has_own_size = teacher.embedding_size is not None or family_named(teacher.family).own_embedding_size
    if not has_own_size and "factors" not in shared.model_fields_set:
        shared = shared.model_copy(update={"factors": teacher.hidden // FACTORS})
        console.note(f"search: word vectors of parts are stored in {shared.factors} factors{needs}")
    sizes = _sizes(recipe.model_copy(update={SECTION: shared}), teacher, folder)
    if "vocabulary" in shared.model_fields_set or sizes.middle_fits:
        return shared
    if pieces := _pieces_that_fit(recipe, sizes, folder):
        which = "only those of your texts" if pieces == "seen" else f"the {pieces.keep:,} most frequent ones"
        console.note(f"search: of all word pieces parts keep {which}{needs}")
        shared = shared.model_copy(update={"vocabulary": pieces})
    return shared


class _Sizes(NamedTuple):
    """Bytes of parts with all pieces of the teacher, without their tokenizer."""

    parts: Sequence[int]
    """From small to large."""
    vectors: float
    """Of these the word vectors."""
    others: int
    """Of the tokenizer."""
    most: float
    """What the budget allows."""

    @property
    def middle_fits(self) -> bool:
        """Whether half of the parts may be within the budget."""
        return self.parts[len(self.parts) // 2] + self.others <= MARGIN * self.most


def _sizes(recipe: Recipe, teacher: ShapeInfo, folder: Path) -> _Sizes:
    whole, others = whole_student(recipe.shared), tokenizer_bytes(folder)
    shared = student_shape(teacher, whole) if whole else teacher
    parts = sorted(file_bytes(part_shape(shared, part)) for part in parts_of(shared))
    most = most_bytes(recipe.budget, fp32_bytes(teacher, folder))
    return _Sizes(parts, shared.embedding_parameters * PIECE_BITS / 8, others, most)


def _pieces_that_fit(recipe: Recipe, sizes: _Sizes, folder: Path) -> Vocabulary | None:
    """Return which of the teacher's pieces parts keep: as many, the most frequent, as the budget's size has room for.

    That is in the middle part, or, beside a limit of time, which few large parts keep, in one that a quarter are
    smaller than. They are more than the texts have where train is small: a word that none of them has stays whole.
    None where pieces cannot be removed.
    """
    try:
        table = keepable_pieces(folder)
    except ModelError:
        return None
    if table is None or (recipe.student and recipe.student.source):
        return "seen"
    part = sizes.parts[len(sizes.parts) // (4 if _limits_time(recipe.budget) else 2)]
    kept = int((sizes.most - (part - sizes.vectors)) / ((sizes.vectors + sizes.others) / table.all))
    if kept >= table.most:
        return None
    return VocabularyRule(keep=kept) if kept >= FEWEST * table.least else "seen"


class LeastPieces:
    """The fewest of a teacher's word pieces that a rule may keep, and what their tokenizer takes, before it chooses."""

    def __init__(self, folder: Path | None, pieces: int, roles: PreparedData) -> None:
        """``folder``: of the teacher, which has so many ``pieces``; None where it is not here."""
        self._folder, self._pieces, self._roles = folder, pieces, roles

    def count(self, rule: Vocabulary | None) -> int:
        """Return how many there are at least."""
        return least_pieces(rule, self._pieces, self._seen if rule == "seen" else 0)

    def share(self, rule: Vocabulary | None) -> float:
        """Return which share of all pieces these are."""
        return self.count(rule) / self._pieces

    def tokenizer(self, rule: Vocabulary | None) -> int:
        """Return about how many bytes their tokenizer has at least: common pieces are shorter than others."""
        share = self.share(rule)
        if share == 1 or self._folder is None:
            return tokenizer_bytes(self._folder)
        file = self._folder / TOKENIZER_FILE
        return round(SHORTER * share * file.stat().st_size) if file.is_file() else 0

    @cached_property
    def _seen(self) -> int:
        """Pieces of the texts of train, by its first rows."""
        from compress.train.piece_choice import TaskTexts

        if self._folder is None or not (self._folder / TOKENIZER_FILE).is_file():
            return 0
        rows, whole = self._roles.rows("train"), whole_texts(json.loads(read_tokenizer(self._folder).to_str()))
        first = [rows[number] for number in range(min(len(rows), COUNTED_ROWS))]
        texts = TaskTexts(self._roles.info.task_info, TextTokenizer.load(self._folder)).pieces(first, whole)
        return len({piece for ids in texts for piece in ids.tolist()})


def _limits_time(budgets: Sequence[Budget]) -> bool:
    """Whether any of these limits a time."""
    return any(getattr(each, name) is not None for each in budgets for name in TIMES)


def teacher_bytes(recipe: Recipe, cards: Sequence[Path]) -> int | None:
    """Return the size of the teacher's files, with 32 bits a parameter; None where its shape is not known yet."""
    folder = local_folder(recipe.teacher.source, recipe.teacher.revision, cards)
    shape = shape_of_folder(folder)
    return fp32_bytes(shape, folder) if shape else None


def fp32_bytes(shape: ShapeInfo, folder: Path | None) -> int:
    """Return the size of a model's files with 32 bits a parameter, and the tokenizer of a folder."""
    return FP32_BYTES * shape.parameters + tokenizer_bytes(folder)


def tokenizer_bytes(folder: Path | None) -> int:
    """Return the size of a folder's tokenizer and config, which every export of its model has too."""
    files = [folder / name for name in COMPANIONS] if folder else []
    return sum(file.stat().st_size for file in files if file.is_file())
