import pytest
import torch

from compress.console import Console
from compress.data.splits.prepare_splits import prepare_splits
from compress.recipe.task_schema import Task
from compress.train.core import training_data as materials
from tests.conftest import same_weights


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny models are slower on several threads, and sums on several threads may differ."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def rows_of(count, start=0):
    """Sentences whose first real word tells the class."""
    fillers = ("film", "plot", "the film is so dull", "it was of the plot or not")
    return [
        {
            "text": f"a very {('bad', 'good')[number % 2]} {fillers[number % 3]} {fillers[number % 4]}",
            "text_pair": None,
            "label": number % 2,
        }
        for number in range(start, start + count)
    ]


@pytest.fixture(scope="session")
def rows():
    return rows_of


@pytest.fixture(scope="session")
def material(tiny_model, tiny_tokenizer, tiny_task):
    """Encoded rows: 50 to train on, 20 to select by."""
    tokens = materials.fast_tokenizer(tiny_model("bert").config, tiny_tokenizer)
    return materials.from_rows(rows_of(50), rows_of(20, start=7), tiny_task, tokens, Console("quiet"))


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """A prepared data folder of the same rows."""
    folder = tmp_path_factory.mktemp("prepared")
    for role, count in (("train", 50), ("select", 20), ("test", 10)):
        lines = ["text,label", *(f"{row['text']},{('bad', 'good')[row['label']]}" for row in rows_of(count))]
        (folder / f"{role}.csv").write_text("\n".join(lines) + "\n")
    files = {role: str(folder / f"{role}.csv") for role in ("train", "select", "test")}
    (folder / "data").mkdir()
    task = Task(name="films", kind="classification", data=files, max_length=32)
    prepare_splits(task, 0, folder / "data")
    return folder / "data"


@pytest.fixture(name="same_weights")
def same_weights_fixture():
    return same_weights
