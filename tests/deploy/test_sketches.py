"""The pages about phones: their commands, their lists of assets, and the inputs that their code feeds."""

import re
import warnings
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from compress.cli import parsed
from compress.formats import FORMATS
from compress.model_folder.model_info import GOLDEN_FILE, read_info
from compress.pipeline.commands.export_command import chosen_variants
from compress.runtime import open_predictor
from tests.edge_exports import needs_runtime
from tests.variant_builder import build

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
COMMAND = re.compile(r"`compress (export [^`]*)`")
IN_BUNDLE = re.compile(r'forResource: "(\w+)", ofType: "(\w+)"')
"""How Swift names a file of the app."""
FILE = re.compile(
    r"\bmodel\.(?!vocab)\w+|\w+\.safetensors|tokenizer(?:_config)?\.json|(?<!_)config\.json|compress\.json"
)
GIVEN = re.compile(r'"(\w+)"(?: to |: )(?:padded\()?(ids|mask|types)\b')
"""How Kotlin and Swift give an input to the model: `"input_ids" to ids`, `"input_ids": ids`."""
CHOSEN = {
    "onnxruntime": re.compile(r"filterKeys\(session\.inputNames|filter \{ wanted\.contains\(\$0\.key\) \}"),
    "litert": re.compile(r"filterKeys\(interpreter\.getSignatureInputs"),
    "executorch": re.compile(r"names\.map \{"),
}
"""How each keeps the inputs that the model takes, in its order where they have no names."""
ROW = {"ids": [2, 5, 6, 7, 3], "mask": [1, 1, 1, 1, 1], "types": [0, 0, 0, 0, 0]}
"""A text's tokens under the names that the pages have for them."""


def sections(page):
    return (DEPLOY / page).read_text(encoding="utf-8").split("\n## ")


def section(page, title):
    return next(each for each in sections(page) if each.startswith(f"{title}\n"))


def fed(page, title, takes):
    """Return the row's inputs that the code of a section feeds to a model that takes those named ``takes``."""
    code = "\n".join(line for line in section(page, title).splitlines() if line.startswith("       "))
    given = {name: ROW[variable] for name, variable in GIVEN.findall(code)}
    runtime = {"ONNX Runtime": "onnxruntime", "LiteRT": "litert", "ExecuTorch": "executorch"}[title]
    assert CHOSEN[runtime].search(code), "the code does not ask the model what it takes"
    if runtime == "executorch":
        return {name: given[name] for name in takes}
    return {name: values for name, values in given.items() if name in takes}


def predicted(folder):
    """Return what compress computes for the row."""
    names = {"input_ids": "ids", "attention_mask": "mask", "token_type_ids": "types"}
    return open_predictor(folder).predict({name: np.array([ROW[variable]]) for name, variable in names.items()})[
        "logits"
    ]


@pytest.mark.parametrize("page", ["android.md", "ios.md"])
def test_each_command_builds_the_file_that_its_section_names(page):
    commands = {command: each for each in sections(page) for command in COMMAND.findall(each)}
    assert commands
    for command, each in commands.items():
        options = parsed(command.split())
        (variant,) = chosen_variants(options.formats, options.quantize)
        model = FORMATS[variant.format].files[0]
        named = {*FILE.findall(each), *map(".".join, IN_BUNDLE.findall(each))}
        assert model in named
        assert all(name == model or not name.startswith("model.") for name in named)
        assert model in section(page, "Assets")


@pytest.fixture(scope="module")
def phone(tiny_folder, tmp_path_factory):
    """Exports in the ORT format: ``phone("bert")`` takes three inputs, ``phone("distilbert")`` two."""
    made = {}

    def make(family):
        if family not in made:
            graph, made[family] = (tmp_path_factory.mktemp(f"{family}-{form}") for form in ("onnx", "ort"))
            build("onnx-fp32", tiny_folder(family), graph)
            build("ort-fp32", graph, made[family])
        return made[family]

    return make


@pytest.mark.slow
@pytest.mark.parametrize("page", ["android.md", "ios.md"])
def test_an_export_has_every_asset_that_is_listed(page, phone):
    listed = {name for name in FILE.findall(section(page, "Assets")) if not name.startswith("model.")}
    assert {"tokenizer.json", "compress.json", GOLDEN_FILE} <= listed
    assert all((phone("bert") / name).is_file() for name in listed)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["android.md", "ios.md"])
@pytest.mark.parametrize(("family", "count"), [("bert", 3), ("distilbert", 2)])
def test_onnx_runtime_takes_the_inputs_that_the_code_feeds(page, family, count, phone):
    session = onnxruntime.InferenceSession(str(phone(family) / "model.ort"))
    feed = fed(page, "ONNX Runtime", [each.name for each in session.get_inputs()])
    assert len(feed) == count
    logits = session.run(["logits"], {name: np.array([values], np.int64) for name, values in feed.items()})[0]
    np.testing.assert_allclose(logits, predicted(phone(family)), atol=1e-6)


def test_a_missing_input_would_be_found(phone):
    session = onnxruntime.InferenceSession(str(phone("bert") / "model.ort"))
    feed = fed("android.md", "ONNX Runtime", ["input_ids", "attention_mask"])
    with pytest.raises(ValueError, match="Required inputs"):
        session.run(None, {name: np.array([values], np.int64) for name, values in feed.items()})


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_litert_takes_the_inputs_that_the_code_feeds(family, tiny_folder, tmp_path):
    needs_runtime("litert-fp32")
    from ai_edge_litert.interpreter import Interpreter

    build("litert-fp32", tiny_folder(family), tmp_path)
    model = Interpreter(str(tmp_path / "model.tflite"))
    key = "length_16"
    feed = fed("android.md", "LiteRT", model.get_signature_list()[key]["inputs"])
    padded = {name: np.array([values + [0] * (16 - len(values))], np.int32) for name, values in feed.items()}
    logits = model.get_signature_runner(key)(**padded)["logits"]
    np.testing.assert_allclose(logits, predicted(tmp_path), atol=1e-5)


@pytest.mark.parametrize("page", ["android.md", "ios.md"])
@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_executorch_takes_the_inputs_that_the_code_feeds(page, family, tiny_folder, tmp_path):
    needs_runtime("executorch-fp32")
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the library's own imports
        from executorch.runtime import Runtime

    build("executorch-fp32", tiny_folder(family), tmp_path)
    feed = fed(page, "ExecuTorch", read_info(tmp_path).inputs)
    method = Runtime.get().load_program(str(tmp_path / "model.pte")).load_method("forward")
    logits = method.execute([torch.tensor([values]) for values in feed.values()])[0]
    np.testing.assert_allclose(logits.numpy(), predicted(tmp_path), atol=1e-5)
