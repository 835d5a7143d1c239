import numpy as np
import pytest

from compress.errors import ModelError
from compress.export.comparison.parity import MARGIN, compare, compare_all, compare_groups, total
from compress.export.tune_ort_session import WORTH, fastest


class Fixed:
    """A predictor whose outputs follow from the first tokens."""

    inputs = ("input_ids",)

    def __init__(self, function, name="logits"):
        self.function, self.name = function, name

    def predict(self, arrays):
        return {self.name: np.asarray(self.function(arrays["input_ids"]), dtype=np.float32)}


def two(ids):
    return np.stack([ids[:, 0], 10 - ids[:, 0]], axis=1)


def batch(*first):
    ids = np.array([[number, 1] for number in first])
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "labels": np.zeros(len(ids))}


def test_equal_models_are_equal(tiny_task):
    parity = compare(Fixed(two), Fixed(two), [batch(1, 9), batch(4)], tiny_task)
    assert (parity.max_abs_difference, parity.agreement, parity.alone_or_in_batch, parity.rows) == (0, 1, 0, 3)


def test_differences_and_changed_decisions_are_counted(tiny_task):
    parity = compare(Fixed(two), Fixed(lambda ids: two(ids) + np.array([[3, 0]])), [batch(1, 4, 9, 8)], tiny_task)
    assert parity.max_abs_difference == 3
    assert parity.agreement == 0.75  # 4 to 6 became 7 to 6


def test_a_tie_is_no_decision(tiny_task):
    near = Fixed(lambda ids: two(ids) + np.array([[MARGIN / 2, 0]]))
    assert compare(near, Fixed(two), [batch(5)], tiny_task).agreement is None


def test_nan_is_reported(tiny_task):
    def broken(ids):
        return np.where(ids[:, :1] == 1, np.nan, two(ids))

    assert np.isnan(compare(Fixed(two), Fixed(broken), [batch(1), batch(9)], tiny_task).max_abs_difference)


def test_effect_of_the_batch_is_measured(tiny_task):
    drifting = Fixed(lambda ids: two(ids) + len(ids))
    assert compare(drifting, drifting, [batch(1, 9)], tiny_task).alone_or_in_batch == 1


def test_many_labels_are_decisions_of_their_own(tiny_task):
    task = tiny_task.model_copy(update={"kind": "multi_label"})
    parity = compare(Fixed(lambda ids: two(ids) - 5), Fixed(lambda ids: two(ids) - 2), [batch(1, 4)], task)
    assert parity.agreement == 0.75  # -4, 4 unchanged; -1, 1: the first became 2


def test_numbers_decide_nothing(tiny_task):
    task = tiny_task.model_copy(update={"kind": "regression", "labels": ()})
    parity = compare(Fixed(lambda ids: ids[:, :1]), Fixed(lambda ids: ids[:, :1]), [batch(1, 4)], task)
    assert parity.agreement is None
    assert "agreement" not in parity.record()


class Tabled:
    """A predictor whose outputs are written down for rows, by their first token."""

    inputs = ("input_ids", "attention_mask")

    def __init__(self, **tables):
        self.tables = {name: {key: np.float32(value) for key, value in table.items()} for name, table in tables.items()}

    def predict(self, arrays):
        width = arrays["input_ids"].shape[1]
        outputs = {}
        for name, table in self.tables.items():
            lines = [table[int(ids[0])] for ids in arrays["input_ids"]]
            per_token = name in ("start_logits", "end_logits") or lines[0].ndim == 2
            outputs[name] = np.stack([line[:width] if per_token else line for line in lines])
        return outputs


PADDED = {"input_ids": np.array([[7, 5, 3], [8, 3, 0]]), "attention_mask": np.array([[1, 1, 1], [1, 1, 0]])}


def kind_of_task(tiny_task, kind, labels=()):
    return tiny_task.model_copy(update={"kind": kind, "labels": labels})


def test_tags_are_compared_without_padding(tiny_task):
    task = kind_of_task(tiny_task, "token_classification", ("O", "B-A"))
    ours = Tabled(logits={7: [[3, 0], [0, 3], [3, 0]], 8: [[0, 3], [3, 0], [9, 0]]})
    theirs = Tabled(logits={7: [[3, 0], [3, 1], [3, 0]], 8: [[0, 3], [3, 0], [0, 9]]})
    parity = compare(ours, theirs, [PADDED], task)
    assert parity.max_abs_difference == 3  # not the 9 of the padding
    assert parity.agreement == pytest.approx(4 / 5)
    assert parity.alone_or_in_batch == 0
    assert compare(ours, theirs, [PADDED], None).agreement == pytest.approx(4 / 5)


def test_both_ends_of_an_answer_are_decisions(tiny_task):
    task = kind_of_task(tiny_task, "question_answering")
    start = {7: [0, 2, 1], 8: [1, 0, 9]}
    ours = Tabled(start_logits=start, end_logits={7: [0, 1, 2], 8: [0, 1, 9]})
    theirs = Tabled(start_logits=start, end_logits={7: [0, 3, 2], 8: [0, 1, -9]})
    parity = compare(ours, theirs, [PADDED], task)
    assert (parity.max_abs_difference, parity.agreement) == (2, 3 / 4)


def test_what_each_label_gets_counts_and_not_the_weight_of_a_window(tiny_task):
    task = tiny_task.model_copy(update={"long": "attention"})
    ours = Tabled(logits={7: [2, 0, 5], 8: [0, 2, 5]})
    assert compare(ours, Tabled(logits={7: [3, 0, 5], 8: [3, 2, 5]}), [PADDED], task).agreement == 0.5


@pytest.mark.parametrize("kind", ["similarity", "retrieval", "multiple_choice", "ranking"])
def test_embeddings_and_scores_decide_nothing_and_are_compared(kind, tiny_task):
    name = "sentence_embedding" if kind in ("similarity", "retrieval") else "logits"
    ours, theirs = (Tabled(**{name: {7: [0.0], 8: [number]}}) for number in (1.0, 1.5))
    parity = compare(ours, theirs, [PADDED], kind_of_task(tiny_task, kind))
    assert (parity.max_abs_difference, parity.agreement, parity.alone_or_in_batch) == (0.5, None, 0)


def test_effect_of_the_batch_is_measured_on_any_output(tiny_task):
    drifting = Fixed(lambda ids: two(ids) + len(ids), "sentence_embedding")
    assert compare(drifting, drifting, [batch(1, 9)], kind_of_task(tiny_task, "similarity")).alone_or_in_batch == 1


def test_other_outputs_are_an_error(tiny_task):
    with pytest.raises(ModelError, match="expected the outputs logits; got scores"):
        compare(Fixed(two), Fixed(two, "scores"), [batch(1)], tiny_task)


def test_outputs_of_another_shape_are_an_error(tiny_task):
    with pytest.raises(
        ModelError, match=r"expected logits of the shape \(2, 2\); got \(2, 1\)"
    ):  # numpy would widen it
        compare(Fixed(two), Fixed(lambda ids: ids[:, :1]), [batch(1, 9)], tiny_task)


def test_default_session_options_win_unless_others_are_clearly_faster():
    assert fastest([1.0, WORTH + 0.001]) == 0
    assert fastest([1.0, WORTH - 0.001]) == 1
    assert fastest([1.0, 2.0]) == 0


def test_parity_over_several_batch_sizes_is_the_worst_of_them(tiny_task):
    drifting = Fixed(lambda ids: two(ids) + len(ids) - 1)
    sizes = {1: [batch(1), batch(9)], 2: [batch(1, 9)]}
    parity = compare_all(Fixed(two), drifting, sizes, tiny_task)
    assert (parity.max_abs_difference, parity.alone_or_in_batch, parity.rows) == (1, 1, 2)


def test_groups_add_up(tiny_task):
    other = Fixed(lambda ids: np.where(ids[:, :1] == 1, 10 - two(ids), two(ids)))
    groups = {"first": {1: [batch(1), batch(9)], 2: [batch(1, 9)]}, "second": {1: [batch(8)]}}
    parities = compare_groups(Fixed(two), other, groups, tiny_task)
    assert [parity.agreement for parity in parities.values()] == [0.5, 1]
    parity = total(parities.values())
    assert (parity.max_abs_difference, parity.rows, parity.decisions) == (8, 3, 3)
    assert parity.agreement == pytest.approx(2 / 3)


def test_the_number_of_decisions_is_not_stored(tiny_task):
    assert "decisions" not in compare(Fixed(two), Fixed(two), [batch(1)], tiny_task).record()
