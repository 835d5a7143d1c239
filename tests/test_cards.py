import hashlib
import re
from pathlib import Path

import pytest
import yaml

from compress import cards
from compress.cards import HubCheckpoint, PackageCheckpoint, StudentCard, TeacherCard
from compress.errors import MissingExtra, ModelError, UsageError
from compress.recipe.distill_schema import Distill
from compress.recipe.student_schema import LightStudent
from compress.recipe.training_schema import Finetune

TEACHERS = {
    "albert-base",
    "bert-base",
    "bert-large",
    "bert-multilingual",
    "distilbert",
    "electra-small",
    "minilm-l6",
    "mobilebert",
    "modernbert-base",
    "roberta-base",
    "scibert",
}
STUDENTS = {
    "bert-mini",
    "bert-tiny",
    "half-depth",
    "minilm-3x384",
    "minilm-6x384",
    "narrow-3x192",
    "third-depth",
    "tinybert-4x312",
}

TEACHER = {
    "schema_version": 1,
    "name": "mine",
    "title": "Mine",
    "checkpoint": {"hub": "me/mine"},
    "family": "bert",
    "licence": None,
    "languages": ["en"],
    "max_length": 128,
}


@pytest.fixture
def folder(tmp_path):
    """Writes cards into a folder of the user's own."""

    def write(kind, name, content):
        path = tmp_path / kind / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
        return tmp_path

    return write


def test_the_losses_of_student_cards_are_documented():
    page = (Path(__file__).parent.parent / "docs" / "distilling.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:`[\w-]+`(?:, )?)+) \| ((?:`\w+`(?:, )?)+) \|$", page, re.MULTILINE)
    documented = {card: re.findall(r"\w+", losses) for cards, losses in rows for card in re.findall(r"[\w-]+", cards)}
    assert {card.name: card.distill["losses"] for card in cards.list_students() if card.distill} == {
        name: dict.fromkeys(losses, 1.0) for name, losses in documented.items()
    }


def test_the_cards_of_the_docs_are_valid(tmp_path):
    page = (Path(__file__).parents[1] / "docs" / "cards.md").read_text(encoding="utf-8")
    files = [tmp_path / "our-bert.yaml", tmp_path / "our-small.yaml"]
    for file, shown in zip(files, re.findall(r"```yaml\n(.*?)```", page, re.DOTALL), strict=True):
        file.write_text(shown)
    assert Finetune.model_validate(cards.read_card(files[0], TeacherCard).finetune).learning_rate == 3e-5
    assert Distill.model_validate(cards.read_card(files[1], StudentCard).distill).losses.hidden_state is not None


def test_the_cards_that_come_with_the_package():
    assert {card.name for card in cards.list_teachers()} >= TEACHERS
    assert {card.name for card in cards.list_students()} >= STUDENTS
    assert "quickstart" in cards.available("recipes")


@pytest.mark.parametrize("card", cards.list_teachers(), ids=lambda card: card.name)
def test_a_teacher_fine_tunes_with_settings_that_a_recipe_knows(card):
    Finetune.model_validate(dict(card.finetune))


@pytest.mark.parametrize("card", cards.list_students(), ids=lambda card: card.name)
def test_a_student_distils_with_settings_that_a_recipe_knows(card):
    Distill.model_validate(dict(card.distill))


@pytest.mark.parametrize("card", cards.list_students(), ids=lambda card: card.name)
def test_heads_divide_the_width(card):
    if isinstance(card.shape, LightStudent):
        return
    assert not card.shape.heads or card.shape.hidden % card.shape.heads == 0


def test_the_builtin_teacher_comes_with_a_package():
    card = cards.find_teacher("minilm-l6")
    assert isinstance(card.checkpoint, PackageCheckpoint)
    assert isinstance(cards.find_teacher("bert-base").checkpoint, HubCheckpoint)


def test_students_start_in_three_ways(folder):
    assert cards.find_student("half-depth").start == "teacher"
    assert isinstance(cards.find_student("bert-mini").start, HubCheckpoint)
    fresh = {"schema_version": 1, "name": "fresh", "title": "Fresh", "shape": {"layers": 2}, "start": "random"}
    assert cards.find_student("fresh", [folder("students", "fresh", fresh)]).start == "random"


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(UsageError, match="no teacher card is called 'bert-bas'; did you mean bert-base"):
        cards.find_teacher("bert-bas")
    with pytest.raises(UsageError, match="no recipe is called 'quickstrat'; did you mean quickstart"):
        cards.find_recipe("quickstrat")


def test_folders_of_the_user_come_first(folder):
    mine = folder("teachers", "bert-base", {**TEACHER, "name": "bert-base"})
    assert cards.find_teacher("bert-base", [mine]).title == "Mine"
    titles = [card.title for card in cards.list_teachers([mine]) if card.name == "bert-base"]
    assert titles == ["Mine"]
    assert cards.find_student("half-depth", [mine]).name == "half-depth"


def test_a_cards_folder_that_is_not_there_is_reported(tmp_path):
    with pytest.raises(UsageError, match="there is no such folder"):
        cards.find_teacher("bert-base", [tmp_path / "no"])


def test_all_faults_of_a_card_are_reported_at_once(folder):
    wrong = {**TEACHER, "famly": "bert", "max_length": 1, "checkpoint": {"hub": "no owner"}}
    path = folder("teachers", "mine", wrong) / "teachers" / "mine.yaml"
    with pytest.raises(UsageError) as caught:
        cards.read_card(path, TeacherCard)
    text = str(caught.value)
    assert str(path) in text
    assert "famly: unknown key; did you mean family?" in text
    assert "max_length" in text
    assert "checkpoint" in text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [", "not YAML"),
        ("- a", "holds list, expected keys and values"),
        ({**TEACHER, "name": "other"}, "has the name 'other'"),
        ({**TEACHER, "schema_version": 2}, "schema_version"),
        ({**TEACHER, "checkpoint": "bert"}, "checkpoint"),
    ],
)
def test_a_card_that_is_none(folder, content, message):
    mine = folder("teachers", "mine", content)
    with pytest.raises(UsageError, match=message):
        cards.find_teacher("mine", [mine])


def test_cards_do_not_change():
    card = cards.find_student("half-depth")
    with pytest.raises(ValueError, match="frozen"):
        card.name = "other"
    assert isinstance(card, StudentCard)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with weights in it, and the checkpoint that names them."""
    weights = tmp_path / "carrier_of_weights" / "model" / "model.safetensors"
    weights.parent.mkdir(parents=True)
    (tmp_path / "carrier_of_weights" / "__init__.py").write_text("raise ImportError('must not be imported')\n")
    weights.write_bytes(b"weights")
    monkeypatch.syspath_prepend(tmp_path)
    digest = hashlib.sha256(b"weights").hexdigest()
    return weights, PackageCheckpoint(package="carrier-of-weights", folder="carrier_of_weights/model", sha256=digest)


def test_weights_inside_a_package_are_found_without_importing_it(package):
    weights, checkpoint = package
    assert cards.locate(checkpoint) == weights.parent


def test_other_weights_are_refused(package):
    weights, checkpoint = package
    weights.write_bytes(b"other")
    with pytest.raises(ModelError, match="these are other weights"):
        cards.locate(checkpoint)
    weights.unlink()
    with pytest.raises(ModelError, match="is missing from the package"):
        cards.locate(checkpoint)


def test_a_package_that_is_not_installed_names_its_extra(package):
    with pytest.raises(MissingExtra) as caught:
        cards.locate(package[1].model_copy(update={"folder": "not_installed_here/model"}))
    assert "quickstart" in caught.value.hint
