"""The runners in README.md of exported folders, run as they are printed; and the golden file beside them."""

import json
import shutil

import pytest

import compress
from compress.data.tokenizer import TextTokenizer
from compress.errors import ModelError
from compress.export.comparison.golden_inputs import LARGEST, read_golden
from compress.export.comparison.parity import compare_groups, total
from compress.export.comparison.parity_check import LIMITS
from compress.export.runners import MAX_LINES, RUNNERS, export_readme, runner_code
from compress.model_folder.model_info import FolderInfo, TaskInfo, read_info, write_info
from compress.models.heads import HEADS
from compress.runtime import open_predictor
from compress.tasks import KINDS
from compress.tasks.kind import OUTPUTS
from compress.variants import VARIANTS
from tests.run_readme import TEXTS, agrees, run_readme, typed_and_given
from tests.variant_builder import build

LABELS = {
    "classification": ("bad", "good"),
    "multi_label": ("bad", "good", "dull"),
    "token_classification": ("O", "B-x", "I-x"),
}
SLOW = set(KINDS) - {"classification", "token_classification", "question_answering"}


def task_of(kind, **settings):
    columns = tuple(KINDS[kind].defaults.get("text", ["text"]))
    facts = {"name": "films", "kind": kind, "text": columns, "metric": "x", "max_length": 32, "max_answer": 4}
    return TaskInfo(**{**facts, "labels": LABELS.get(kind, ()), **settings})


@pytest.fixture(scope="module")
def exports(tiny_model, tiny_folder, tmp_path_factory):
    """Makes the ONNX export of a tiny model of a kind, once."""
    made = {}

    def make(kind, task=None):
        if (kind, task) not in made:
            info = task or task_of(kind)
            labels = tuple(map(str, range(KINDS[kind].output_count(info))))
            model = tiny_model("bert", labels=labels, head=HEADS[KINDS[kind].head].suffix, sentence_size=8)
            folder = tmp_path_factory.mktemp(kind)
            build("onnx-fp32", tiny_folder(model, info), folder)
            made[kind, task] = folder
        return made[kind, task]

    return make


@pytest.mark.parametrize("kind", [pytest.param(k, marks=pytest.mark.slow) if k in SLOW else k for k in KINDS])
def test_the_script_of_every_kind_decides_as_compress_does(kind, exports):
    folder = exports(kind)
    typed, given = typed_and_given(kind, read_info(folder).task)
    agrees(kind, run_readme(folder, *typed), compress.open(folder).predict(given, batch=1))
    assert KINDS[kind].script(read_info(folder).task) != OUTPUTS


@pytest.mark.parametrize("threshold", [-100.0, 100.0])
def test_a_question_may_have_no_answer(threshold, exports, tmp_path):
    folder = shutil.copytree(exports("question_answering"), tmp_path / "copy")
    info = read_info(folder)
    info = info.model_copy(update={"task": info.task.model_copy(update={"threshold": threshold})})
    write_info(folder, info)
    (folder / "README.md").write_text(export_readme(info), encoding="utf-8")
    lines = run_readme(folder, *TEXTS[:2])
    assert (lines == ["no answer"]) == (threshold < 0)
    agrees("question_answering", lines, compress.open(folder).predict([TEXTS[:2]]))


def test_a_default_prompt_is_before_each_text(exports, tmp_path):
    source = shutil.copytree(exports("similarity"), tmp_path / "source")
    about = source / "config_sentence_transformers.json"
    content = json.loads(about.read_text()) | {"prompts": {"query": 'it "is" '}, "default_prompt_name": "query"}
    about.write_text(json.dumps(content))
    made = tmp_path / "made"
    made.mkdir()
    build("onnx-int8", source, made)
    typed, given = typed_and_given("similarity", read_info(source).task)
    assert '"it \\"is\\" " + text' in (tmp_path / "made" / "README.md").read_text()
    agrees(
        "similarity", run_readme(tmp_path / "made", *typed), compress.open(tmp_path / "made").predict(given, batch=1)
    )


@pytest.mark.slow
def test_a_classifier_of_pairs_reads_two_texts_at_a_time(exports):
    task = task_of("classification", text=("one", "other"))
    folder = exports("classification", task)
    typed, given = typed_and_given("classification", task)
    agrees("classification", run_readme(folder, *typed), compress.open(folder).predict(given, batch=1))


@pytest.mark.parametrize("name", ["onnx-int8", "ort-fp32", "openvino-fp32"])
def test_other_variants_have_their_own_script(name, exports, tmp_path):
    if VARIANTS[name].info.format == "openvino":
        pytest.importorskip("openvino", reason="openvino is not installed")
    source = exports("classification")
    build(name, source, tmp_path)
    agrees("classification", run_readme(tmp_path, *TEXTS), compress.open(tmp_path).predict(TEXTS, batch=1))
    assert (tmp_path / "golden.safetensors").read_bytes() == (source / "golden.safetensors").read_bytes()


def test_the_longest_scripts_are_short(exports):
    variant = VARIANTS["onnx-int8"].info
    guarded = variant.model_copy(update={"session": {"guard_overflow": True}})
    inputs = ("input_ids", "attention_mask", "token_type_ids")
    for each in ({"format": name} for name in RUNNERS):
        for kind in KINDS:
            info = FolderInfo(
                step="e", task=task_of(kind, threshold=0.5), inputs=inputs, variant=guarded.model_copy(update=each)
            )
            code = runner_code(info, "model")
            assert len(code.splitlines()) <= MAX_LINES, code
            compile(code, "run.py", "exec")


def test_without_a_task_the_outputs_are_printed(exports, tmp_path):
    folder = shutil.copytree(exports("classification"), tmp_path / "copy")
    info = read_info(folder).model_copy(update={"task": None})
    write_info(folder, info)
    (folder / "README.md").write_text(export_readme(info), encoding="utf-8")
    assert "array" in run_readme(folder, "a good film")[0]


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in SLOW])
def test_golden_outputs_are_those_of_pytorch_and_the_export_repeats_them(kind, exports):
    folder = exports(kind)
    task, tokens = read_info(folder).task, TextTokenizer.load(folder)
    golden, predictor = read_golden(folder), open_predictor(folder)
    assert set(golden) >= {"sentences", "short", "unusual_characters"}
    assert (folder / "golden.safetensors").stat().st_size < 1.1 * LARGEST
    assert b"outputs_of" in (folder / "golden.safetensors").read_bytes()[:2000]
    assert tokens.pad_id == 0

    class Recorded:
        inputs = predictor.inputs

        def __init__(self, outputs):
            self.outputs = outputs

        def predict(self, arrays):
            return self.outputs

    for batch in golden.values():
        assert set(batch.inputs) == set(predictor.inputs)
        parity = compare_groups(
            Recorded(batch.outputs), predictor, {"all": {len(batch.inputs["input_ids"]): [batch.inputs]}}, task
        )
        assert total(parity.values()).is_within(LIMITS["fp32"].difference)


def test_damaged_golden_files_are_one_message(tmp_path):
    with pytest.raises(ModelError, match="has no golden"):
        read_golden(tmp_path)
    (tmp_path / "golden.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")
    assert read_golden(tmp_path) == {}
    (tmp_path / "golden.safetensors").write_bytes(b"no tensors")
    with pytest.raises(ModelError, match="cannot be read"):
        read_golden(tmp_path)


@pytest.mark.parametrize(
    ("name", "scored", "says"),
    [
        ("onnx-int8", None, "Run each text alone, or in the batches in which a run scored it"),
        ("onnx-int8", 1, "It was scored one text at a time: run it so"),
        ("ort-int8", 8, "It was scored in batches of 8: run it so"),
        ("onnx-fp32", None, None),
        ("onnx-int8-minmax", None, None),
    ],
)
def test_the_readme_says_in_which_batches_a_model_runs(name, scored, says):
    variant = VARIANTS[name].info.model_copy(update={"scored_batch": scored})
    text = export_readme(FolderInfo(step="export", variant=variant))
    assert ("**Batches.**" in text) == (says is not None)
    assert says is None or says in text
