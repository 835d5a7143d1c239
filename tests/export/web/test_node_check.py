"""What Node.js finds in a web folder: all kinds of tokenizers and tasks, and folders that a browser refuses."""

import json
import shutil

import numpy as np
import pytest

from compress.errors import CompressError, ModelError
from compress.export.comparison import golden_inputs as golden_inputs_module
from compress.export.comparison.golden_inputs import golden_inputs
from compress.export.web import node_check
from compress.export.web.node_check import check_in_node, run_in_node
from compress.model_folder.model_info import read_info
from compress.runtime import open_predictor
from compress.runtime.text_model import TextModel
from tests.variant_builder import build

pytestmark = pytest.mark.slow
CORPUS = ["the good film was slow", "a bad plot and great fun", "it's caf\u00e9 time, isn't it?", "one two three"] * 4


@pytest.fixture
def damaged(web_folder, tmp_path):
    """A copy of a web folder, to be damaged."""
    return shutil.copytree(web_folder, tmp_path / "damaged")


def check(folder):
    return check_in_node(folder, read_info(folder).task, open_predictor(folder), is_rounded=True)


def byte_level_bpe():
    from tokenizers import ByteLevelBPETokenizer, processors

    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(CORPUS, vocab_size=300, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokenizer = trained._tokenizer
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return tokenizer


def unigram():
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("  ", " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.UnigramTrainer(vocab_size=60, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer


@pytest.mark.parametrize("make", [byte_level_bpe, unigram])
def test_other_tokenizers_give_the_same_tokens(make, assets, web_source, film_task, tmp_path):
    names = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
    build("web-int8", web_source(film_task, tokenizer=make(), names=names, family="roberta"), tmp_path)
    parity = check(tmp_path)
    assert parity.other_tokens == ()
    assert parity.difference < 0.01


TASKS = {
    "pairs": ({"text": ("first", "second")}, {}),
    "windows": ({"long": "mean", "overlap": 8, "max_windows": 3}, {}),
    "windows of pairs": ({"text": ("first", "second"), "long": "max", "overlap": 8, "max_windows": 3}, {}),
    "multi_label": ({"labels": ("a", "b", "c"), "metric": "micro_f1"}, {"labels": ("a", "b", "c")}),
    "regression": ({"labels": (), "metric": "pearson"}, {"labels": ("score",)}),
    "multiple_choice": ({"text": ("question", "choices"), "labels": ()}, {"labels": ("score",)}),
    "ranking": ({"text": ("query", "candidates"), "labels": (), "metric": "ndcg@10"}, {"labels": ("score",)}),
    "similarity": (
        {"text": ("one", "other"), "labels": (), "metric": "pearson"},
        {"head": "ForSentenceEmbedding", "pooling": "mean"},
    ),
    "token_classification": (
        {"labels": ("O", "B-x", "I-x"), "metric": "f1", "overlap": 8, "max_windows": 3},
        {"labels": ("O", "B-x", "I-x"), "head": "ForTokenClassification"},
    ),
    "question_answering": (
        {"text": ("question", "context"), "labels": (), "metric": "f1", "overlap": 8, "max_windows": 3},
        {"head": "ForQuestionAnswering"},
    ),
}
"""By name or kind: how the task differs from one of single texts, and how the model does."""


@pytest.mark.parametrize("name", TASKS)
def test_every_kind_of_task_has_the_same_tokens_outputs_and_predictions(name, assets, web_source, film_task, tmp_path):
    task, model = TASKS[name]
    kind = "classification" if "pairs" in name or "windows" in name else name
    task = film_task.model_copy(update={"kind": kind, **task})
    build("web-fp32", web_source(task, variant="onnx-fp32", **model), tmp_path)
    assert (tmp_path / "onnx" / "model.onnx").is_file()
    parity = check(tmp_path)
    assert parity.other_tokens == ()
    assert parity.difference < 1e-4
    inputs = golden_inputs(task)["sentences"]
    inputs = [*inputs, " " if isinstance(inputs[0], str) else (" ",) * len(inputs[0])]
    texts = [[given] if isinstance(given, str) else list(given) for given in inputs]
    results = run_in_node(tmp_path, texts)
    predicted = TextModel.open(tmp_path).predict(inputs, batch=1)
    assert predicted[-1]["reason"] == "no text"
    for expected, result in zip(predicted, results, strict=True):
        assert_same(expected, result["prediction"])


@pytest.mark.parametrize("make", [byte_level_bpe, unigram])
def test_answers_begin_and_end_with_no_token_of_space_alone(make, assets, web_source, film_task, tmp_path):
    changes, model = TASKS["question_answering"]
    task = film_task.model_copy(update={"kind": "question_answering", **changes})
    options = {"names": ("<pad>", "<unk>", "<s>", "</s>", "<mask>"), "family": "roberta", **model}
    build("web-fp32", web_source(task, variant="onnx-fp32", tokenizer=make(), **options), tmp_path)
    inputs = [("who?", f"quick {each} xyz") for each in ("zoo", "jazz 7", "big kiwi queue")]
    results = run_in_node(tmp_path, [list(given) for given in inputs])
    for expected, result in zip(TextModel.open(tmp_path).predict(inputs, batch=1), results, strict=True):
        assert_same(expected, result["prediction"])


def assert_same(expected, prediction):
    """Every value that `compress predict` returns is the page's too; answers on the page are whole words."""
    for name, value in expected.items():
        if name in ("start", "end", "entities"):
            continue
        if name == "answer":
            assert (value is None) == (prediction["answer"] is None)
            assert value is None or prediction["answer"] in value or value.strip(".,?") in prediction["answer"]
        elif isinstance(value, (float, dict)):
            assert prediction[name] == pytest.approx(value, abs=1e-4)
        elif isinstance(value, list) and value and isinstance(value[0], float):
            np.testing.assert_allclose(prediction[name], value, atol=1e-4)
        else:
            assert prediction[name] == value


def test_a_tokenizer_that_javascript_cannot_read(damaged):
    path = damaged / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["normalizer"] = {"type": "Nmt"}
    path.write_text(json.dumps(tokenizer))
    with pytest.raises(ModelError, match=r"cannot run in a browser: tokenizer\.json cannot be read .*Nmt"):
        check(damaged)


def test_an_operator_that_the_browser_lacks(damaged):
    import onnx

    graph = damaged / "onnx" / "model_quantized.onnx"
    proto = onnx.load(graph)
    node = next(node for node in proto.graph.node if node.op_type == "Gelu")
    node.op_type, node.domain = "Unheard", "com.microsoft"
    onnx.save(proto, graph)
    with pytest.raises(ModelError, match=r"cannot run onnx/model_quantized\.onnx: .*Unheard"):
        run_in_node(damaged, [])


def test_other_outputs_are_refused(damaged, web_source, film_task):
    other = open_predictor(web_source(film_task, variant="onnx-fp32", initializer_range=0.5))
    with pytest.raises(ModelError, match="has other outputs in WebAssembly than in Python"):
        check_in_node(damaged, film_task, other, is_rounded=True)


def test_other_tokens_for_sentences_are_refused(damaged):
    path = damaged / "page.json"
    settings = json.loads(path.read_text())
    settings["templates"]["single"].append({"id": 4, "type": 0})
    path.write_text(json.dumps(settings))
    with pytest.raises(ModelError, match=r"the page would read .* as other tokens than Python does"):
        check(damaged)


def replace_in(path, old, new):
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


FAILING = 'if (text.includes("WORD")) throw new Error("no such word");'


def test_unusual_texts_that_javascript_cannot_read_are_listed_with_the_reason(damaged):
    replace_in(damaged / "encode.js", "#encode(text) {", "#encode(text) {" + FAILING.replace("WORD", "&amp;"))
    parity = check(damaged)
    assert parity.other_tokens == ()
    assert [reason for _, reason in parity.unread] == ["no such word"]
    assert f"{parity.inputs - 1} inputs" in str(parity)


def test_sentences_that_javascript_cannot_read_are_refused(damaged):
    replace_in(damaged / "encode.js", "#encode(text) {", "#encode(text) {" + FAILING.replace("WORD", "not bad"))
    with pytest.raises(ModelError, match="the page cannot read 'not bad': no such word"):
        check(damaged)


def test_a_model_that_fails_on_one_text_is_refused_with_the_reason(damaged):
    start = "async run({ tokens }) {"
    replace_in(damaged / "model.js", start, f'{start}if (tokens.length === 3) throw new Error("out of memory");')
    with pytest.raises(ModelError, match=r"the page cannot predict for '.': out of memory"):
        check(damaged)


def test_rows_are_no_longer_than_those_of_other_formats(damaged, film_task, monkeypatch):
    monkeypatch.setattr(golden_inputs_module, "MAX_LENGTH", 16)
    seen = []
    monkeypatch.setattr(node_check, "run_in_node", lambda *given: seen.extend(run_in_node(*given)) or seen)
    assert check(damaged).other_tokens == ()
    assert max(len(ids) for result in seen for ids in result["ids"]) == 16


def test_no_node(damaged, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompressError, match="node is needed to check"):
        run_in_node(damaged, [])


def test_a_script_that_fails(damaged):
    (damaged / "encode.js").write_text("this is no script")
    with pytest.raises(CompressError, match="node could not run the page's scripts: SyntaxError"):
        run_in_node(damaged, [])
