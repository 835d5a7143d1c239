"""ARC and WikiQA as they are shipped: which rows fit, and what words alone reach."""

import pytest

from compress.data.splits import prepare_splits
from compress.measure.baselines import baseline_predictions
from compress.recipe.task_schema import Task, merged
from compress.tasks import kind_of
from compress.tasks.presets import NAMED_TASKS


def prepared(name, data, work):
    task = Task.model_validate(merged(NAMED_TASKS[name], {"data": {role: str(path) for role, path in data.items()}}))
    return prepare_splits.prepare_splits(task, seed=0, work=work), prepare_splits.load_prepared(work)


@pytest.mark.parametrize(("part", "train", "test", "skipped"), [("easy", 2142, 548, 131), ("challenge", 1095, 291, 32)])
def test_arc_leaves_out_rows_that_do_not_fit(data_folder, tmp_path, part, train, test, skipped):
    folder = data_folder / "arc"
    files = {"train": folder / f"arc_{part}_train.jsonl.gz", "test": folder / f"arc_{part}_dev.jsonl.gz"}
    info, _ = prepared(f"arc_{part}", files, tmp_path)
    assert info.counts["train"] + info.counts["select"] == train
    assert info.counts["test"] == test
    assert info.skipped == skipped


def test_wikiqa_has_as_many_questions_with_an_answer_as_its_authors_count(data_folder, tmp_path):
    folder = data_folder / "wikiqa"
    files = {"train": folder / "train.tsv.gz", "select": folder / "dev.tsv.gz", "test": folder / "test.tsv.gz"}
    info, result = prepared("wikiqa", files, tmp_path)
    assert info.counts == {"train": 873, "select": 126, "test": 243}
    kind, rows = kind_of(info.task_info), result.rows("test")
    scores = kind.score(baseline_predictions([], rows, info.task_info), kind.gold(rows), info.task_info)
    assert scores["map"] == pytest.approx(0.613, abs=0.01)
