import pytest

from compress.model_folder.model_info import FolderInfo
from compress.models.load_save import save_model
from compress.pipeline.graph import Plan
from compress.pipeline.steps.provenance import provenance
from compress.recipe.schema import Recipe
from compress.steps.model_step import PlannedModel


@pytest.fixture
def teacher(tmp_path, tiny_model, tiny_tokenizer, tiny_task):
    """A teacher of two layers, 32 wide."""
    info = FolderInfo(step="finetune", made_by="test", task=tiny_task)
    save_model(tiny_model("bert"), tiny_tokenizer, tmp_path / "teacher", info)
    return tmp_path / "teacher"


def plan_of(student, **more):
    task = {"name": "films", "kind": "classification", "data": {"train": "a.csv", "test": "b.csv"}}
    recipe = Recipe.model_validate({"name": "films", "task": task, "teacher": "t", "student": student, **more})
    models = [
        PlannedModel("teacher", "finetune", None, "finetune"),
        PlannedModel("student", "distill", "teacher", "distill", shape=recipe.student),
        PlannedModel("pruned", "cut", "student", "prune", shape=recipe.prune),
    ]
    return Plan(recipe, models=models)


@pytest.mark.parametrize(
    ("student", "start"),
    [
        ({"layers": 1}, "layer 1 of the teacher"),
        ({"layers": 2, "factors": 8}, "layers 0, 1 of the teacher; word vectors in 8 factors"),
        ({"layers": 1, "vocabulary": "seen"}, "layer 1 of the teacher; a vocabulary of its own"),
        ({"layers": 1, "hidden": 16}, "the most important parts of layer 1 of the teacher"),
        ({"layers": 1, "hidden": 16, "start": "svd"}, "the principal directions of layer 1 of the teacher"),
        ({"layers": 1, "start": "random"}, "random weights"),
        ({"layers": 1, "ffn": 256}, "random weights"),
        ("owner/name", "the checkpoint owner/name"),
    ],
)
def test_start_of_a_student(teacher, student, start):
    (made,) = provenance(plan_of(student), {"teacher": teacher, "student": teacher}).values()
    assert made.start == start
    assert made.augmented is None


def test_local_checkpoint_is_named_without_its_path(teacher):
    made = provenance(plan_of({"source": str(teacher), "layers": 1}), {"student": teacher})
    assert made["student"].start == "layer 1 of teacher"
    assert (
        provenance(plan_of({"source": str(teacher)}), {"student": teacher})["student"].start == "the checkpoint teacher"
    )


def test_augmented_rows_come_from_the_model_folder(teacher, tiny_task):
    info = FolderInfo(step="recover", made_by="test", task=tiny_task, augmented=7)
    (teacher / "compress.json").write_text(info.model_dump_json())
    made = provenance(plan_of({"layers": 1}, prune={"heads": 0.5}), {"pruned": teacher})
    assert made["pruned"].model_dump() == {"start": "the student, pruned", "augmented": 7}


def test_models_that_failed_are_left_out(teacher):
    assert provenance(plan_of({"layers": 1}), {"teacher": teacher}) == {}


def test_model_with_a_pruned_vocabulary(teacher):
    plan = plan_of({"layers": 1}, prune={"heads": 0.5, "vocabulary": "seen"})
    plan.models.append(PlannedModel("trimmed", "vocabulary", "pruned", "vocabulary"))
    made = provenance(plan, {"trimmed": teacher})
    assert made["trimmed"].start == "the pruned model with fewer word pieces"
