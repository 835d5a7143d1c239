from random import Random

import pytest

from compress.errors import UsageError
from compress.measure.quality.robustness import PERTURBATIONS, PerturbedRows, typos
from compress.tasks import KINDS

KIND = KINDS["classification"]
TEXT = "The quick brown foxes jumped over nineteen sleeping hounds yesterday, without noticing anything strange at all."


def distance(left: str, right: str) -> int:
    """Edits between two words, neighbours swapped being one (Damerau), the slow way."""
    if not left or not right:
        return len(left) + len(right)
    result = min(
        distance(left[1:], right) + 1,
        distance(left, right[1:]) + 1,
        distance(left[1:], right[1:]) + (left[0] != right[0]),
    )
    if len(left) > 1 and len(right) > 1 and left[0] == right[1] and left[1] == right[0]:
        result = min(result, distance(left[2:], right[2:]) + 1)
    return result


@pytest.mark.parametrize("seed", range(40))
def test_typo_is_one_edit_after_the_first_letter_of_a_long_word(seed):
    result = typos("strange", Random(seed))
    assert distance("strange", result) == 1
    assert result[0] == "s"


def test_a_tenth_of_the_words_get_a_typo_and_nothing_else_changes():
    words = TEXT.split() * 4
    for seed in range(20):
        result = typos(" ".join(words), Random(seed)).split()
        changed = [one for one, other in zip(words, result, strict=True) if one != other]
        assert len(changed) == 5  # of the 52 words of four letters or more
        assert all(len(word.strip(".,")) >= 4 for word in changed)


def test_case_and_truncation():
    change = {name: perturb(TEXT, Random(0)) for name, perturb in PERTURBATIONS.items()}
    assert change["lowercase"] == TEXT.lower()
    assert change["uppercase"] == TEXT.upper()
    assert change["truncation"] == "The quick brown foxes jumped over nineteen sleeping"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("  ", "  "),
        ("one", "one"),
        ("one two", "one"),
        (" one  two three ", " one  two"),
        ("\u6211" * 40, "\u6211" * 20),
    ],
)
def test_truncation_leaves_half_and_at_least_a_word(text, expected):
    assert PERTURBATIONS["truncation"](text, Random(0)) == expected


@pytest.mark.parametrize("name", PERTURBATIONS)
@pytest.mark.parametrize(
    "text", ["", " ", "a", "no way", "12345 !!!", "na\u00efve caf\u00e9s \u00fcber", "\U0001f600" * 50, "x" * 5000]
)
def test_every_text_can_be_perturbed(name, text):
    assert isinstance(PERTURBATIONS[name](text, Random(1)), str)


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_perturbation_depends_on_seed_and_index_only(name):
    rows = [{"text": TEXT, "text_pair": TEXT if index % 2 else None, "label": index} for index in range(6)]
    before = [dict(row) for row in rows]
    result = list(PerturbedRows(rows, KIND, name, seed=5))
    assert rows == before
    assert [row["label"] for row in result] == list(range(6))
    assert [row["text_pair"] is None for row in result] == [True, False] * 3
    assert result == list(PerturbedRows(rows, KIND, name, seed=5))
    if name == "typos":
        assert len({row["text"] for row in result}) == 6
        assert result != list(PerturbedRows(rows, KIND, name, seed=6))


class Choice:
    """A kind to come: of several texts only the question and the choices may change."""

    name = "choice"
    perturbable = ("question", "choices")


def test_only_changeable_fields_are_perturbed():
    row = {"question": "Who", "choices": ["Ann", "Bob"], "context": "Ann saw Bob", "label": 0}
    assert list(PerturbedRows([row], Choice(), "uppercase", 0)) == [
        {"question": "WHO", "choices": ["ANN", "BOB"], "context": "Ann saw Bob", "label": 0}
    ]


def test_kinds_without_text_are_refused():
    fixed = Choice()
    fixed.perturbable = ()
    with pytest.raises(UsageError, match="choice has no text that could change without changing its answer"):
        list(PerturbedRows([], fixed, "typos", 0))
