"""optimum's runtime classes open our exports unchanged, in an environment of their own: they need transformers 4."""

import json
import subprocess
from itertools import product

import numpy as np
import pytest

from benchmarks.distill_throughput.environments import BASE, Environment, NotInstalled
from benchmarks.int8.int8_files import TOOLS
from compress.data.tokenizer import TextTokenizer
from compress.model_info import TaskInfo
from compress.models.heads import HEADS
from compress.models.nonuniform_models import with_head_pooling
from compress.prune.surgery import remove_units
from compress.runtime import open_predictor
from tests.export import optimum_runtimes_job
from tests.quantize.sample_rows import sample_batches
from tests.variant_builder import build

pytestmark = pytest.mark.slow
ENVIRONMENT = Environment(
    "optimum-runtimes", (*BASE, *TOOLS, "openvino==2026.4.1", "optimum-onnx==0.1.0", "optimum-intel==1.27.0")
)
TEXTS = ["a good film", "bad plot", "not the great film but it is good", "dull bit of it"]
TASK = TaskInfo(name="t", kind="classification", text=("text",), labels=("0", "1"), metric="accuracy", max_length=32)

CLASSES = {
    "classification": "SequenceClassification",
    "token_classification": "TokenClassification",
    "question_answering": "QuestionAnswering",
    "multiple_choice": "SequenceClassification",  # its texts with one choice each are the rows
    "similarity": "CustomTasks",  # the graph's output is the text's embedding, not its tokens' states
    "encoder": "FeatureExtraction",
}
"""By task kind, the end of the name of the class that opens its exports."""

VARIANTS = ("onnx-fp32", "onnx-int8", "openvino-fp32")
CASES = [*product(CLASSES, VARIANTS), ("classification", "openvino-int8")]


@pytest.fixture(scope="module")
def models(tiny_folder, tiny_model):
    """A folder of each kind; the classifier is pruned, and its head reads the mean of all tokens."""
    config = with_head_pooling(tiny_model("bert").config, "mean")
    pooled = HEADS["sequence-classification"].model_class(type(config))(config).eval()
    pruned = remove_units(pooled, [[0, 2], [1]], [list(range(48)), list(range(16, 32))])
    choices, tags = TASK.model_copy(update={"text": ("one", "other"), "labels": ()}), ("O", "B-x", "I-x")
    return {
        "classification": tiny_folder(pruned, TASK),
        "token_classification": tiny_folder(
            tiny_model("distilbert", labels=tags, head="ForTokenClassification"),
            TASK.model_copy(update={"kind": "token_classification", "labels": tags}),
        ),
        "question_answering": tiny_folder(
            tiny_model("roberta", labels=("start", "end"), head="ForQuestionAnswering"),
            choices.model_copy(update={"kind": "question_answering"}),
        ),
        "multiple_choice": tiny_folder(
            tiny_model("electra", labels=("score",)), choices.model_copy(update={"kind": "multiple_choice"})
        ),
        "similarity": tiny_folder(
            tiny_model("bert", head="ForSentenceEmbedding"), choices.model_copy(update={"kind": "similarity"})
        ),
        "encoder": tiny_folder(tiny_model("modernbert", head="Model"), None),
    }


@pytest.fixture(scope="module")
def exports(models, tmp_path_factory):
    """The folder of each kind and variant; all are made of the ONNX export, which comes first."""
    folders = {}
    for kind, variant in CASES:
        work = tmp_path_factory.mktemp("export")
        build(variant, folders.get((kind, "onnx-fp32"), models[kind]), work, calibration=sample_batches)
        folders[kind, variant] = work
    return folders


@pytest.fixture(scope="module")
def answers(exports, tmp_path_factory):
    """What optimum's classes answer, by kind and variant."""
    try:
        ENVIRONMENT.install()
    except NotInstalled as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("job")
    prefixes = {"onnx": "ORTModelFor", "openvino": "OVModelFor"}
    jobs = [
        (str(path), prefixes[variant.partition("-")[0]] + CLASSES[kind], TEXTS)
        for (kind, variant), path in exports.items()
    ]
    (folder / "job.json").write_text(json.dumps(jobs), encoding="utf-8")
    command = [str(ENVIRONMENT.python), optimum_runtimes_job.__file__, str(folder / "job.json"), str(folder / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return dict(zip(exports, json.loads((folder / "out").read_bytes()), strict=True))


@pytest.mark.parametrize(("kind", "variant"), CASES)
def test_an_export_answers_as_it_does_here(kind, variant, exports, answers):
    folder = exports[kind, variant]
    tokenizer, predictor = TextTokenizer.load(folder), open_predictor(folder)
    for text, theirs in zip(TEXTS, answers[kind, variant], strict=True):
        ids = np.array([tokenizer(text, None, 32).input_ids])
        assert theirs["tokens"] == ids[0].tolist()
        arrays = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        ours = predictor.predict(arrays)
        assert theirs["outputs"].keys() <= ours.keys()
        for name, values in theirs["outputs"].items():
            np.testing.assert_allclose(values, ours[name], atol=1e-4 * max(1.0, np.abs(ours[name]).max()))
            np.testing.assert_array_equal(np.argmax(values, axis=-1), ours[name].argmax(axis=-1))
