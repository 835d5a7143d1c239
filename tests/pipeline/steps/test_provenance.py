import pytest

from compress.model_info import FolderInfo
from compress.models.load_save import save_model
from compress.pipeline.steps.provenance import makings
from compress.recipe.schema import Recipe


@pytest.fixture
def teacher(tmp_path, tiny_model, tiny_tokenizer, tiny_task):
    """A teacher of two layers, 32 wide."""
    info = FolderInfo(step="finetune", made_by="test", task=tiny_task)
    save_model(tiny_model("bert"), tiny_tokenizer, tmp_path / "teacher", info)
    return tmp_path / "teacher"


def recipe(student, **more):
    task = {"name": "films", "kind": "classification", "data": {"train": "a.csv", "test": "b.csv"}}
    return Recipe.model_validate({"name": "films", "task": task, "teacher": "t", "student": student, **more})


@pytest.mark.parametrize(
    ("student", "told"),
    [
        ({"layers": 1}, "layer 1 of the teacher"),
        ({"layers": 2, "factors": 8}, "layers 0, 1 of the teacher; word vectors in 8 factors"),
        ({"layers": 1, "hidden": 16}, "the most important parts of layer 1 of the teacher"),
        ({"layers": 1, "hidden": 16, "start": "svd"}, "the principal directions of layer 1 of the teacher"),
        ({"layers": 1, "start": "random"}, "random weights"),
        ({"layers": 1, "ffn": 256}, "random weights"),
        ("owner/name", "the checkpoint owner/name"),
    ],
)
def test_what_a_student_starts_from(teacher, student, told):
    (made,) = makings(recipe(student), {"teacher": teacher, "student": teacher}).values()
    assert made.start == told
    assert made.augmented is None


def test_a_checkpoint_of_this_machine_is_told_by_its_name(teacher):
    made = makings(recipe({"source": str(teacher), "layers": 1}), {"student": teacher})
    assert made["student"].start == "layer 1 of teacher"
    assert makings(recipe({"source": str(teacher)}), {"student": teacher})["student"].start == "the checkpoint teacher"


def test_augmented_rows_are_those_that_the_folder_tells(teacher, tiny_task):
    info = FolderInfo(step="prune", made_by="test", task=tiny_task, augmented=7)
    (teacher / "compress.json").write_text(info.model_dump_json())
    made = makings(recipe({"layers": 1}, prune={"heads": 0.5}), {"pruned": teacher})
    assert made["pruned"].model_dump() == {"start": "the student, pruned", "augmented": 7}


def test_what_failed_is_not_told(teacher):
    assert makings(recipe({"layers": 1}), {"teacher": teacher}) == {}
