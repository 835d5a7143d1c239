"""README.md of model folders that plain transformers refuses: what it prints runs, and says what it should."""

import re

import pytest
import torch
from transformers import AutoConfig

from compress.families import FAMILIES
from compress.model_folder.model_info import FolderInfo, TaskInfo
from compress.model_folder.model_readme import README_FILE
from compress.models import load, load_model, save_model
from compress.models.encoder_parts import base_of
from compress.models.student.factorised_embeddings import install_factors
from tests.command_process import run_script

POOLED = [name for name, family in FAMILIES.items() if not family.native_head_pooling]
HEADS = {
    "last4": ("classification", {"features": "last4"}),
    "last4-tags": ("token_classification", {"features": "last4"}),
    "bilstm": ("token_classification", {"features": "last4", "head_layers": "bilstm"}),
    "last4-answers": ("question_answering", {"features": "last4"}),
}
MISLEADING = ("You are using a model of type", "MISSING", "newly initialized", "pip install --upgrade", "Traceback")


def blocks(folder):
    return re.findall(r"```python\n(.*?)```", (folder / README_FILE).read_text(encoding="utf-8"), re.DOTALL)


IDS = "torch.tensor([[2, 5, 9, 3]])"


def run(folder, **printed):
    """What the printed blocks compute for four pieces, one after the other in a process without compress at first."""
    lines = ["import sys, torch", "sys.modules['compress'] = None"]
    for name, code in printed.items():
        lines += ["del sys.modules['compress']"] if name == "model" else []
        lines += [code, f"torch.save({name}.eval()(input_ids={IDS})[0], '{name}.pt')"]
    done = run_script("\n".join(lines), folder=folder, has_compress=False)
    assert done.returncode == 0, done.stderr
    assert not [each for each in MISLEADING if each in done.stderr + done.stdout], done.stderr
    return [torch.load(folder / f"{name}.pt") for name in printed]


def check_both(folder):
    """Run the blocks of the README as printed, and compare their outputs with the model's own."""
    whole, encoder = blocks(folder)
    model, ids = load(folder), torch.tensor([[2, 5, 9, 3]])
    of_encoder, of_model = run(folder, encoder=encoder, model=whole)
    with torch.no_grad():
        torch.testing.assert_close(of_model, model(input_ids=ids)[0])
        torch.testing.assert_close(of_encoder, base_of(model)(input_ids=ids)[0])


def task_of(kind, tiny_task):
    labels = () if kind == "question_answering" else tiny_task.labels
    return TaskInfo.model_validate({**dict(tiny_task), "kind": kind, "labels": labels})


@pytest.mark.parametrize(
    "family", [name if name == "bert" else pytest.param(name, marks=pytest.mark.slow) for name in POOLED]
)
def test_a_classifier_of_means(family, tiny_model, tiny_folder, tiny_task, tiny_tokenizer, tmp_path):
    plain = tiny_folder(tiny_model(family, head="Model"), task=None)
    assert not (plain / README_FILE).exists()
    model = load_model(plain, tiny_task, pooling="mean").eval()
    save_model(model, tiny_tokenizer, tmp_path, FolderInfo(step="tests", task=tiny_task))
    assert "its classifier reads the mean of all tokens" in (tmp_path / README_FILE).read_text()
    check_both(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "head"),
    [*((name, "last4") for name in FAMILIES), *(("bert", head) for head in HEADS if head != "last4")],
)
def test_heads_on_several_layers(head, family, tiny_model, tiny_folder, tiny_task, tiny_tokenizer, tmp_path):
    depth = {"n_layers" if family == "distilbert" else "num_hidden_layers": 5}
    kind, settings = HEADS[head]
    task = task_of(kind, tiny_task)
    model = load_model(tiny_folder(tiny_model(family, head="Model", **depth), task=None), task, **settings).eval()
    save_model(model, tiny_tokenizer, tmp_path, FolderInfo(step="tests", task=task))
    check_both(tmp_path)


PRUNABLE = [name for name, family in FAMILIES.items() if family.prunable]


@pytest.mark.parametrize("head", ["ForSequenceClassification", "ForSentenceEmbedding", "Model"])
@pytest.mark.parametrize("family", [n if n == "bert" else pytest.param(n, marks=pytest.mark.slow) for n in PRUNABLE])
def test_a_pruned_model_says_that_its_encoder_needs_compress(family, head, tiny_model, tiny_folder, cut):
    folder = tiny_folder(cut(tiny_model(family, head=head)), task=None)
    text, (whole,) = (folder / README_FILE).read_text(), blocks(folder)
    assert "differ in heads or FFN width" in text
    assert "Its encoder alone needs `compress` too" in text
    with torch.no_grad():
        expected = load(folder)(input_ids=torch.tensor([[2, 5, 9, 3]]))[0]
    torch.testing.assert_close(*run(folder, model=whole), expected)


def test_factorised_word_vectors_are_named(tiny_model, tiny_folder):
    model = tiny_model("bert")
    install_factors(model, 8)
    folder = tiny_folder(model)
    assert "factorised (rank 8)" in (folder / README_FILE).read_text()
    assert len(blocks(folder)) == 1


def test_a_readme_of_others_is_kept_and_one_of_ours_is_renewed(tiny_model, tiny_tokenizer, cut, tmp_path):
    pruned, info = cut(tiny_model("bert")), FolderInfo(step="tests")
    (tmp_path / README_FILE).write_text("mine")
    save_model(pruned, tiny_tokenizer, tmp_path, info)
    assert (tmp_path / README_FILE).read_text() == "mine"
    (tmp_path / README_FILE).unlink()
    save_model(pruned, tiny_tokenizer, tmp_path, info)
    assert AutoConfig.from_pretrained(tmp_path).model_type == "compress-bert"
    assert (tmp_path / README_FILE).exists()
    save_model(tiny_model("bert"), tiny_tokenizer, tmp_path, info)
    assert not (tmp_path / README_FILE).exists()
