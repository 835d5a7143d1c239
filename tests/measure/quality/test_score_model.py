import numpy as np
import pytest

from compress.errors import ModelError, UsageError
from compress.measure import BootstrapScorer, score_model
from compress.measure.quality.quality_result import Quality
from compress.measure.quality.significance import percentile_interval, resamples
from compress.model_folder.model_info import TaskInfo
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
    result = score_model(kind, CLASSES, answers, gold, teacher_answers=teacher, resampling=200, truncated=0.1, batch=8)
    assert result.primary.value == pytest.approx(0.85)
    assert result.primary.low < 0.85 < result.primary.high
    assert result.versus_teacher is not None
    assert result.versus_teacher.value == pytest.approx(-0.10)
    assert result.versus_teacher.high < 0
    assert result.versus_teacher.test == "mcnemar"
    assert result.versus_teacher.p_value < 1e-6
    assert result.agreement_with_teacher == pytest.approx(0.90)
    assert sum(entry.rows for entry in result.per_class.values()) == 400
    for index, label in enumerate(CLASSES.labels):
        members = gold == index
        decided = answers.argmax(1) == index
        recall, precision = (members & decided).sum() / members.sum(), (members & decided).sum() / decided.sum()
        score = result.per_class[label]
        assert (score.recall, score.precision) == pytest.approx((recall, precision))
        assert score.f1 == pytest.approx(2 * recall * precision / (recall + precision))
    assert (result.truncated, result.batch, result.larger_is_better) == (0.1, 8, True)


@pytest.mark.parametrize("rows_at_once", [7, 1000])
def test_the_recall_of_each_class_is_compared_with_the_teachers(rows_at_once, monkeypatch):
    monkeypatch.setattr("compress.measure.quality.score_model.ROWS_AT_ONCE", rows_at_once)
    task = TaskInfo(name="t", kind="classification", text=("t",), labels=("a", "b"), metric="accuracy", max_length=8)
    gold = np.repeat([0, 1], 20)
    teacher = np.eye(2)[gold]
    ours = teacher.copy()
    ours[:9] = [0.0, 1.0]  # nine of the first class are lost, none of the second
    scores = score_model(KINDS["classification"], task, ours, gold, teacher_answers=teacher).per_class
    assert scores["a"].recall_p_value == pytest.approx(2 / 2**9)
    assert scores["b"].recall_p_value == 1.0
    select = score_model(KINDS["classification"], task, ours, gold, role="select", teacher_answers=teacher).per_class
    assert select["a"].recall_p_value is None


def test_metric_other_than_accuracy_is_bootstrapped(gold):
    task = CLASSES.model_copy(update={"metric": "matthews"})
    result = score_model(
        KINDS["classification"], task, noisy(gold, 60), gold, teacher_answers=noisy(gold, 20), resampling=200
    )
    assert result.versus_teacher is not None
    assert result.versus_teacher.test == "paired bootstrap"


def test_equal_models_differ_by_nothing(gold):
    answers = noisy(gold, 40)
    result = score_model(KINDS["classification"], CLASSES, answers, gold, unquantized_answers=answers, resampling=100)
    difference = result.versus_unquantized
    assert difference is not None
    assert (difference.value, difference.low, difference.high, difference.p_value) == (0.0, 0.0, 0.0, 1.0)
    assert result.versus_teacher is None
    assert result.agreement_with_teacher is None


def test_multi_label_classes_and_agreement():
    gold = np.random.default_rng(0).integers(0, 2, (100, 3)).astype(np.float32)
    answers = gold.copy()
    answers[:, 1] = 0.0  # the second label is never found
    result = score_model(KINDS["multi_label"], LABELS, answers, gold, teacher_answers=gold, resampling=100)
    assert [result.per_class[label].recall for label in "abc"] == [1.0, 0.0, 1.0]
    assert result.per_class["b"].rows == int(gold[:, 1].sum())
    assert result.per_class["b"].precision is None  # nothing was taken for it
    assert result.per_class["b"].f1 == 0.0
    assert [result.per_class[label].recall_p_value < 1e-6 for label in "abc"] == [False, True, False]
    assert result.agreement_with_teacher == pytest.approx(1.0 - gold[:, 1].mean())


def test_regression_has_no_decisions():
    gold = np.linspace(0, 5, 80)
    kind = KINDS["regression"]
    result = score_model(kind, SCORES, gold[::-1].copy(), gold, teacher_answers=gold, resampling=100)
    assert result.primary.value == pytest.approx(-1.0)
    assert result.per_class == {}
    assert result.agreement_with_teacher is None
    assert result.versus_teacher is not None
    assert result.versus_teacher.test == "paired bootstrap"


def test_difference_of_an_error_metric_is_negated():
    gold = np.linspace(0, 5, 80)
    task = SCORES.model_copy(update={"metric": "mse"})
    result = score_model(KINDS["regression"], task, gold + 1.0, gold, teacher_answers=gold + 0.5, resampling=100)
    assert result.larger_is_better is False
    assert result.primary.value == pytest.approx(1.0)
    assert result.versus_teacher is not None
    assert result.versus_teacher.value == pytest.approx(-0.75)


def test_invalid_predictions_are_refused(gold):
    kind = KINDS["classification"]
    broken = noisy(gold, 0)
    broken[3, 1] = np.nan
    with pytest.raises(ModelError, match="NaN or infinite for 1 of 400 rows"):
        score_model(kind, CLASSES, broken, gold)
    with pytest.raises(ModelError, match="399 predictions for 400 rows"):
        score_model(kind, CLASSES, noisy(gold, 0)[1:], gold)
    with pytest.raises(ModelError, match="0 predictions for 0 rows"):
        score_model(kind, CLASSES, noisy(gold, 0)[:0], gold[:0])
    with pytest.raises(UsageError, match="no metric called 'acuracy'; did you mean accuracy"):
        score_model(kind, CLASSES.model_copy(update={"metric": "acuracy"}), noisy(gold, 0), gold)


def test_mcnemar_is_used_for_accuracy_only():
    gold = np.array([0, 1, 2] * 20)
    task = CLASSES.model_copy(update={"metric": "macro_f1"})
    result = score_model(
        KINDS["classification"], task, noisy(gold, 0), gold, teacher_answers=noisy(gold, 0), resampling=100
    )
    assert result.versus_teacher is not None
    assert result.versus_teacher.test == "paired bootstrap"


def test_only_test_has_detailed_scores(gold):
    kind, answers, teacher = KINDS["classification"], noisy(gold, 60), noisy(gold, 20)
    more = {
        "teacher_answers": teacher,
        "lengths": np.arange(400),
        "slices": {"source": ["web", "book"] * 200},
        "perturbed": {"typos": noisy(gold, 90)},
    }
    result = score_model(kind, CLASSES, answers, gold, resampling=100, **more)
    assert result.calibration is not None
    assert [score.name for score in result.by_length] == [
        "0-99 pieces",
        "100-199 pieces",
        "200-299 pieces",
        "300-399 pieces",
    ]
    assert {score.name: score.rows for score in result.slices["source"]} == {"book": 200, "web": 200}
    assert [(each.name, each.primary.value) for each in result.robustness] == [("typos", pytest.approx(310 / 400))]
    assert result.robustness[0].change.value == pytest.approx(-30 / 400)
    assert result.robustness[0].change.test == "mcnemar"
    assert {each.row for each in result.disagreements} <= set(range(20, 60))
    hidden = score_model(kind, CLASSES, answers, gold, role="select", resampling=100, **more)
    assert (hidden.calibration, hidden.by_length, hidden.slices) == (None, (), {})
    assert (hidden.robustness, hidden.disagreements) == ((), ())
    assert hidden.primary == result.primary


def test_older_results_still_load(gold):
    result = score_model(KINDS["classification"], CLASSES, noisy(gold, 60), gold, resampling=100)
    stored = result.model_dump(mode="json")
    for name in ("calibration", "by_length", "slices", "robustness", "disagreements"):
        del stored[name]
    for score in stored["per_class"].values():
        del score["precision"], score["f1"]
    assert Quality.model_validate(stored).calibration is None


class Counting:
    """A kind that counts how often its draws are scored."""

    def __init__(self, kind):
        self.kind = kind
        self.scored = 0

    def __getattr__(self, name):
        return getattr(self.kind, name)

    def weighted_scores(self, *arguments):
        self.scored += 1
        return self.kind.weighted_scores(*arguments)


def test_predictions_are_scored_once_for_all_comparisons(gold):
    kind = Counting(KINDS["classification"])
    drawn = BootstrapScorer(kind, CLASSES, resampling=100, seed=3)
    teacher, student = noisy(gold, 20), noisy(gold, 60)
    result = [score_model(kind, CLASSES, student, gold, teacher_answers=teacher.copy(), scorer=drawn) for _ in range(3)]
    assert kind.scored == 2
    assert (
        result[0]
        == result[1]
        == score_model(KINDS["classification"], CLASSES, student, gold, teacher_answers=teacher, resampling=100, seed=3)
    )


def test_few_scores_are_kept_however_many_there_are(gold, monkeypatch):
    monkeypatch.setattr("compress.measure.quality.bootstrap_scorer.CACHED_BYTES", 3 * 4 * 100 * 8)
    drawn = BootstrapScorer(KINDS["classification"], CLASSES, resampling=100, seed=3)
    teacher = noisy(gold, 20)
    first = drawn.primary(teacher, gold)
    for count in range(10):
        drawn.difference(noisy(gold, 30 + count), teacher, gold)
        assert len(drawn._scored) <= 4
    assert drawn.primary(teacher, gold) is first  # which is used most


@pytest.mark.parametrize("rows", [40, 700])
def test_cached_resamples_equal_new_ones(rows, monkeypatch):
    stored = BootstrapScorer(KINDS["classification"], CLASSES, resampling=100)
    monkeypatch.setattr("compress.measure.quality.bootstrap_scorer.CACHED_BYTES", 0)
    again = BootstrapScorer(KINDS["classification"], CLASSES, resampling=100)
    first, second, third = (np.concatenate(list(each.resample_counts(rows))) for each in (stored, stored, again))
    assert (first == second).all()
    assert (first == third).all()
    assert (first.sum(axis=1) == rows).all()


@pytest.mark.parametrize("name", ["classification", "multi_label", "regression"])
def test_intervals_agree_with_scoring_one_draw_after_another(name):
    random = np.random.default_rng(4)
    labels = () if name == "regression" else ("a", "b", "c")
    task = CLASSES.model_copy(update={"kind": name, "metric": KINDS[name].metrics[0].name, "labels": labels})
    if name == "classification":
        gold, answers = random.integers(0, 3, 60), random.random((60, 3)).astype(np.float32)
    elif name == "multi_label":
        gold, answers = random.integers(0, 2, (60, 3)).astype(np.float32), random.random((60, 3)).astype(np.float32)
    else:
        gold, answers = random.integers(0, 5, 60).astype(np.float32), random.random(60).astype(np.float32)
    result = score_model(KINDS[name], task, answers, gold, resampling=100, seed=9)
    for metric, score in result.scores.items():
        drawn = [KINDS[name].score(answers[rows], gold[rows], task)[metric] for rows in resamples(60, 100, seed=9)]
        slow = percentile_interval(KINDS[name].score(answers, gold, task)[metric], np.array(drawn))
        assert (score.value, score.low, score.high) == pytest.approx((slow.value, slow.low, slow.high), abs=1e-12)


def test_the_confusion_matrix_counts_every_row_and_many_classes_have_pairs(gold):
    answers = noisy(gold, 60)
    confusion = score_model(KINDS["classification"], CLASSES, answers, gold, resampling=2).confusion
    counts = np.array(confusion.counts)
    assert (confusion.names, confusion.unit) == (("a", "b", "c"), "rows")
    assert counts.sum(axis=1).tolist() == np.bincount(gold).tolist()
    assert counts.sum() - np.trace(counts) == 60
    assert counts[0, 1] == (gold[:60] == 0).sum()
    assert score_model(KINDS["classification"], CLASSES, answers, gold, role="select", resampling=2).confusion is None

    many = CLASSES.model_copy(update={"labels": tuple(map(str, range(100)))})
    wide = np.zeros((len(gold), 100))
    wide[:, :3] = answers
    pairs = score_model(KINDS["classification"], many, wide, gold, resampling=2).confusion.pairs
    assert sum(pair.count for pair in pairs) == 60
    assert [pair.count for pair in pairs] == sorted((pair.count for pair in pairs), reverse=True)
    assert {(pair.true, pair.predicted) for pair in pairs} == {("0", "1"), ("1", "2"), ("2", "0")}


def test_a_class_of_several_is_confused_with_those_predicted_in_its_place():
    gold = np.array([[1, 0, 0], [1, 0, 0], [0, 0, 1], [1, 1, 0]], np.float32)
    answers = np.array([[0.2, 0.9, 0], [0.1, 0, 0], [0, 0.8, 0.9], [0.9, 0.9, 0]], np.float32)
    confusion = score_model(KINDS["multi_label"], LABELS, answers, gold, resampling=2).confusion
    assert confusion.names == ("a", "b", "c", "no class")
    assert confusion.counts == ((1, 1, 0, 1), (0, 1, 0, 0), (0, 0, 1, 0), (0, 1, 0, 0))


def test_kinds_without_classes_have_no_confusion_matrix():
    gold = np.arange(10.0)
    assert score_model(KINDS["regression"], SCORES, gold, gold, resampling=2).confusion is None
