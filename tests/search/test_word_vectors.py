"""Word vectors that a budget's size has room for, and the fewest pieces of a rule, by which sizes are refused."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from compress.errors import ModelError
from compress.model_folder.model_info import TaskInfo
from compress.model_shapes import part_shape, parts_of, shape_of_folder
from compress.model_sources import local_folder
from compress.models.tiny import write_tiny_model
from compress.pipeline.preflight.resolve import resolve
from compress.pipeline.run import Options, read_recipe
from compress.pipeline.run_lock import searches_folder
from compress.recipe.student_schema import LightStudent, Part, Vocabulary, VocabularyRule
from compress.search.candidates import Candidate, SearchInfo, file_bytes
from compress.search.expected_plan import _expected_finalists
from compress.search.run_search import wanted_of
from compress.search.search_folder import SEARCH_FILE
from compress.search.word_vectors import LeastPieces, WordVectors, tokenizer_bytes
from compress.storage.atomic_write import write_model
from compress.tasks import kind_of
from tests.conftest import write_tiny_recipe

TASK = TaskInfo(
    name="films", kind="classification", metric="accuracy", text=("text",), labels=("bad", "good"), max_length=128
)
PIECES = 30_522


@pytest.fixture
def roles():
    rows = [kind_of(TASK).from_input(text, TASK) for text in ("a good film", "a bad film", "a good film")]
    return SimpleNamespace(rows=lambda role: rows, info=SimpleNamespace(task_info=TASK))


@pytest.mark.parametrize(("rule", "least"), [(None, PIECES), ("seen", 4), (VocabularyRule(keep=2_000), 2_000)])
def test_a_rule_keeps_the_pieces_of_the_texts_at_least(rule, least, roles):
    pieces = LeastPieces(local_folder("minilm-l6", None, ()), PIECES, roles)
    assert pieces.count(rule) == least
    assert pieces.share(rule) == least / PIECES


def test_a_tokenizer_of_fewer_pieces_takes_less(roles):
    folder = local_folder("minilm-l6", None, ())
    pieces = LeastPieces(folder, PIECES, roles)
    assert pieces.tokenizer(None) == tokenizer_bytes(folder)
    assert 0 < pieces.tokenizer("seen") < pieces.tokenizer(VocabularyRule(keep=2_000)) < pieces.tokenizer(None) / 10


def test_of_a_teacher_that_is_not_here_nothing_is_known(roles, tmp_path):
    for folder in (None, tmp_path):
        pieces = LeastPieces(folder, PIECES, roles)
        assert (pieces.count("seen"), pieces.tokenizer("seen")) == (0, 0)


MINILM = shape_of_folder(local_folder("minilm-l6", None, ()))
SMALL, LARGE = Part(layers=1, heads=3, ffn=192), Part(layers=6, heads=12, ffn=1536)


@pytest.fixture
def word_vectors(tmp_path):
    def made(budget: str, shared: str = "{}", teacher: str = "minilm-l6", students: str = "null") -> WordVectors:
        given = [f"budget={{{budget}}}", f"shared={shared}", f"teacher={teacher}", f"student={students}"]
        given += ["prune=null", "quantize=int8"]
        return WordVectors(resolve(read_recipe(write_tiny_recipe(tmp_path), given)), ())

    return made


def test_only_parts_that_are_too_large_get_smaller_word_vectors(word_vectors):
    def kept(budget: str, part: Part, shared: str = "{}") -> tuple[int | None, Vocabulary | None]:
        vectors = word_vectors(budget, shared)
        placed = vectors.of_part(part, MINILM, vectors.least.tokenizer(None))
        weighs = file_bytes(part_shape(placed.shared, placed.part), vectors.bits) + placed.tokenizer
        assert placed.part.units == part.units
        if placed.part.vocabulary not in (None, "seen"):
            assert 0.8 * vectors._most < weighs <= vectors._most  # as many as there is room for
        return placed.part.factors, placed.part.vocabulary

    assert kept("p50: 1ms", LARGE) == kept("size: 40MB", LARGE) == kept("size: 10MB", SMALL) == (None, None)
    assert kept("size: 6MB", SMALL) == (128, None)
    (factors, small), (_, large) = kept("size: 3MB", SMALL), kept("size: 3MB", Part(layers=3, heads=3, ffn=192))
    assert factors == 128
    assert 3_000 < large.keep < small.keep < 29_528
    assert small.keep % 1000 == large.keep % 1000 == 0
    assert kept("size: 600KB", SMALL) == (128, "seen")
    assert kept("size: 3MB", SMALL, "{vocabulary: {keep: 29000}}") == (128, None)  # what the recipe gives stays
    assert kept("size: 3MB", SMALL, "{vocabulary: null}") == (128, None)
    assert kept("size: 6MB", SMALL, "{factors: null}")[0] is None


def test_students_without_attention_keep_as_many_pieces_as_there_is_room_for(word_vectors):
    static = LightStudent(kind="static")
    assert word_vectors("size: 40MB").of_light(static) == static
    fewer = word_vectors("size: 1MB").of_light(static).vocabulary
    assert 3_000 < fewer.keep < 29_528
    assert word_vectors("size: 1MB", students="static").of_light(static) == static  # the recipe's own


def test_word_vectors_that_have_a_size_of_their_own_get_no_factors(word_vectors, tmp_path):
    write_tiny_model(tmp_path / "electra", "electra")
    shape = shape_of_folder(tmp_path / "electra")
    placed = word_vectors("size: 1KB", teacher=str(tmp_path / "electra")).of_part(
        Part(layers=1, heads=1, ffn=8), shape, 0
    )
    assert (placed.part.factors, placed.part.vocabulary) == (None, "seen")


def test_of_a_tokenizer_whose_pieces_cannot_go_all_stay(word_vectors, monkeypatch):
    def refuse(folder: Path) -> None:
        raise ModelError("none of its pieces can be removed")

    monkeypatch.setattr("compress.search.word_vectors.keepable_pieces", refuse)
    placed = word_vectors("size: 1MB").of_part(SMALL, MINILM, 0)
    assert (placed.part.factors, placed.part.vocabulary, placed.shared) == (128, None, MINILM)


def test_a_search_for_another_size_expects_parts_with_the_word_vectors_that_it_allows(tmp_path):
    """What a former search compared is known by units, whatever its word vectors were."""
    recipe_file = write_tiny_recipe(tmp_path)
    given = ["shared={}", "teacher=minilm-l6", "student=null", "prune=null", "quantize=int8"]
    small, large = (resolve(read_recipe(recipe_file, [f"budget={{size: {size}}}", *given])) for size in ("3MB", "40MB"))
    options, vectors = Options(runs=tmp_path / "runs"), WordVectors(small, ())
    placed = [vectors.of_part(part, MINILM, vectors.least.tokenizer(None)).part for part in parts_of(MINILM)]
    rows = [
        Candidate(name=part.name, student=part, milliseconds=number + 1, bytes=1, score=number / 200)
        for number, part in enumerate(placed)
    ]
    light = Candidate(name="static", student=LightStudent(kind="static"), milliseconds=0.1, bytes=1)
    found = SearchInfo(name="tiny", variant="onnx-int8", candidates=[*rows, light], run="x", **wanted_of(small))
    folder = searches_folder(options.runs) / "tiny"
    folder.mkdir(parents=True)
    write_model(folder / SEARCH_FILE, found)
    parts, students = _expected_finalists(large, options, 4)
    assert len(parts) == 4
    assert {(part.factors, part.vocabulary) for part in parts} == {(None, None)}
    assert [each.kind for each in students] == ["static"]
    parts, _ = _expected_finalists(small, options, 4)
    assert {part.factors for part in parts} == {128}
    assert parts[0].vocabulary is not None
