import json

import numpy as np
import pytest

from compress.errors import ModelError
from compress.export.parity import MARGIN, compare, made_up_sample
from compress.export.session import WORTH, fastest


class Fixed:
    """A predictor that answers from the first pieces."""

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
    assert (parity.largest, parity.agreement, parity.alone, parity.rows) == (0, 1, 0, 3)


def test_differences_and_changed_decisions_are_counted(tiny_task):
    parity = compare(Fixed(two), Fixed(lambda ids: two(ids) + np.array([[3, 0]])), [batch(1, 4, 9, 8)], tiny_task)
    assert parity.largest == 3
    assert parity.agreement == 0.75  # 4 to 6 became 7 to 6


def test_a_tie_is_no_decision(tiny_task):
    near = Fixed(lambda ids: two(ids) + np.array([[MARGIN / 2, 0]]))
    assert compare(near, Fixed(two), [batch(5)], tiny_task).agreement is None


def test_nan_is_never_lost(tiny_task):
    def broken(ids):
        return np.where(ids[:, :1] == 1, np.nan, two(ids))

    assert np.isnan(compare(Fixed(two), Fixed(broken), [batch(1), batch(9)], tiny_task).largest)


def test_company_is_told(tiny_task):
    drifting = Fixed(lambda ids: two(ids) + len(ids))
    assert compare(drifting, drifting, [batch(1, 9)], tiny_task).alone == 1


def test_many_labels_are_decisions_of_their_own(tiny_task):
    task = tiny_task.model_copy(update={"kind": "multi_label"})
    parity = compare(Fixed(lambda ids: two(ids) - 5), Fixed(lambda ids: two(ids) - 2), [batch(1, 4)], task)
    assert parity.agreement == 0.75  # -4, 4 kept; -1, 1: the first became 2


def test_numbers_decide_nothing(tiny_task):
    task = tiny_task.model_copy(update={"kind": "regression", "labels": ()})
    parity = compare(Fixed(lambda ids: ids[:, :1]), Fixed(lambda ids: ids[:, :1]), [batch(1, 4)], task)
    assert parity.agreement is None
    assert "agreement" not in parity.record()


def test_other_outputs_are_an_error(tiny_task):
    with pytest.raises(ModelError, match="expected the outputs logits; got scores"):
        compare(Fixed(two), Fixed(two, "scores"), [batch(1)], tiny_task)


@pytest.mark.parametrize("pad", [0, 1])
def test_made_up_batches_fit_the_model(tmp_path, tiny_task, pad):
    config = {"vocab_size": 12, "pad_token_id": pad, "max_position_embeddings": 20}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for each in made_up_sample(tmp_path, tiny_task):
        ids, mask = each["input_ids"], each["attention_mask"]
        assert ids.shape[1] <= 20 - pad - 1
        assert ids.min() >= 0
        assert ids.max() < 12
        np.testing.assert_array_equal(ids == pad, mask == 0)
        assert mask[:, 0].all()


def test_the_default_session_stays_unless_another_gains():
    assert fastest([1.0, WORTH + 0.001]) == 0
    assert fastest([1.0, WORTH - 0.001]) == 1
    assert fastest([1.0, 2.0]) == 0
