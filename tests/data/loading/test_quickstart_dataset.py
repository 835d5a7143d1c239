"""The quickstart's set: sentences, tags, determinism, and its cache."""

import json
import shutil

import pytest

from compress.console import Console
from compress.data.loading import quickstart_dataset
from compress.data.loading.quickstart_dataset import (
    MOST_WORDS,
    START,
    is_plain,
    paragraphs,
    plain_sentences,
    source_files,
    tagged,
    words,
)
from compress.errors import DataError

MODULE = '''r"""Tools for the numbers of {animals}. The {animals} are counted daily by :mod:`~patient`.

This paragraph of {animals} is alone.
"""
TABLE = """This string is no docstring of {animals}. Nobody should ever read it."""
def count(birds):
    \'\'\'Count the {animals} that sit in the old tree. Uses some_function for that. The {animals} need `many` hours.
    Then the {animals} fly away.

    >>> count(3)
    3
    \'\'\'
    f"""This one of {animals} is formatted. It is no docstring."""
'''


@pytest.fixture
def roots(tmp_path):
    """Two packages, of which one has tests and a file that is no Python."""
    for name in ("garden", "forest"):
        root = tmp_path / name
        (root / "tests").mkdir(parents=True)
        (root / "__init__.py").write_text("")
        for animal in ("finches", "owls"):
            (root / f"{animal}.py").write_text(MODULE.replace("{animals}", f"{name} {animal}"))
        (root / "tests" / "test_a.py").write_text('"""Nobody should ever learn this. It is a test."""')
        (root / "template.py").write_bytes(b"def {{ name }}(: pass \xff")
    return {"garden": tmp_path / "garden", "forest": tmp_path / "forest"}


def gathered(roots):
    return list(quickstart_dataset.collect_rows(source_files(roots), Console("quiet")))


def texts(roots):
    return [" ".join(row["tokens"]) for row in gathered(roots)]


def test_rows_are_runs_of_plain_sentences_of_docstrings(roots):
    assert sorted(text for text in texts(roots) if "garden owls" in text and "alone" not in text) == [
        "the garden owls need many hours then the garden owls fly away",
        "tools for the numbers of garden owls the garden owls are counted daily by patient",
    ]


def test_the_words_that_begin_a_sentence_are_tagged():
    row = tagged([words("Count the owls."), words("They (often, 'always') sleep!")])
    assert row == {
        "tokens": ["count", "the", "owls", "they", "often,", "always", "sleep"],
        "tags": ["O", "O", "O", START, "O", "O", "O"],
    }


def test_sentences_that_do_not_fit_are_left_out():
    long = ["word"] * (MOST_WORDS - 5)
    assert tagged([long, ["one"] * 6])["tokens"] == long
    assert tagged([["word"] * (MOST_WORDS + 1)]) is None
    assert tagged([]) is None


def test_one_row_in_four_may_have_a_single_sentence(tmp_path):
    pairs = "\n\n".join(f"This is the pair of number {n}. It has a second sentence too, number {n}." for n in range(4))
    singles = "\n\n".join(f"This is alone with number {n}." for n in range(9))
    (tmp_path / "a.py").write_text(f'"""{pairs}\n\n{singles}"""')
    tags = [row["tags"] for row in gathered({"a": tmp_path})]
    assert [START in each for each in tags] == [True] * 4 + [False]


def test_no_sentence_is_in_two_rows(roots):
    shutil.copy(roots["garden"] / "owls.py", roots["garden"] / "more_owls.py")
    assert len(texts(roots)) == len(set(texts(roots)))


@pytest.mark.parametrize(
    "text",
    [
        "Too short.",
        "no capital letter stands at the beginning of this one.",
        "This one does not end as a sentence does",
        "This calls some_function and returns what was found there.",
        "This uses the DataFrame of somebody else for its work.",
        "Returns tuple[int] of what was found there.",
        "Returns: a number of what was found there.",
        "See https://example.com for all that is known about it.",
        "1 + 2 = 3, 4 + 5 = 9, 6 + 7 = 13, 8 + 9 = 17.",
        "Parameters ---------- x is a number that is large enough.",
        "Das hier ist naïve Prosa, die nicht ganz dazu passt.",
        "There are many kinds of birds, e.g.",
        "This was shown by Miller et al.",
        "Written by J.",
    ],
)
def test_what_is_no_plain_sentence(text):
    assert not is_plain(text)


def test_a_sentence_that_is_not_plain_ends_the_run():
    assert plain_sentences("Birds sing in trees. See x_y for more. Owls are birds too. They see very well.") == [
        "Owls are birds too.",
        "They see very well.",
    ]
    assert plain_sentences("") == []


def test_paragraphs_of_a_file_with_several_kinds_of_strings():
    assert list(paragraphs("x = '''no'''\n  '''yes\n two\n\n  three'''\nb'''bytes'''\n")) == ["yes two", "three"]


def test_rows_do_not_depend_on_the_installation_path(roots, tmp_path):
    moved = {name: tmp_path / "elsewhere" / name for name in roots}
    for name, root in roots.items():
        shutil.copytree(root, moved[name])
    assert gathered(moved) == gathered(roots)


@pytest.fixture
def small_set(roots, tmp_path, monkeypatch):
    """The builtin set, made of the two packages; its cache."""
    monkeypatch.setenv("COMPRESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(quickstart_dataset, "package_roots", lambda name: roots)
    return tmp_path / "cache"


def cached():
    return quickstart_dataset.builtin_file("sentence_starts", Console("quiet"))


def test_it_is_built_once(small_set, monkeypatch):
    first = list(quickstart_dataset.builtin_rows("sentence_starts"))
    assert first[0].where == "builtin sentence_starts, row 1"
    assert set(first[0].values) == {"tokens", "tags"}
    monkeypatch.setattr(quickstart_dataset, "collect_rows", lambda *_: pytest.fail("built again"))
    assert list(quickstart_dataset.builtin_rows("sentence_starts")) == first
    assert [path.suffix for path in small_set.iterdir()] == [".jsonl"]


def test_other_files_are_read_again(small_set, roots):
    one = cached()
    (roots["garden"] / "owls.py").write_text('"""Here is another text. It is about owls."""')
    assert cached() != one
    assert "another" in cached().read_text()


def test_without_sentences(small_set, roots):
    for root in roots.values():
        shutil.rmtree(root)
        root.mkdir()
    with pytest.raises(DataError, match="no sentences of documentation in networkx, numpy"):
        cached()


def test_a_stopped_build_leaves_nothing(small_set, monkeypatch):
    def stop(*_):
        yield {"tokens": ["x"], "tags": ["O"]}
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(quickstart_dataset, "collect_rows", stop)
        with pytest.raises(KeyboardInterrupt):
            cached()
    assert not small_set.exists() or list(small_set.iterdir()) == []


def test_a_cache_that_cannot_be_written(small_set):
    small_set.write_text("a file where the folder should be")
    with pytest.raises(DataError, match="cannot be cached") as fault:
        cached()
    assert "COMPRESS_CACHE" in fault.value.hint


@pytest.mark.slow
def test_the_real_set_needs_more_than_a_bag_of_words(tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    from compress.measure.baselines import baseline_predictions
    from compress.model_folder.model_info import TaskInfo
    from compress.tasks import KINDS

    monkeypatch.setenv("COMPRESS_CACHE", str(tmp_path))
    raw = [json.loads(line) for line in cached().read_text(encoding="utf-8").splitlines()]
    assert len(raw) > 5000
    assert max(len(row["tokens"]) for row in raw) <= MOST_WORDS
    rows = [{"words": row["tokens"], "label": [int(tag == START) for tag in row["tags"]]} for row in raw]
    labels = ("O", START, "I-START")
    kind, options = KINDS["token_classification"], {"text": ("tokens",), "labels": labels, "metric": "f1"}
    task = TaskInfo(name="t", kind=kind.name, max_length=64, **options)
    score = kind.score(baseline_predictions(rows[1000:], rows[:1000], task), kind.gold(rows[:1000]), task)["f1"]
    assert 0.35 < score < 0.65
