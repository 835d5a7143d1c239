from pathlib import Path

import pytest

from compress.errors import UsageError
from compress.pipeline.preflight.recipe_checks import NAMES
from compress.pipeline.preflight.resolve import resolve
from compress.recipe.load import dump_recipe, parse_recipe
from compress.recipe.loss_schema import HiddenState, Losses, SoftLabel
from compress.recipe.schema import Recipe
from compress.recipe.training_schema import Finetune


def recipe(**sections: object) -> Recipe:
    base = {"task": {"kind": "classification", "data": {"train": "x.csv"}}, "teacher": "minilm-l6"}
    return Recipe.model_validate({**base, **sections}, context=NAMES)


def write_cards(folder: Path, teacher: str = "{epochs: 7, batch_size: 8}") -> Path:
    (folder / "teachers").mkdir(parents=True)
    (folder / "students").mkdir()
    (folder / "teachers" / "mine.yaml").write_text(
        "schema_version: 1\nname: mine\ntitle: Mine\ncheckpoint: {hub: me/mine}\nfamily: bert\nlicence: null\n"
        f"languages: [en]\nmax_length: 128\nfinetune: {teacher}\n"
    )
    (folder / "students" / "small.yaml").write_text(
        "schema_version: 1\nname: small\ntitle: Small\nshape: {layers: 2, hidden: 64, heads: 2}\nstart: random\n"
        "distill: {epochs: 9, losses: {soft_label: 2.0}}\n"
    )
    return folder


def test_recipe_settings_override_those_of_the_card(tmp_path: Path) -> None:
    cards = [write_cards(tmp_path)]
    made = resolve(recipe(teacher="mine", finetune={"epochs": 1}, student="small"), cards)
    assert made.finetune
    assert (made.finetune.epochs, made.finetune.batch_size) == (1, 8)
    assert made.distill
    assert (made.distill.epochs, made.distill.losses) == (9, Losses(soft_label=SoftLabel(weight=2.0)))
    assert made.student is not None
    assert (made.student.layers, made.student.hidden, made.student.start, made.student.source) == (
        2,
        64,
        "random",
        None,
    )


@pytest.mark.parametrize("kind", ["similarity", "token_classification", "question_answering"])
def test_the_pooling_of_a_card_is_for_new_heads_that_read_whole_texts(kind: str) -> None:
    assert resolve(recipe()).finetune == Finetune(pooling="mean")
    task = {"kind": kind, "data": {"train": "x.csv"}}
    assert resolve(recipe(task=task, finetune={"reuse": False})).finetune == Finetune(reuse=False)


@pytest.mark.parametrize("own", [{"method": "frozen"}, {"features": "last4"}])
def test_what_of_a_card_has_no_effect_beside_the_recipe_is_left_out(own: dict[str, str]) -> None:
    made = resolve(recipe(teacher="electra-small", student={"layers": 3}, finetune=own))
    assert parse_recipe(dump_recipe(made), "again", (), NAMES) == made
    assert made.finetune
    assert made.finetune.layer_decay == Finetune().layer_decay


@pytest.mark.parametrize("students", [["small", "static"], ["static", "small"]])
def test_a_card_without_settings_of_the_training_leaves_those_of_another(students, tmp_path: Path) -> None:
    made = resolve(recipe(student=students), [write_cards(tmp_path)])
    assert made.distill
    assert (made.distill.epochs, made.distill.losses) == (9, Losses(soft_label=SoftLabel(weight=2.0)))


def test_recipe_overrides_a_short_form_of_the_card(tmp_path: Path) -> None:
    cards = write_cards(tmp_path)
    path = cards / "students" / "small.yaml"
    path.write_text(path.read_text().replace("losses: {soft_label: 2.0}", "soft_label: 2.0"))
    made = resolve(recipe(student="small", distill={"hidden_state": 3.0}), [cards])
    assert made.distill
    assert made.distill.losses == Losses(hidden_state=HiddenState(weight=3.0))


def test_null_layers_are_those_of_the_card(tmp_path: Path) -> None:
    made = resolve(recipe(student={"source": "small", "layers": None}), [write_cards(tmp_path)])
    assert made.student is not None
    assert made.student.layers == 2


def test_a_recipes_own_shape_comes_first(tmp_path: Path) -> None:
    made = resolve(recipe(student={"source": "small", "layers": 1}), [write_cards(tmp_path)])
    assert made.student is not None
    assert (made.student.layers, made.student.hidden) == (1, 64)


def test_a_checkpoint_of_the_shape_becomes_the_source() -> None:
    made = resolve(recipe(student="tinybert-4x312"))
    assert made.student is not None
    assert made.student.source == "huawei-noah/TinyBERT_General_4L_312D"


def test_disabled_sections_stay_disabled() -> None:
    made = resolve(recipe(finetune=False, distill=False, student="half-depth"))
    assert made.finetune is False
    assert made.distill is False


def test_a_card_with_a_wrong_setting_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="teacher card mine: epoch"):
        resolve(recipe(teacher="mine"), [write_cards(tmp_path, "{epoch: 1}")])


def test_heads_are_pooled_as_the_cards_say(tmp_path: Path) -> None:
    cards = write_cards(tmp_path)
    assert resolve(recipe(teacher="mine"), [cards]).finetune.pooling == "auto"
    (path := cards / "teachers" / "mine.yaml").write_text(path.read_text() + "pooling: mean\n")
    assert resolve(recipe(teacher="mine"), [cards]).finetune.pooling == "mean"
    assert resolve(recipe(teacher="mine", finetune={"pooling": "cls"}), [cards]).finetune.pooling == "cls"
    (path := cards / "students" / "small.yaml").write_text(
        path.read_text().replace("start: random", "start: {hub: me/small}\npooling: mean")
    )
    assert resolve(recipe(student="small"), [cards]).student.pooling == "mean"
    assert resolve(recipe(student={"source": "small", "pooling": "cls"}), [cards]).student.pooling == "cls"
