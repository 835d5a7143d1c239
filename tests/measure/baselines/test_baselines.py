import numpy as np
import pytest

from compress.measure.baselines import baseline_predictions
from compress.measure.baselines.bag_of_words import _pair_similarity, overlap, sample_rows, words
from compress.model_folder.model_info import TaskInfo
from compress.tasks import KINDS

GOOD, BAD = ["great", "fun", "bright", "warm"], ["dull", "grim", "weak", "cold"]


def task(kind: str, *labels: str) -> TaskInfo:
    metric = KINDS[kind].metrics[0].name
    return TaskInfo(name="t", kind=kind, text=("text",), labels=labels, metric=metric, max_length=32)


def films(count: int, seed: int) -> list[dict]:
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        label = int(random.integers(2))
        chosen = random.choice(GOOD if label else BAD, 2)
        rows.append({"text": f"the film was {chosen[0]} and {chosen[1]}", "text_pair": None, "label": label})
    return rows


def test_bag_of_words_learns():
    kind, train, test = KINDS["classification"], films(200, 0), films(60, 1)
    about = task("classification", "bad", "good")
    answers = baseline_predictions(train, test, about)
    assert answers.shape == (60, 2)
    assert kind.score(answers, kind.gold(test), about)["accuracy"] > 0.95
    assert (answers == baseline_predictions(train, test, about)).all()


def test_pair_features_include_shared_words():
    random = np.random.default_rng(0)
    vocabulary = [f"w{number}" for number in range(300)]
    rows = []
    for number in range(400):
        first = list(random.choice(vocabulary, 6))
        second = first[:5] if number % 2 else list(random.choice(vocabulary, 5))
        rows.append({"text": " ".join(first), "text_pair": " ".join(second), "label": number % 2})
    about = task("classification", "other", "same")
    kind = KINDS["classification"]
    answers = baseline_predictions(rows[:300], rows[300:], about)
    assert kind.score(answers, kind.gold(rows[300:]), about)["accuracy"] > 0.9


def test_a_shared_rare_word_makes_a_pair_more_similar_than_a_common_one():
    train = [{"text": f"the n{number}", "text_pair": f"the m{number}"} for number in range(50)]
    common, rare = {"text": "the cat", "text_pair": "the dog"}, {"text": "a cat", "text_pair": "my cat"}
    similar = _pair_similarity(train)([common, rare]).toarray()
    assert similar[:, 0].tolist() == pytest.approx([1 / 3, 1 / 3])
    assert similar[0, 1] < 0.1 < similar[1, 1]
    assert _pair_similarity(films(5, 0))(films(5, 0)).nnz == 0


def test_scores_by_ridge():
    kind = KINDS["regression"]
    rows = [{**row, "label": 4.0 * row["label"] + 0.5} for row in films(200, 0)]
    answers = baseline_predictions(rows[:150], rows[150:], task("regression"))
    assert answers.shape == (50,)
    assert kind.score(answers, kind.gold(rows[150:]), task("regression"))["pearson"] > 0.95


def test_each_label_on_its_own_and_one_that_never_occurs():
    rows = [{**row, "label": [float(row["label"]), 1.0 - row["label"], 0.0]} for row in films(200, 0)]
    about = task("multi_label", "good", "bad", "never")
    answers = baseline_predictions(rows[:150], rows[150:], about)
    assert answers.shape == (50, 3)
    assert (answers[:, 2] == 0.0).all()
    kind = KINDS["multi_label"]
    assert kind.score(answers, kind.gold(rows[150:]), about)["micro_f1"] > 0.95


def test_class_missing_in_the_sample_has_probability_zero(monkeypatch):
    about = task("classification", "bad", "good", "rare")
    answers = baseline_predictions(films(100, 0), films(20, 1), about)
    assert answers.shape == (20, 3)
    assert (answers[:, 2] == 0.0).all()
    only = [{**row, "label": 1} for row in films(20, 0)]
    assert baseline_predictions(only, films(5, 1), about).argmax(axis=1).tolist() == [1] * 5


def test_texts_without_a_word_get_the_shares_of_the_classes():
    rows = [{"text": "😀!"[number % 2], "text_pair": None, "label": int(number < 3)} for number in range(12)]
    answers = baseline_predictions(rows, [*rows, *films(2, 0)], task("classification", "bad", "good"))
    assert np.allclose(answers, [[0.75, 0.25]] * 14)
    several = [{**row, "label": [float(row["label"]), 1.0]} for row in rows]
    assert np.allclose(baseline_predictions(several, rows, task("multi_label", "a", "b")), [[0.25, 1.0]] * 12)
    assert np.allclose(baseline_predictions(rows, rows, task("regression")), 0.25)


def test_large_sets_are_sampled_by_seed():
    rows = [{"text": str(number)} for number in range(1000)]
    chosen = sample_rows(rows, 3, 50)
    assert len({row["text"] for row in chosen}) == 50
    assert chosen == sample_rows(rows, 3, 50)
    assert chosen != sample_rows(rows, 4, 50)


def test_features_of_a_row():
    pair = {"text": "A cat sat.", "text_pair": "The cat!"}
    assert words(pair) == ["a", "cat", "sat", "a cat", "cat sat", "2 the", "2 cat", "2 the cat", "both cat"]
    assert overlap(pair) == pytest.approx(1 / 4)
    assert overlap({"text": "alone", "text_pair": None}) == 0.0
