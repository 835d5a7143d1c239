"""The fewest pieces that a vocabulary may keep, by which a search refuses sizes that nothing can have."""

from types import SimpleNamespace

import pytest

from compress.model_folder.model_info import TaskInfo
from compress.model_sources import local_folder
from compress.recipe.student_schema import VocabularyRule
from compress.search.word_vectors import LeastPieces, tokenizer_bytes
from compress.tasks import kind_of

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
