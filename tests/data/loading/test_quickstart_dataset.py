"""The quickstart's set: sentences, masking, determinism, and its cache."""

import json

import pytest

from compress.console import Console
from compress.data.loading import quickstart_dataset
from compress.data.loading.quickstart_dataset import (
    docstrings,
    is_plain,
    mask_names,
    module_names,
    package_files,
    sentences,
)
from compress.errors import DataError

MODULE = '''"""Tools for the numbers of birds, written on {day}. They are counted daily by patient people."""
def count(birds):
    """Count the {animals} that sit in the old tree on {day}.

    Uses :func:`~garden.tree.look` and returns what was seen there by everyone.

    >>> count(3)
    3
    """
class Nest:
    """A place where the {animals} sleep during the nights before {day}."""
    def _hidden(self):
        "too short"
'''

DAYS = {"garden": "Monday", "forest": "Friday"}


@pytest.fixture
def roots(tmp_path):
    """Two packages, of which one has tests and a file that is no Python."""
    for name in ("garden", "forest"):
        root = tmp_path / name
        (root / "tests").mkdir(parents=True)
        (root / "__init__.py").write_text("")
        for animal in ("finches", "owls"):
            module = MODULE.replace("{animals}", f"{name} {animal}").replace("{day}", DAYS[name])
            (root / f"{animal}.py").write_text(module)
        (root / "tests" / "test_a.py").write_text('"""Nobody should ever learn from this sentence here."""')
        (root / "template.py").write_text("def {{ name }}(: pass")
    return {"garden": tmp_path / "garden", "forest": tmp_path / "forest"}


def gathered(roots, most=100):
    return list(quickstart_dataset.collect_sentences(roots, most, Console("quiet")))


def test_sentences_are_prose(roots):
    result = [
        text
        for path in package_files(roots["garden"])
        for docstring in docstrings(path)
        for text in sentences(docstring)
    ]
    assert "Count the garden owls that sit in the old tree on Monday." in result
    assert not any(">>>" in text or "Nobody" in text or "short" in text for text in result)


@pytest.mark.parametrize(
    "text",
    [
        "Too short to say much.",
        "no capital letter stands at the beginning of this one.",
        "This one does not end as a sentence does",
        "This calls some_function and returns what was found there.",
        "This uses the DataFrame of somebody else for its work.",
        "See https://example.com for all that is known about it.",
        "1 + 2 = 3, 4 + 5 = 9, 6 + 7 = 13, 8 + 9 = 17.",
        "Parameters ---------- x is a number that is large enough.",
        "Das hier ist naïve Prosa, die nicht ganz dazu passt.",
    ],
)
def test_what_is_no_plain_sentence(text):
    assert not is_plain(text)


def test_names_are_masked_as_words_only():
    assert mask_names("Garden tools of the gardener, for a garden.", {"garden"}) == "_ tools of the gardener, for a _."


def test_module_names(roots):
    assert module_names(roots["garden"]) == {"finches", "owls", "template", "init"}


def test_rows_hide_every_library_and_module(roots):
    rows = gathered(roots)
    assert {row["library"] for row in rows} == {"garden", "forest"}
    words = {word.strip(".,").lower() for row in rows for word in row["text"].split()}
    assert not words & {"garden", "forest", "finches", "owls"}


def test_no_text_twice(roots):
    rows = gathered(roots)
    assert len({row["text"] for row in rows}) == len(rows)


def test_a_limit_of_sentences_per_library(roots):
    assert [row["library"] for row in gathered(roots, 1)] == ["garden", "forest"]


def test_rows_do_not_depend_on_the_installation_path(roots, tmp_path):
    import shutil

    moved = {name: tmp_path / "elsewhere" / name for name in roots}
    for name, root in roots.items():
        shutil.copytree(root, moved[name])
    assert gathered(moved) == gathered(roots)


def test_a_library_without_docstrings(tmp_path):
    (tmp_path / "bare").mkdir()
    with pytest.raises(DataError, match="no docstrings"):
        gathered({"bare": tmp_path / "bare"})


@pytest.fixture
def small_set(roots, tmp_path, monkeypatch):
    """The builtin set, made of the two packages."""
    monkeypatch.setenv("COMPRESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(quickstart_dataset, "package_roots", lambda libraries: roots)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "1")
    return tmp_path / "cache"


def test_it_is_built_once(small_set, monkeypatch):
    first = list(quickstart_dataset.builtin_rows("docstrings"))
    assert first[0].where == "builtin docstrings, row 1"
    assert set(first[0].values) == {"text", "library"}
    monkeypatch.setattr(quickstart_dataset, "collect_sentences", lambda *_: pytest.fail("built again"))
    assert list(quickstart_dataset.builtin_rows("docstrings")) == first
    assert [path.suffix for path in small_set.iterdir()] == [".jsonl"]


def test_other_versions_are_another_set(small_set, monkeypatch):
    one = quickstart_dataset.builtin_file("docstrings", Console("quiet"))
    monkeypatch.setattr("importlib.metadata.version", lambda name: "2")
    assert quickstart_dataset.builtin_file("docstrings", Console("quiet")) != one


def test_a_stopped_build_leaves_nothing(small_set, monkeypatch):
    def stop(*_):
        yield {"text": "x", "library": "y"}
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(quickstart_dataset, "collect_sentences", stop)
        with pytest.raises(KeyboardInterrupt):
            quickstart_dataset.builtin_file("docstrings", Console("quiet"))
    assert not small_set.exists() or list(small_set.iterdir()) == []


def test_a_cache_that_cannot_be_written(small_set):
    small_set.write_text("a file where the folder should be")
    with pytest.raises(DataError, match="cannot be cached") as fault:
        quickstart_dataset.builtin_file("docstrings", Console("quiet"))
    assert "COMPRESS_CACHE" in fault.value.hint


@pytest.mark.slow
def test_the_real_set_is_complete_and_neither_trivial_nor_noise(tmp_path, monkeypatch):
    text = pytest.importorskip("sklearn.feature_extraction.text")
    linear = pytest.importorskip("sklearn.linear_model")
    monkeypatch.setenv("COMPRESS_CACHE", str(tmp_path))
    lines = quickstart_dataset.builtin_file("docstrings", Console("quiet")).read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    counts = {row["library"]: 0 for row in rows}
    for row in rows:
        counts[row["library"]] += 1
    assert len(counts) == 8
    assert set(counts.values()) == {quickstart_dataset.ROWS_PER_CLASS}
    test, train = rows[::7], [row for index, row in enumerate(rows) if index % 7]
    vectors = text.TfidfVectorizer(sublinear_tf=True)
    model = linear.LogisticRegression(C=10, max_iter=300)
    model.fit(vectors.fit_transform([row["text"] for row in train]), [row["library"] for row in train])
    score = model.score(vectors.transform([row["text"] for row in test]), [row["library"] for row in test])
    assert 0.62 < score < 0.8
