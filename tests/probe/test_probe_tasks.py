"""What a probe asks: the items of a task, whatever rows it is made of."""

from collections.abc import Sequence

import pytest

from compress.model_folder.model_info import TaskInfo
from compress.probe.probe_items import Corpus
from compress.probe.probe_tasks import ProbeRows, task_of_rows
from compress.probe.surface_tasks import length


@pytest.mark.parametrize("right", [1, 2])
def test_of_many_candidates_as_many_wrong_ones_as_right_ones_are_read(right: int) -> None:
    task = TaskInfo(name="r", kind="ranking", text=("query", "documents"), labels=(), metric="mrr", max_length=64)
    rows = [
        {
            "text": f"query {row}",
            "candidates": [f"document {row} {each}" for each in range(100)],
            "label": [1.0] * right + [0.0] * (100 - right),
        }
        for row in range(20)
    ]
    corpus = Corpus()
    made = task_of_rows(ProbeRows(task, rows[:15], rows[15:]), "r", corpus, seed=0)
    assert len(made.items) == len(corpus.texts) == 20 * 2 * right
    assert made.targets.mean() == 0.5
    texts = list(corpus.texts)
    for (item,), target, group in zip(made.items.tolist(), made.targets.tolist(), made.groups.tolist(), strict=True):
        query, document = texts[item]
        assert query == f"query {group}"
        assert (int(str(document).split()[-1]) < right) == bool(target)


@pytest.mark.parametrize("counts", [[1] + [6] * 16 + [7] * 83, [1] * 20 + [5] * 100 + [6] * 80, [1] * 50 + [10] * 50])
def test_no_class_of_lengths_is_empty(counts: Sequence[int]) -> None:
    texts = [(number % 4 == 0, number, " ".join(["word"] * count)) for number, count in enumerate(counts)]
    made = length(texts, Corpus(), 0)
    assert set(made.targets.tolist()) == set(range(len(made.classes)))
