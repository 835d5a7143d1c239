from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from compress.batch_arrays import BATCH_POSITIONS
from compress.tasks import KINDS
from compress.train.core.gradients import DeviceBatches, pad_width

CPU = torch.device("cpu")
ARRAYS = {array.name: array for array in (*KINDS["classification"].arrays().values(), *BATCH_POSITIONS)}


class Counting:
    """Examples of growing length that record the requested batches."""

    example_lengths = np.arange(1, 10)

    def __init__(self):
        self.requested = []

    def arrays(self):
        return ARRAYS

    def batch(self, indices):
        self.requested.append(indices.tolist())
        ids = np.ones((len(indices), int(indices.max()) + 1), dtype=np.int64)
        return {"input_ids": ids, "attention_mask": ids, "labels": indices}


@pytest.fixture
def ahead():
    """DeviceBatches that look ahead as they do for a GPU."""
    batches = DeviceBatches(Counting(), CPU)
    batches._thread = ThreadPoolExecutor(1)
    yield batches
    batches._thread.shutdown()


def array(*numbers):
    return np.array(numbers, dtype=np.int64)


def test_next_batch_is_prepared_once(ahead):
    first = ahead(array(0, 1), array(2, 3))
    ahead._pending[1].result()
    assert ahead._examples.requested == [[0, 1], [2, 3]]
    second = ahead(array(2, 3))
    assert ahead._examples.requested == [[0, 1], [2, 3]]
    assert (first["labels"].tolist(), second["labels"].tolist()) == ([0, 1], [2, 3])


def test_unexpected_batch_is_created(ahead):
    ahead(array(0), array(1))
    assert ahead(array(5))["labels"].tolist() == [5]
    assert ahead(array(1))["labels"].tolist() == [1]


def test_error_of_prepared_batch_is_raised_on_use(ahead):
    ahead(array(0), array())
    with pytest.raises(ValueError, match="zero-size"):
        ahead(array())


def test_cpu_does_not_prepare_batches():
    batches = DeviceBatches(Counting(), CPU)
    batches(array(0), array(1))
    assert batches._examples.requested == [[0]]
    assert not batches.look_ahead


def test_host_arrays_stay_on_the_host():
    class Rows(Counting):
        def batch(self, indices):
            return {**super().batch(indices), "index": indices, "group": indices, "soft_labels": indices}

    batch = DeviceBatches(Rows(), torch.device("meta"))(array(0, 1))
    assert {name for name, each in batch.items() if each.device == CPU} == {"index", "group", "soft_labels"}


def test_batches_are_as_wide_as_a_multiple():
    batches = DeviceBatches(Counting(), CPU, pad_id=7, multiple=4)
    batch = batches(array(0, 5))
    assert batch["input_ids"].tolist() == [[1] * 6 + [7] * 2] * 2
    assert batch["attention_mask"].tolist() == [[1] * 6 + [0] * 2] * 2
    assert batches(array(7))["input_ids"].shape == (1, 8)
    assert batches(array(8))["input_ids"].shape == (1, 9)  # no example is longer: a model may not have the positions


def test_only_token_arrays_are_padded():
    ids = torch.ones(2, 3, dtype=torch.int64)
    arrays = KINDS["token_classification"].arrays()
    batch = {"input_ids": ids, "labels": ids, "index": ids[0], "soft_labels": torch.ones(2, 3)}
    tagged = pad_width(batch, arrays, 0, 8)
    assert tagged["labels"].tolist() == [[1] * 3 + [-100] * 5] * 2
    assert tagged["soft_labels"].shape == (2, 3)
    assert tagged["index"].shape == (3,)
    assert pad_width({"input_ids": ids, "labels": torch.ones(2, 3)}, ARRAYS, 0, 8)["labels"].shape == (2, 3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
def test_batches_come_to_a_gpu():
    batches = DeviceBatches(Counting(), torch.device("cuda"))
    assert batches(array(0), array(1))["labels"].is_cuda
    assert batches(array(1))["labels"].tolist() == [1]
