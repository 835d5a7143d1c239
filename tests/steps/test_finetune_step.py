import pytest

from compress.errors import RecipeError
from compress.pipeline.preflight.recipe_checks import NAMES, unused_settings
from compress.recipe.load import parse_recipe

FILES = "data: {train: a.csv, test: b.csv}"


def problems_of(finetune: str, kind: str = "classification") -> list[str]:
    text = f"task: {{kind: {kind}, {FILES}}}\nteacher: any\nfinetune: {finetune}\n"
    with pytest.raises(RecipeError) as error:
        parse_recipe(text, "films", (), NAMES, checks=[unused_settings])
    return [line.strip() for line in str(error.value).splitlines() if "line 3" in line]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{seeds: 2, restarts: 3}", "seeds and restarts are the same trainings: give one of them"),
        ("{seeds: 0}", "finetune.seeds: should be greater than or equal to 1, got 0"),
        ("{grid: {batch_size: []}}", "finetune.grid.batch_size: expected a list with at least 1 item, got an empty"),
        ("{grid: {}}", "finetune.grid: give lists of values for one or more of batch_size, learning_rate, epochs"),
        ("{grid: {learning_rate: [1e-4, 1e-4]}}", "finetune.grid: learning_rate lists a value twice"),
        ("{grid: {rate: [1e-4]}}", "finetune.grid.rate: unknown key"),
        ("{grid: bert}", "finetune.grid: expected a section of keys or paper, got 'bert'"),
        ("{grid: {epochs: [2, 3]}, epochs: 4}", "finetune.epochs: is given here and in the grid (2, 3): give one"),
        ("{grid: paper, batch_size: 8}", "finetune.batch_size: is given here and in the grid (16, 32): give one"),
        ("{features: last5}", "finetune.features: expected last4, got 'last5'"),
        ("{features: last4, pooling: cls}", "finetune.pooling: cls: with features: last4 the head reads the mean"),
        ("{features: last4, learning_rate: 1e-4}", "finetune.learning_rate: has no effect with features: last4"),
        ("{features: last4}\nprune: {ffn: 0.5}", "finetune.features: last4: heads and neurons of this teacher cannot"),
        ("{freeze: 2, unfreeze: gradual}", "finetune: freeze keeps layers as they are, and unfreeze trains them later"),
        ("{unfreeze: slowly}", "finetune.unfreeze: expected gradual or a number, got 'slowly'"),
        ("{unfreeze: 0}", "finetune.unfreeze: should be greater than 0, got 0"),
        ("{method: frozen, unfreeze: 2}", "finetune.unfreeze: has no effect with method: frozen"),
        ("{method: head}", "finetune.method: expected full or frozen, got 'head'"),
        ("{method: frozen, epochs: 3}", "finetune.epochs: has no effect with method: frozen, which fits the last"),
        ("{method: frozen, grid: paper}", "finetune.grid: has no effect with method: frozen"),
        ("{head: bilstm}", "finetune.head: bilstm: reads the states of four layers: add features: last4"),
        ("{features: last4, head: bilstm}", "finetune.head: bilstm: reads the tokens of a text to tag them (token_cl"),
        ("{features: last4, head: lstm}", "finetune.head: expected linear or bilstm, got 'lstm'"),
        ("{features: last4, seeds: 2}", "finetune.seeds: has no effect with features: last4"),
        ("{method: frozen, freeze: 2}", "finetune.freeze: has no effect with method: frozen"),
    ],
)
def test_a_mistake_has_one_message(section, message):
    (problem,) = problems_of(section)
    assert message in problem


@pytest.mark.parametrize(
    ("kind", "section", "message"),
    [
        (
            "token_classification",
            "{pooling: cls}",
            "finetune.pooling: is for heads that read whole texts, and token_cl",
        ),
        ("question_answering", "{pooling: mean}", "finetune.pooling: is for heads that read whole texts"),
        ("token_classification", "{features: last4, pooling: cls}", "finetune.pooling: is for heads that read whole"),
        ("retrieval", "{pooling: cls}", "; task.pooling is what an embedding is made of"),
        ("similarity", "{init: random}", "finetune.init: has no effect for similarity: an embedding is the encoder's"),
    ],
)
def test_what_the_head_of_a_kind_does_not_read(kind, section, message):
    (problem,) = problems_of(section, kind=kind)
    assert message in problem


@pytest.mark.parametrize(
    "setting", ["freeze: 2", "unfreeze: gradual", "layer_decay: 0.9", "init: random", "compile: true", "method: frozen"]
)
def test_a_bilstm_alone_is_trained(setting):
    (problem,) = problems_of(f"{{features: last4, head: bilstm, {setting}}}", kind="token_classification")
    assert f"finetune.{setting.split(':')[0]}: has no effect with head: bilstm" in problem


def test_an_embedding_has_no_head_to_train():
    (problem,) = problems_of("{method: frozen}", kind="similarity")
    assert "finetune.method: has nothing to train for similarity" in problem
    (problem,) = problems_of("{unfreeze: gradual}", kind="retrieval")
    assert "finetune.unfreeze: begins with the head alone, and an embedding (retrieval) has none" in problem
