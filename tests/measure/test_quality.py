import numpy as np
import pytest

from compress.errors import ModelError, UsageError
from compress.folder import TaskInfo
from compress.measure.quality import assess, decisions, predict_role
from compress.tasks import KINDS

CLASSES = TaskInfo(
    name="t", kind="classification", text=("text",), labels=("a", "b", "c"), metric="accuracy", max_length=8
)
LABELS = CLASSES.model_copy(update={"kind": "multi_label", "metric": "micro_f1"})
SCORES = CLASSES.model_copy(update={"kind": "regression", "metric": "spearman", "labels": ()})


def noisy(gold: np.ndarray, wrong: int) -> np.ndarray:
    """Certain answers, of which the first ``wrong`` are one class off."""
    decided = gold.copy()
    decided[:wrong] = (decided[:wrong] + 1) % 3
    return np.eye(3, dtype=np.float32)[decided]


@pytest.fixture
def gold() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 3, 400)


def test_classification_scores_classes_and_difference(gold):
    kind = KINDS["classification"]
    answers, teacher = noisy(gold, 60), noisy(gold, 20)
    found = assess(kind, CLASSES, answers, gold, teacher_answers=teacher, resampling=200, truncated=0.1, batch=8)
    assert found.primary.value == pytest.approx(0.85)
    assert found.primary.low < 0.85 < found.primary.high
    assert found.versus_teacher is not None
    assert found.versus_teacher.value == pytest.approx(-0.10)
    assert found.versus_teacher.high < 0
    assert found.versus_teacher.test == "mcnemar"
    assert found.versus_teacher.p_value < 1e-6
    assert found.agreement_with_teacher == pytest.approx(0.90)
    assert sum(entry.rows for entry in found.per_class.values()) == 400
    for index, label in enumerate(CLASSES.labels):
        members = gold == index
        assert found.per_class[label].recall == pytest.approx((answers.argmax(1) == gold)[members].mean())
    assert (found.truncated, found.batch, found.larger_is_better) == (0.1, 8, True)


def test_a_metric_that_is_no_share_of_right_rows_is_bootstrapped(gold):
    task = CLASSES.model_copy(update={"metric": "matthews"})
    found = assess(
        KINDS["classification"], task, noisy(gold, 60), gold, teacher_answers=noisy(gold, 20), resampling=200
    )
    assert found.versus_teacher is not None
    assert found.versus_teacher.test == "paired bootstrap"


def test_equal_models_differ_by_nothing(gold):
    answers = noisy(gold, 40)
    found = assess(KINDS["classification"], CLASSES, answers, gold, unquantized_answers=answers, resampling=100)
    difference = found.versus_unquantized
    assert difference is not None
    assert (difference.value, difference.low, difference.high, difference.p_value) == (0.0, 0.0, 0.0, 1.0)
    assert found.versus_teacher is None
    assert found.agreement_with_teacher is None


def test_multi_label_classes_and_agreement():
    gold = np.random.default_rng(0).integers(0, 2, (100, 3)).astype(np.float32)
    answers = gold.copy()
    answers[:, 1] = 0.0  # the second label is never found
    found = assess(KINDS["multi_label"], LABELS, answers, gold, teacher_answers=gold, resampling=100)
    assert [found.per_class[label].recall for label in "abc"] == [1.0, 0.0, 1.0]
    assert found.per_class["b"].rows == int(gold[:, 1].sum())
    assert found.agreement_with_teacher == pytest.approx(1.0 - gold[:, 1].mean())


def test_regression_has_no_decisions():
    gold = np.linspace(0, 5, 80)
    kind = KINDS["regression"]
    found = assess(kind, SCORES, gold[::-1].copy(), gold, teacher_answers=gold, resampling=100)
    assert found.primary.value == pytest.approx(-1.0)
    assert found.per_class == {}
    assert found.agreement_with_teacher is None
    assert found.versus_teacher is not None
    assert found.versus_teacher.test == "paired bootstrap"


def test_an_error_metric_turns_its_difference_around():
    gold = np.linspace(0, 5, 80)
    task = SCORES.model_copy(update={"metric": "mse"})
    found = assess(KINDS["regression"], task, gold + 1.0, gold, teacher_answers=gold + 0.5, resampling=100)
    assert found.larger_is_better is False
    assert found.primary.value == pytest.approx(1.0)
    assert found.versus_teacher is not None
    assert found.versus_teacher.value == pytest.approx(-0.75)


def test_decisions_ask_the_kind(gold):
    answers = noisy(gold, 10)
    found = decisions(KINDS["classification"], CLASSES, answers, gold)
    assert found is not None
    assert (found.argmax(axis=1) == answers.argmax(axis=1)).all()
    assert (found.sum(axis=1) == 1).all()


def test_bad_answers_are_refused(gold):
    kind = KINDS["classification"]
    broken = noisy(gold, 0)
    broken[3, 1] = np.nan
    with pytest.raises(ModelError, match="not finite numbers on 1 of 400 rows"):
        assess(kind, CLASSES, broken, gold)
    with pytest.raises(ModelError, match="399 answers were given for 400 rows"):
        assess(kind, CLASSES, noisy(gold, 0)[1:], gold)
    with pytest.raises(ModelError, match="no rows to score"):
        assess(kind, CLASSES, noisy(gold, 0)[:0], gold[:0])
    with pytest.raises(UsageError, match="no metric called 'acuracy'; did you mean accuracy"):
        assess(kind, CLASSES.model_copy(update={"metric": "acuracy"}), noisy(gold, 0), gold)


class Doubles:
    """A predictor whose output tells its input, and which notes how it was called."""

    inputs = ("input_ids",)

    def __init__(self) -> None:
        self.shapes = []

    def predict(self, arrays):
        self.shapes.append(arrays["input_ids"].shape)
        return {"logits": arrays["input_ids"][:, :1].astype(np.float32) * 2}

    def describe(self):
        return {}


class Ragged:
    lengths = np.array([5, 1, 3, 1, 4])

    def batch(self, indices):
        width = self.lengths[indices].max()
        return {"input_ids": np.repeat(np.asarray(indices)[:, None], width, axis=1)}


def test_outputs_come_in_the_order_of_the_examples_and_batches_are_of_like_length():
    predictor = Doubles()
    outputs = predict_role(predictor, Ragged(), batch=2)
    assert outputs["logits"][:, 0].tolist() == [0, 2, 4, 6, 8]
    assert predictor.shapes == [(2, 1), (2, 4), (1, 5)]
