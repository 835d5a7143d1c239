"""The contract of every kind, and scores that agree with slow references."""

import math

import numpy as np
import pytest

from compress.errors import ModelError, UsageError
from compress.model_folder.model_info import TaskInfo
from compress.recipe.task_schema import Task
from compress.tasks import KINDS, kind_of, primary_metric, task_info
from tests.tasks.letter_tokens import encode_letters


def task_of(kind, **more):
    return Task(kind=kind, data={"train": "a.tsv"}, **more)


def info_of(kind, labels=()):
    return task_info(task_of(kind), labels)


LABELS = {"classification": ("a", "b", "c"), "multi_label": ("a", "b", "c"), "regression": ()}
"""The kinds of a text or a pair; the others have test files of their own."""
ANSWER = {"classification": 2, "multi_label": [1.0, 0.0, 1.0], "regression": 2.5}


def from_logits(name, info, logits):
    """The predictions of a kind from these logits, one example per row."""
    kind = KINDS[name]
    return kind.predictions(kind.decode({"logits": logits}, {}, info), [1] * len(logits), [{}] * len(logits), info)


@pytest.mark.parametrize("name", KINDS)
def test_the_table_has_kinds_by_their_name(name):
    assert KINDS[name].name == name
    assert KINDS[name].metrics


@pytest.mark.parametrize("name", LABELS)
def test_batches_are_padded_and_masked(name):
    kind, info = KINDS[name], info_of(name, LABELS[name])
    rows = [{"text": text, "text_pair": pair, "label": ANSWER[name]} for text, pair in (("abc", None), ("a", "xyzw"))]
    batch = kind.collate([example for row in rows for example in kind.examples(row, info, encode_letters)], pad_id=7)
    assert batch["input_ids"].tolist() == [[97, 98, 99, 7, 7], [97, 120, 121, 122, 119]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert batch["token_type_ids"].tolist() == [[0, 0, 0, 0, 0], [0, 1, 1, 1, 1]]
    assert all(batch[array].dtype == np.int64 for array in ("input_ids", "attention_mask", "token_type_ids"))
    assert batch["labels"].tolist() == [ANSWER[name]] * 2
    assert batch["labels"].dtype == (np.int64 if name == "classification" else np.float32)


@pytest.mark.parametrize("name", LABELS)
def test_a_row_to_predict_needs_no_label(name):
    kind = KINDS[name]
    examples = kind.examples({"text": "abc", "text_pair": None}, info_of(name, LABELS[name]), encode_letters)
    assert "labels" not in kind.collate(examples, pad_id=0)


@pytest.mark.parametrize("name", LABELS)
def test_outputs_that_are_no_numbers_are_refused(name):
    width = 1 if name == "regression" else 3
    logits = np.zeros((4, width), np.float32)
    logits[2, 0] = np.nan
    with pytest.raises(ModelError, match="NaN or infinite for 1 of 4 rows"):
        from_logits(name, info_of(name, LABELS[name]), logits)


@pytest.mark.parametrize("name", LABELS)
def test_outputs_per_token_are_refused(name):
    width = 1 if name == "regression" else 3
    with pytest.raises(ModelError, match=r"logits have the shape .* where this task expects"):
        from_logits(name, info_of(name, LABELS[name]), np.zeros((4, 7, width), np.float32))


@pytest.mark.parametrize("name", LABELS)
def test_perfect_predictions_score_best(name):
    kind, info = KINDS[name], info_of(name, LABELS[name])
    random = np.random.default_rng(0)
    if name == "regression":
        gold = random.normal(size=20).astype(np.float32)
        scores = kind.score(gold.copy(), gold, info)
    elif name == "classification":
        gold = random.integers(0, 3, 20)
        scores = kind.score(np.eye(3, dtype=np.float32)[gold], gold, info)
    else:
        gold = random.integers(0, 2, (20, 3)).astype(np.float32)
        scores = kind.score(gold.copy(), gold, info)
    assert scores.pop("mse", 0.0) == 0.0
    assert all(value == pytest.approx(1.0) for value in scores.values())
    assert set(scores) <= {metric.name for metric in kind.metrics}


@pytest.mark.parametrize("seed", range(5))
def test_classification_scores_agree_with_scikit_learn(seed):
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(seed)
    kind, info = KINDS["classification"], info_of("classification", ("a", "b", "c", "d"))
    gold, answers = random.integers(0, 3, 40), random.random((40, 4)).astype(np.float32)
    scores, decided = kind.score(answers, gold, info), answers.argmax(-1)
    assert scores["accuracy"] == pytest.approx(metrics.accuracy_score(gold, decided))
    assert scores["macro_f1"] == pytest.approx(metrics.f1_score(gold, decided, average="macro", zero_division=0))
    assert scores["matthews"] == pytest.approx(metrics.matthews_corrcoef(gold, decided))
    assert "f1" not in scores


@pytest.mark.parametrize("seed", range(5))
def test_binary_f1_is_that_of_the_last_class(seed):
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(seed)
    gold, answers = random.integers(0, 2, 40), random.random((40, 2)).astype(np.float32)
    scores = KINDS["classification"].score(answers, gold, info_of("classification", ("no", "yes")))
    assert scores["f1"] == pytest.approx(metrics.f1_score(gold, answers.argmax(-1)))


@pytest.mark.parametrize("seed", range(5))
def test_multi_label_scores_agree_with_scikit_learn(seed):
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(seed)
    gold = random.integers(0, 2, (30, 4)).astype(np.float32)
    answers = random.random((30, 4)).astype(np.float32)
    scores = KINDS["multi_label"].score(answers, gold, info_of("multi_label", "abcd"))
    decided = answers >= 0.5
    assert scores["micro_f1"] == pytest.approx(metrics.f1_score(gold, decided, average="micro"))
    assert scores["macro_f1"] == pytest.approx(metrics.f1_score(gold, decided, average="macro"))
    assert scores["subset_accuracy"] == pytest.approx(metrics.accuracy_score(gold, decided))


@pytest.mark.parametrize("seed", range(5))
def test_correlations_agree_with_scipy(seed):
    stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(seed)
    gold = random.integers(0, 6, 50).astype(np.float32)  # ties
    answers = (gold + random.normal(size=50)).round(1).astype(np.float32)
    scores = KINDS["regression"].score(answers, gold, info_of("regression"))
    assert scores["spearman"] == pytest.approx(stats.spearmanr(answers, gold).statistic)
    assert scores["pearson"] == pytest.approx(stats.pearsonr(answers, gold).statistic)
    assert scores["mse"] == pytest.approx(float(((answers - gold) ** 2).mean()), rel=1e-5)


def test_a_constant_side_has_no_correlation():
    constant = np.full(10, 0.1, np.float32)
    scores = KINDS["regression"].score(constant, np.arange(10, dtype=np.float32), info_of("regression"))
    assert (scores["pearson"], scores["spearman"]) == (0.0, 0.0)


def test_undefined_metrics_are_zero_and_no_error():
    kind, info = KINDS["classification"], info_of("classification", ("a", "b"))
    scores = kind.score(np.tile([0.9, 0.1], (5, 1)), np.zeros(5, np.int64), info)
    assert scores == {"accuracy": 1.0, "f1": 0.0, "macro_f1": 1.0, "matthews": 0.0}


def test_probabilities_do_not_overflow():
    logits = np.array([[1000.0, -1000.0], [0.0, 0.0]])
    assert from_logits("classification", info_of("classification", "ab"), logits).tolist() == [
        [1.0, 0.0],
        [0.5, 0.5],
    ]
    assert from_logits("multi_label", info_of("multi_label", "ab"), logits).tolist() == [
        [1.0, 0.0],
        [0.5, 0.5],
    ]


def test_multi_label_probability_is_the_logistic_function():
    assert from_logits("multi_label", info_of("multi_label", "a"), np.array([[1.5]]))[0, 0] == pytest.approx(
        1 / (1 + math.exp(-1.5))
    )


def test_regression_wants_one_output():
    with pytest.raises(ModelError, match=r"where this task expects .any, 1."):
        from_logits("regression", info_of("regression"), np.zeros((2, 3)))


def test_json_predictions_name_labels():
    info = info_of("classification", ("no", "yes"))
    assert KINDS["classification"].to_json(np.array([[0.25, 0.75]]), info) == [{"label": "yes", "probability": 0.75}]
    info = info_of("multi_label", ("x", "y"))
    assert KINDS["multi_label"].to_json(np.array([[0.5, 0.25]]), info) == [
        {"labels": ["x"], "probabilities": {"x": 0.5, "y": 0.25}}
    ]
    assert KINDS["regression"].to_json(np.array([1.5]), info_of("regression")) == [{"score": 1.5}]


def test_correct_marks_rows():
    answers = np.array([[0.9, 0.1], [0.9, 0.1]])
    assert KINDS["classification"].correct(answers, np.array([0, 1])).tolist() == [True, False]
    assert KINDS["multi_label"].correct(answers, np.array([[1.0, 0.0], [1.0, 1.0]])).tolist() == [True, False]
    assert KINDS["regression"].correct(np.array([1.0]), np.array([1.0])) is None


def test_gold_has_the_form_that_score_compares():
    assert KINDS["classification"].gold([{"label": 1}, {"label": 0}]).tolist() == [1, 0]
    assert KINDS["multi_label"].gold([{"label": [1.0, 0.0]}]).tolist() == [[1.0, 0.0]]
    assert KINDS["regression"].gold([{"label": 1.5}]).dtype == np.float32


def test_unknown_kind_and_metric_name_the_nearest():
    with pytest.raises(UsageError, match="did you mean regression"):
        kind_of(task_of("regresion"))
    with pytest.raises(UsageError, match="did you mean pearson"):
        primary_metric(task_of("regression", metric="pearso"))


def test_the_first_metric_is_the_default():
    assert primary_metric(task_of("regression")).name == "spearman"
    assert task_info(task_of("classification"), ("a", "b")).metric == "accuracy"


def predictions_and_gold(name):
    """Three rows of predictions and of gold; the first two predictions are equal, and right."""
    if name == "regression":
        return np.array([1.0, 1.0, 4.0], np.float32), np.array([1.0, 1.0, 1.0], np.float32)
    if name == "classification":
        return np.array([[0.8, 0.1, 0.1], [0.8, 0.1, 0.1], [0.2, 0.3, 0.5]], np.float32), np.array([0, 0, 1])
    given = np.array([[0.8, 0.1, 0.6], [0.8, 0.1, 0.6], [0.2, 0.3, 0.1]], np.float32)
    return given, np.array([[1, 0, 1], [1, 0, 1], [0, 1, 0]], np.float32)


@pytest.mark.parametrize("name", LABELS)
def test_the_distance_of_equal_predictions_is_zero(name):
    kind, (answers, _) = KINDS[name], predictions_and_gold(name)
    assert kind.distance(answers, answers).tolist() == [0.0, 0.0, 0.0]
    apart = kind.distance(answers, answers[[0, 2, 1]])
    assert apart[0] == 0.0
    assert apart[1] == apart[2] > 0.0
    same = kind.same_decision(answers, answers[[0, 2, 1]])
    assert same is None if name == "regression" else same.tolist() == [True, False, False]


@pytest.mark.parametrize("name", LABELS)
def test_descriptions_of_predictions_and_gold(name):
    kind, (answers, gold) = KINDS[name], predictions_and_gold(name)
    info = info_of(name, LABELS[name])
    expected = {
        "classification": (["a (80 %)", "a (80 %)", "c (50 %)"], ["a", "a", "b"]),
        "multi_label": (["a (80 %), c (60 %)", "a (80 %), c (60 %)", "none"], ["a, c", "a, c", "b"]),
        "regression": (["1", "1", "4"], ["1", "1", "1"]),
    }
    assert (kind.describe(answers, info), kind.describe_gold(gold, info)) == expected[name]


def test_large_scores_are_described_without_exponents():
    values = np.array([250_000, -123_456, 17.24, 0.0], np.float32)
    assert KINDS["regression"].describe(values, info_of("regression")) == ["250000", "-123456", "17.2", "0"]


def test_distances_of_probabilities_are_shares():
    one, other = np.array([[0.9, 0.1, 0.0]]), np.array([[0.2, 0.5, 0.3]])
    assert KINDS["classification"].distance(one, other)[0] == pytest.approx(0.7)
    assert KINDS["multi_label"].distance(one, other)[0] == pytest.approx(0.7)


def test_class_counts_agree_with_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    gold, answers = random.integers(0, 3, 60), random.random((60, 3))
    counts = KINDS["classification"].class_counts(answers, gold, info_of("classification", "abc"))
    precision, recall, _, rows = metrics.precision_recall_fscore_support(gold, answers.argmax(1))
    assert (counts.hits / counts.predicted).tolist() == pytest.approx(precision.tolist())
    assert (counts.hits / counts.true).tolist() == pytest.approx(recall.tolist())
    assert counts.true.tolist() == rows.tolist()
    marks = random.integers(0, 2, (60, 3)).astype(np.float32)
    counts = KINDS["multi_label"].class_counts(answers, marks, info_of("multi_label", "abc"))
    precision, recall, _, rows = metrics.precision_recall_fscore_support(marks, answers >= 0.5)
    assert (counts.hits / counts.predicted).tolist() == pytest.approx(precision.tolist())
    assert (counts.hits / counts.true).tolist() == pytest.approx(recall.tolist())
    assert counts.true.tolist() == rows.tolist()
    assert KINDS["regression"].class_counts(answers[:, 0], answers[:, 0], info_of("regression")) is None


def test_confidence_is_that_of_the_decision():
    answers, gold = predictions_and_gold("classification")
    result = KINDS["classification"].confidence(answers, gold)
    assert result.row.tolist() == [0, 1, 2]
    assert result.stated.tolist() == pytest.approx([0.8, 0.8, 0.5])
    assert result.right.tolist() == [True, True, False]
    answers, gold = predictions_and_gold("multi_label")
    result = KINDS["multi_label"].confidence(answers, gold)
    assert result.row.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert result.stated.tolist() == pytest.approx([0.8, 0.9, 0.6, 0.8, 0.9, 0.6, 0.8, 0.7, 0.9])
    assert result.right.tolist() == [True] * 7 + [False, True]
    assert KINDS["regression"].confidence(*predictions_and_gold("regression")) is None


@pytest.mark.parametrize("given", [None, 5, (None,), ["a", 5], {"text": "a"}])
@pytest.mark.parametrize("name", KINDS)
def test_what_is_no_text_is_bad_usage(name, given):
    columns = KINDS[name].defaults.get("text", ["text"])
    info = TaskInfo(name="x", kind=name, text=columns, labels=(), metric="x", max_length=32)
    with pytest.raises(UsageError):
        KINDS[name].from_input(given, info)
