"""Hub sets, without a hub: how a set is addressed, what is read of it, and what failure says."""

import pytest

from compress.data.loading.hub_datasets import hub_rows
from compress.errors import DataError
from compress.recipe.task_schema import Data, Task
from compress.tasks.parsing.columns import MissingColumn, column_names, column_value

datasets = pytest.importorskip("datasets")


@pytest.fixture
def hub(monkeypatch):
    """A fake hub: records requests and returns three rows."""
    calls = []
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})
    rows = datasets.Dataset.from_dict({"text": ["a", "b", "c"], "label": [1, 0, -1]}, features=features)

    def load(name, configuration, split, revision):
        calls.append((name, configuration, split, revision))
        return rows

    monkeypatch.setattr(datasets, "load_dataset", load)
    return calls


def test_owner_name_and_configuration(hub):
    list(hub_rows(Data(hub="nyu-mll/glue/sst2", revision="abc"), "train", names=False))
    list(hub_rows(Data(hub="owner/set"), "train[:10]", names=False))
    assert hub == [("nyu-mll/glue", "sst2", "train", "abc"), ("owner/set", None, "train[:10]", None)]


def test_class_numbers_stay_or_become_names(hub):
    data = Data(hub="owner/set")
    assert [row.values["label"] for row in hub_rows(data, "train", names=False)] == [1, 0, -1]
    assert [row.values["label"] for row in hub_rows(data, "train", names=True)] == ["yes", "no", None]


def test_columns_that_are_not_read_are_known_by_name(hub):
    row = next(hub_rows(Data(hub="owner/set"), "train", names=True, columns={"label", "other"}))
    assert (row.values, column_names(row.values)) == ({"label": "yes"}, ("text", "label"))
    with pytest.raises(MissingColumn, match="the columns are 'text', 'label'"):
        column_value(row.values, "texts", Task(kind="classification", data={"hub": "owner/set"}), row.where)


def test_lists_of_class_numbers_become_lists_of_names(hub, monkeypatch):
    tags = datasets.List(datasets.ClassLabel(names=["O", "B-x"]))
    rows = datasets.Dataset.from_dict({"tags": [[0, 1], []]}, features=datasets.Features({"tags": tags}))
    monkeypatch.setattr(datasets, "load_dataset", lambda *index, **settings: rows)
    assert [row.values["tags"] for row in hub_rows(Data(hub="owner/set"), "train", names=True)] == [["O", "B-x"], []]
    assert [row.values["tags"] for row in hub_rows(Data(hub="owner/set"), "train", names=False)] == [[0, 1], []]


def test_rows_have_their_location(hub):
    assert [row.where for row in hub_rows(Data(hub="owner/set"), "dev", names=False)][2] == "owner/set dev, row 3"


@pytest.mark.parametrize("hub_id", ["a/b/c/d", "a//b", "/a", ""])
def test_what_is_no_hub_set(hub_id):
    with pytest.raises(DataError, match="is no hub set"):
        list(hub_rows(Data(hub=hub_id), "train", names=False))


@pytest.mark.parametrize(
    "error", [ConnectionError("no network\nat all"), ValueError("Unknown split"), FileNotFoundError()]
)
def test_failure_points_at_local_files(monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(DataError, match=r"owner/set .split train. cannot be loaded") as fault:
        list(hub_rows(Data(hub="owner/set"), "train", names=False))
    assert "--set task.data.train=FILE" in fault.value.hint
    assert "\n" not in str(fault.value)
