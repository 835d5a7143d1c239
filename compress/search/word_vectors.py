"""What word vectors weigh, most of a small model: how large a budget lets them be, how small they can be."""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from compress.data.splits.prepare_splits import PreparedData
from compress.data.tokenizer import TOKENIZER_FILE, TextTokenizer, read_tokenizer, whole_texts
from compress.data.tokenizer_subset import PieceBounds, keepable_pieces
from compress.errors import ModelError
from compress.families import family_named
from compress.model_folder.model_info import ShapeInfo
from compress.model_shapes import light_shape, part_shape, shape_of_folder
from compress.model_sources import local_folder
from compress.recipe.schema import Recipe
from compress.recipe.student_schema import LightStudent, Part, Vocabulary, VocabularyRule
from compress.runtime.model_formats import COMPANIONS
from compress.search.candidates import Bits, bits_of, file_bytes, least_pieces, most_bytes, with_fewer_pieces

FP32_BYTES = 4
FACTORS = 3
"""How many times fewer numbers than the hidden size a word vector has where it is stored in factors."""
FEWEST = 1.5
"""Times as many pieces as any text may need: below that too few are left beside the single characters."""
SHORTER = 0.7
"""Bytes in a tokenizer of a piece that the texts have, by those of all pieces on the mean."""
STEP = 1_000
"""Of the number of pieces that are kept: parts of about one size share a vocabulary."""
COUNTED_ROWS = 2_000
"""Rows of train whose pieces are counted before anything is trained: a moment, and fewer than all have."""


class Placed(NamedTuple):
    """A part with its word vectors."""

    part: Part
    shared: ShapeInfo
    """The shape of the shared student, with the fewest pieces that the part may keep."""
    tokenizer: int
    """Bytes of their tokenizer."""


class WordVectors:
    """The word vectors of candidates: the teacher's, unless the budget's size needs smaller ones.

    Those of parts are stored in factors first, which keeps every word. Then pieces go: as many of the most frequent
    ones stay as there is room for, which may be more than the texts have: a word that none of them has stays whole.
    What the recipe gives of both stays.
    """

    def __init__(self, recipe: Recipe, cards: Sequence[Path], roles: PreparedData | None = None) -> None:
        """``roles``: the rows, whose pieces are counted; None before they are prepared."""
        folder = local_folder(recipe.teacher.source, recipe.teacher.revision, cards)
        teacher = shape_of_folder(folder)
        self._folder, whole = shared_origin(recipe, cards)
        self.bits, self.light_bits = bits_of(recipe), bits_of(recipe, has_attention=False)
        self.least = LeastPieces(self._folder, whole.vocabulary if whole else 0, roles)
        self.light_least = LeastPieces(folder, teacher.vocabulary if teacher else 0, roles)
        self._most = most_bytes(recipe.budget, fp32_bytes(teacher, folder) if teacher else None)
        self._given, self._own = recipe.shared, (*recipe.light_students.values(),)
        has_own_size = not whole or whole.embedding_size or family_named(whole.family).own_embedding_size
        is_given = has_own_size or "factors" in self._given.model_fields_set
        self._factors = None if is_given or not whole else whole.hidden // FACTORS

    def of_part(self, part: Part, shared: ShapeInfo, tokenizer: int) -> Placed:
        """Return a part of a shared student of this shape with word vectors that the budget has room for, if any has.

        ``tokenizer``: bytes of the shared student's.
        """
        for each in (part, self._in_factors(part)):
            if file_bytes(part_shape(shared, each), self.bits) + tokenizer <= self._most:
                return Placed(each, shared, tokenizer)
        part = self._in_factors(part)
        shape = part_shape(shared, part)
        vectors = shape.embedding_parameters
        inner = file_bytes(shape, self.bits) - vectors * self.bits.pieces / 8
        rule = self._pieces(inner, vectors / (shape.vocabulary or 1), self.bits)
        if rule is None:
            return Placed(part, shared, tokenizer)
        fewer = with_fewer_pieces(shared, self.least.share(rule))
        return Placed(part.model_copy(update={"vocabulary": rule}), fewer, self.least.tokenizer(rule))

    def of_light(self, student: LightStudent) -> LightStudent:
        """Return a student without attention with as many pieces as the budget has room for; the recipe's own as is."""
        pieces, numbers = self.light_least.count(None), (student.factors or student.hidden) + 1
        bits = self.light_bits
        size = light_shape(student, pieces).parameters * bits.pieces / 8
        is_given = student.vocabulary is not None or student in self._own
        if is_given or size + self.light_least.tokenizer(None) <= self._most:
            return student
        rule = self._pieces(size - pieces * numbers * bits.pieces / 8, numbers, bits)
        return student.model_copy(update={"vocabulary": rule})

    def _in_factors(self, part: Part) -> Part:
        return part.model_copy(update={"factors": self._factors}) if self._factors else part

    def _pieces(self, others: float, numbers: float, bits: Bits) -> Vocabulary | None:
        """Return which pieces a model keeps whose vectors have so many numbers, beside ``others`` bytes; None: all."""
        table = self._table
        if "vocabulary" in self._given.model_fields_set or table is None:
            return None
        each = numbers * bits.pieces / 8 + self.least.tokenizer(None) / table.all
        kept = int((self._most - others) / each) // STEP * STEP
        if kept >= table.most:
            return None
        return VocabularyRule(keep=kept) if kept >= FEWEST * table.least else "seen"

    @cached_property
    def _table(self) -> PieceBounds | None:
        """How many pieces the tokenizer can keep; None where none can go, or the teacher is not here."""
        if self._folder is None:
            return None
        try:
            known = keepable_pieces(self._folder)
        except ModelError:
            return None
        pieces = self.least.count(None)
        return known or PieceBounds(pieces, pieces, pieces)  # its files say to transformers alone which may go


class LeastPieces:
    """The fewest of a teacher's word pieces that a rule may keep, and what their tokenizer takes, before it chooses."""

    def __init__(self, folder: Path | None, pieces: int, roles: PreparedData | None) -> None:
        """``folder``: of the teacher, which has so many ``pieces``; None where it is not here."""
        self._folder, self._pieces, self._roles = folder, pieces, roles

    def count(self, rule: Vocabulary | None) -> int:
        """Return how many there are at least."""
        return least_pieces(rule, self._pieces, self._seen if rule == "seen" else 0)

    def share(self, rule: Vocabulary | None) -> float:
        """Return which share of all pieces these are."""
        return self.count(rule) / self._pieces if self._pieces else 1.0

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

        if self._roles is None or self._folder is None or not (self._folder / TOKENIZER_FILE).is_file():
            return 0
        rows, whole = self._roles.rows("train"), whole_texts(json.loads(read_tokenizer(self._folder).to_str()))
        first = [rows[number] for number in range(min(len(rows), COUNTED_ROWS))]
        texts = TaskTexts(self._roles.info.task_info, TextTokenizer.load(self._folder)).pieces(first, whole)
        return len({piece for ids in texts for piece in ids.tolist()})


def shared_origin(recipe: Recipe, cards: Sequence[Path]) -> tuple[Path | None, ShapeInfo | None]:
    """Return the folder and the shape of what the shared student begins as, each None where it is not here."""
    begins = recipe.shared if recipe.shared.source else recipe.teacher
    folder = local_folder(str(begins.source), begins.revision, cards)
    return folder, shape_of_folder(folder)


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
