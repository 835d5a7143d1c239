"""`compress export`, and `--check` on good exports and on everything that is none."""

import json
import shutil
import sys
import tempfile

import onnx
import pytest

from compress.cli import main
from compress.console import Console
from compress.errors import ModelError
from compress.export.comparison.parity_check import LIMITS, ParityLimit
from compress.formats import EXPORTS
from compress.model_folder.model_info import read_info, write_info
from compress.models.tiny import write_tiny_model
from compress.pipeline.commands import export_command
from compress.quantize.dynamic import quantize_int8_dynamic_model
from compress.variants import VARIANTS
from tests.variant_builder import add_to_logits, build


@pytest.fixture(scope="module")
def source(tiny_folder):
    return tiny_folder("bert")


@pytest.fixture(scope="module")
def exported(source, tmp_path_factory):
    work = tmp_path_factory.mktemp("exported")
    build("onnx-fp32", source, work)
    return work


@pytest.fixture
def broken(exported, tmp_path):
    """A copy of the export, to be broken."""
    return shutil.copytree(exported, tmp_path / "broken")


def check(model, folder, *more):
    return main(["export", str(model), str(folder), "--check", *more])


def test_a_check_shows_each_group(source, exported, capsys):
    assert check(source, exported) == 0
    output = capsys.readouterr()
    assert "unusual characters" in output.out
    assert "repeats PyTorch: outputs within" in output.err


def test_a_miss_is_shown_and_is_exit_code_3(source, broken, capsys):
    onnx.save(add_to_logits(onnx.load(broken / "model.onnx"), [9.0, -9.0]), broken / "model.onnx")
    assert check(source, broken, "--format", "json") == 3
    output = capsys.readouterr()
    result = json.loads(output.out)
    assert result["variant"] == "onnx-fp32"
    assert result["limit"]["agreement"] == 1
    assert len(result["misses"]) == 2
    assert result["inputs"]["all"]["max_abs_difference"] == pytest.approx(9, abs=1e-3)
    assert json.loads(output.err)["error"]["exit_code"] == 3


def test_what_a_check_ignores_is_refused(source, exported, capsys):
    assert check(source, exported, "--as", "onnx") == 2
    assert "options that make one have no effect" in capsys.readouterr().err


def assert_one_message(capsys, expected):
    output = capsys.readouterr()
    assert output.out == ""
    assert expected in output.err
    assert "Traceback" not in output.err
    assert "unexpected failure" not in output.err
    assert len([line for line in output.err.splitlines() if line.startswith("error: ")]) == 1


def without_info(folder):
    (folder / "compress.json").unlink()


def with_broken_info(folder):
    (folder / "compress.json").write_text('{"step": ')


def truncated(folder):
    content = (folder / "model.onnx").read_bytes()
    (folder / "model.onnx").write_bytes(content[: len(content) // 2])


def no_onnx(folder):
    (folder / "model.onnx").write_text("<html>404</html>")


def empty(folder):
    (folder / "model.onnx").write_bytes(b"")


def with_unknown_operator(folder):
    proto = onnx.load(folder / "model.onnx")
    node = next(node for node in proto.graph.node if node.op_type == "Gelu")
    node.op_type, node.domain = "Unheard", "org.example"
    proto.opset_import.append(onnx.helper.make_opsetid("org.example", 1))
    onnx.save(proto, folder / "model.onnx")


def without_graph(folder):
    (folder / "model.onnx").unlink()


def without_tokenizer(folder):
    (folder / "tokenizer.json").unlink()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (without_info, "has no compress.json"),
        (with_broken_info, "compress.json cannot be read"),
        (truncated, "it is empty, truncated, or not a model"),
        (no_onnx, "it is empty, truncated, or not a model"),
        (empty, "it is empty, truncated, or not a model"),
        (with_unknown_operator, "Unheard"),
        (without_graph, "has no model.onnx"),
        (without_tokenizer, "has no tokenizer.json"),
    ],
)
def test_a_broken_export_is_one_message(change, expected, source, broken, capsys):
    change(broken)
    assert check(source, broken) == 1
    assert_one_message(capsys, expected)


def test_a_folder_that_is_no_export_is_one_message(source, tmp_path, capsys):
    assert check(source, tmp_path / "none") == 1
    assert_one_message(capsys, "there is no model folder at")
    assert check(source, source) == 1
    assert_one_message(capsys, "is a model folder; expected one that an export or a quantization wrote")


def test_the_model_must_be_one_of_pytorch(exported, capsys):
    assert check(exported, exported) == 2
    assert_one_message(capsys, "is an export itself (onnx)")


def test_exports_of_other_models_are_one_message(exported, tiny_folder, tiny_model, tmp_path, capsys):
    assert check(tiny_folder(tiny_model("bert", labels=("a", "b", "c"))), exported) == 1
    assert_one_message(capsys, "expected logits of the shape (1, 3); got (1, 2)")
    assert check(tiny_folder(tiny_model("bert", head="Model"), None), exported) == 1
    assert_one_message(capsys, "expected the outputs last_hidden_state, pooler_output; got logits")
    assert check(tiny_folder("distilbert"), exported) == 1
    assert_one_message(capsys, "reads attention_mask, input_ids, token_type_ids")
    write_tiny_model(tmp_path / "other", "bert")
    assert check(tmp_path / "other", exported) == 1
    assert_one_message(capsys, "their tokenizers differ")


def test_a_missing_extra_is_named(source, broken, monkeypatch, capsys):
    info = read_info(broken)
    variant = info.variant.model_copy(update={"format": "openvino", "runtime": "openvino", "libraries": {}})
    write_info(broken, info.model_copy(update={"variant": variant}))
    for suffix in ("xml", "bin"):
        (broken / f"openvino_model.{suffix}").write_text("")
    monkeypatch.setitem(sys.modules, "openvino", None)
    assert check(source, broken) == 1
    assert_one_message(capsys, "pip install 'compress-encoders[openvino]'")


def test_an_export_of_a_run_can_be_checked(finished_run):
    steps = finished_run.parent / "runs" / ".steps"
    (model,) = steps.glob("finetune-*")
    (exported,), (tuned,) = (steps.glob(f"{step}-teacher-onnx-fp32-*") for step in ("export", "tune"))
    assert check(model, exported) == check(model, tuned) == 0


@pytest.mark.slow
def test_static_methods_read_calibration_texts(source, tmp_path, capsys):
    texts = tmp_path / "texts.txt"
    texts.write_text("a good film\nthe plot is very bad\n\nso dull\n", encoding="utf-8")
    out = tmp_path / "static"
    assert main(["export", str(source), str(out), "--quantize", "static-minmax", "--calibration", str(texts)]) == 0
    assert read_info(out).variant.method == "static-minmax"


@pytest.mark.slow
def test_calibration_texts_of_an_encoder_are_no_longer_than_its_positions(tiny_model, tiny_folder, tmp_path):
    encoder = tiny_folder(tiny_model("bert", head="Model"), None)
    texts, out = tmp_path / "texts.txt", tmp_path / "static"
    texts.write_text("a good film\n" + "the plot is very bad " * 50, encoding="utf-8")
    words = ["export", str(encoder), str(out), "--quantize", "static-minmax", "--calibration", str(texts)]
    assert main(words) in (0, 3)  # a random model may lose more than is allowed
    assert read_info(out).variant.method == "static-minmax"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (None, "got 0, expected at least 2"),
        ("a good film\n", "got 1, expected at least 2"),
        ("\n", "got 0, expected at least 2"),
    ],
)
def test_too_few_calibration_texts(source, tmp_path, capsys, lines, message):
    words = ["export", str(source), str(tmp_path / "static"), "--quantize", "static-minmax"]
    if lines is not None:
        (tmp_path / "texts.txt").write_text(lines, encoding="utf-8")
        words += ["--calibration", str(tmp_path / "texts.txt")]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "--calibration FILE" in error
    assert not (tmp_path / "static").exists()


def test_a_calibration_line_that_the_task_does_not_read_is_named(tiny_model, tiny_folder, tiny_task, tmp_path, capsys):
    pairs = tiny_task.model_copy(update={"text": ("question", "answer")})
    (tmp_path / "texts.txt").write_text("a film\ta plot\nno tab here\n", encoding="utf-8")
    words = ["export", str(tiny_folder("bert", pairs)), str(tmp_path / "out"), "--quantize", "static-minmax"]
    assert main([*words, "--calibration", str(tmp_path / "texts.txt")]) == 2
    assert "texts.txt, line 2: " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_format_is_that_of_the_method(source, tmp_path, capsys):
    assert main(["export", str(source), str(tmp_path / "out"), "--as", "onnx", "--quantize", "nncf"]) == 2
    assert "nncf makes openvino files, not onnx; leave --format out" in capsys.readouterr().err
    assert main(["export", str(source), str(tmp_path / "out"), "--quantize", "nncf"]) == 2
    assert "takes its ranges from sample rows" in capsys.readouterr().err


def test_calibration_that_cannot_be_used(source, tmp_path, capsys):
    words = ["export", str(source), str(tmp_path / "out"), "--calibration", str(tmp_path / "texts.txt")]
    assert main(words) == 2
    assert "--calibration has an effect on INT8 only" in capsys.readouterr().err
    assert main([*words, "--quantize", "static-minmax"]) == 1
    assert "cannot be read: No such file" in capsys.readouterr().err


def export(model, to, *more):
    return main(["export", str(model), str(to), *more])


@pytest.mark.slow
def test_a_format_is_named_beside_the_format_of_the_output(source, tmp_path, capsys):
    assert export(source, tmp_path / "out", "--format", "ort", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["variant"]["name"] == "ort-fp32"
    assert read_info(tmp_path / "out").variant.name == "ort-fp32"


@pytest.mark.slow
def test_int8_of_a_format_that_is_converted(source, tmp_path):
    assert export(source, tmp_path / "out", "--as", "ort", "--quantize", "int8") == 0
    assert read_info(tmp_path / "out").variant.name == "ort-int8"


@pytest.mark.slow
def test_several_formats_have_a_folder_each_and_a_failing_one_stops_no_other(source, tmp_path, monkeypatch, capsys):
    def fail(context):
        raise ModelError("the graph has an operator that the format lacks.")

    monkeypatch.setattr("compress.export.builders.openvino.export_openvino", fail)
    names = [word for name in ("onnx", "openvino", "ort") for word in ("--format", name)]
    assert export(source, tmp_path / "out", *names, "--format", "json") == 1
    output = capsys.readouterr()
    outcomes = {row["variant"]: row["outcome"] for row in json.loads(output.out)}
    assert outcomes["openvino-fp32"] == "failed: the graph has an operator that the format lacks."
    assert outcomes["onnx-fp32"] == outcomes["ort-fp32"] == "done"
    assert "1 of 3 formats failed: openvino-fp32" in output.err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["onnx", "ort"]


@pytest.fixture
def missing_extras(monkeypatch):
    """Every format except onnx lacks a library."""
    missing = {form: {"absent_library": form} for form in EXPORTS if form != "onnx"}
    monkeypatch.setattr(export_command, "missing_extras", lambda form: missing.get(form, {}))


@pytest.mark.slow
def test_a_named_format_whose_extra_is_missing_has_failed(source, tmp_path, missing_extras, capsys):
    assert export(source, tmp_path / "out", "--format", "onnx", "--format", "openvino-fp16") == 1
    output = capsys.readouterr()
    assert "failed: not installed: absent_library; pip install 'compress-encoders[openvino]'" in output.out
    assert "1 of 2 formats failed: openvino-fp16" in output.err


@pytest.mark.slow
def test_of_all_formats_those_whose_extra_is_missing_are_listed(source, tmp_path, missing_extras, capsys):
    assert export(source, tmp_path / "out", "--format", "all", "--format", "json") == 0
    outcomes = {row["format"]: row["outcome"] for row in json.loads(capsys.readouterr().out)}
    assert outcomes.pop("onnx") == "done"
    assert outcomes.keys() == EXPORTS.keys() - {"onnx"}
    assert outcomes["ort"] == "not installed: absent_library; pip install 'compress-encoders[ort]'"
    assert export(source, tmp_path / "other", "--format", "all", "--format", "ort", "--format", "quiet") == 1


@pytest.mark.slow
def test_of_all_formats_those_that_the_model_cannot_have_are_listed(source, tmp_path, monkeypatch, capsys):
    missing = {form: {"absent_library": form} for form in EXPORTS if form not in ("onnx", "numpy")}
    monkeypatch.setattr(export_command, "missing_extras", lambda form: missing.get(form, {}))
    assert export(source, tmp_path / "out", "--format", "all", "--format", "json") == 0
    outcomes = {row["format"]: row["outcome"] for row in json.loads(capsys.readouterr().out)}
    assert (outcomes["onnx"], outcomes["numpy"]) == ("done", "numpy is for students without attention (static, conv)")
    assert export(source, tmp_path / "other", "--format", "onnx", "--format", "numpy") == 1
    assert "failed: numpy is for students without attention" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("config", "form", "reason"),
    [
        ({"model_type": "bert"}, "numpy-fp32", "numpy is for students without attention (static, conv)"),
        ({"model_type": "compress-static"}, "numpy-fp32", None),
        ({"model_type": "compress-bert", "head_layers": "bilstm"}, "executorch-fp32", "executorch has no LSTM"),
        ({"model_type": "compress-bert", "head_layers": "bilstm"}, "onnx-fp32", None),
        ({"model_type": "bert"}, "web-int8", "web needs a model that states which task"),
    ],
)
def test_why_a_model_cannot_have_a_format(config, form, reason, tmp_path):
    """An export has a config for other tools, which says nothing of the model."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = export_command.VariantBuilder(tmp_path, tmp_path, Console("quiet"), (), None).why_unfit(VARIANTS[form])
    assert (found or "").startswith(reason or "")
    assert (found is None) == (reason is None)


def test_what_fails_for_one_format_is_not_tried_again_for_another(source, tmp_path, monkeypatch, capsys):
    tried = []

    def fail(context):
        tried.append(context.variant.name)
        raise ModelError("the graph has an operator that the exporter lacks.")

    monkeypatch.setattr("compress.export.builders.onnx.export_onnx", fail)
    assert export(source, tmp_path / "out", "--format", "onnx", "--format", "ort") == 1
    assert capsys.readouterr().out.count("failed: the graph has an operator that the exporter lacks.") == 2
    assert tried == ["onnx-fp32"]


@pytest.mark.parametrize("name", ["openvino-fp16", "onnx-fp32"])
def test_every_named_variant_must_have_int8(name, source, tmp_path, capsys):
    assert export(source, tmp_path / "out", "--format", name, "--format", "onnx", "--quantize", "int8") == 2
    assert_one_message(capsys, f"{name} has no variant in INT8; export it by a command without --quantize")


@pytest.mark.slow
def test_a_static_variant_that_is_named_reads_calibration_texts(source, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("a good film\nthe plot is very bad\nso dull\n", encoding="utf-8")
    out = tmp_path / "static"
    assert export(source, out, "--format", "onnx-int8-minmax", "--calibration", str(texts)) == 0
    assert read_info(out).variant.name == "onnx-int8-minmax"


@pytest.mark.slow
def test_a_named_format_whose_programs_are_missing_has_failed(source, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(export_command, "missing_programs", lambda form, settings: ["node"] if form == "web" else [])
    assert export(source, tmp_path / "out", "--format", "onnx", "--format", "web") == 1
    assert "failed: not installed: node" in capsys.readouterr().out


def test_missing_programs_and_extras_are_named_before_anything_is_built(source, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("compress.export.builders.onnx.export_onnx", lambda context: pytest.fail("it was built"))
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        assert export(source, tmp_path / "out", "--format", "web", "--assets", str(tmp_path)) == 1
        assert_one_message(capsys, "web-int8 cannot be built here: not installed: node.")
    monkeypatch.setattr(export_command, "missing_extras", lambda form: {"absent_library": form})
    assert export(source, tmp_path / "out", "--format", "openvino") == 1
    assert_one_message(capsys, "pip install 'compress-encoders[openvino]'")
    assert not (tmp_path / "out").exists()


def test_an_export_serves_where_a_format_is_made_from_it(exported, tmp_path, capsys):
    for model, to, words, made in (
        (exported, tmp_path / "ort", ["--format", "ort"], "ort-fp32"),
        (exported, tmp_path / "int8", ["--quantize", "int8"], "onnx-int8"),
        (tmp_path / "int8", tmp_path / "ort-int8", ["--format", "ort", "--quantize", "int8"], "ort-int8"),
    ):
        assert export(model, to, *words) == 0
        assert read_info(to).variant.name == made
        assert (to / "golden.safetensors").read_bytes() == (exported / "golden.safetensors").read_bytes()
    capsys.readouterr()
    assert export(tmp_path / "int8", tmp_path / "out", "--format", "ort") == 2
    assert_one_message(
        capsys, f"onnx-fp32 is made from a model folder; {tmp_path / 'int8'} holds an export, onnx-int8."
    )
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_built(source, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("compress.export.builders.onnx.export_onnx", lambda context: pytest.fail("it was built"))
    file = tmp_path / "file"
    file.touch()
    for to in (file, file / "out"):
        for name in ("onnx", "all"):
            assert export(source, to, "--format", name) == 2
            assert_one_message(capsys, f"{to} cannot be written: {file} is a file, expected a folder")


@pytest.mark.slow
def test_export_check_and_verify_give_one_verdict(source, tmp_path, monkeypatch, capsys):
    """In the same words and with the same exit code; the folder is written."""
    out = tmp_path / "out"
    for agreement, code in ((0.0, 0), (1.1, 3)):
        monkeypatch.setitem(LIMITS, "int8", ParityLimit(difference=10.0, agreement=agreement))
        words = []
        for command in (
            ["export", str(source), str(out), "--quantize", "int8"],
            ["export", str(source), str(out), "--check"],
        ):
            assert main(command) == code
            words.append(
                next(line for line in capsys.readouterr().err.splitlines() if "repeat" in line and "PyTorch:" in line)
            )
        assert main(["verify", str(out)]) == code
        words += [line for line in capsys.readouterr().out.splitlines() if "PyTorch:" in line]
        assert len({line.removeprefix("error: ") for line in words}) == 1, words
        assert read_info(out).variant.name == "onnx-int8"
        shutil.rmtree(out)


@pytest.mark.slow
def test_of_several_formats_those_that_miss_their_limit_are_written_and_named(source, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(LIMITS, "int8", ParityLimit(difference=10.0, agreement=1.1))
    words = ["--format", "onnx", "--format", "ort", "--quantize", "int8", "--format", "json"]
    assert export(source, tmp_path / "out", *words) == 3
    output = capsys.readouterr()
    assert all("does not repeat PyTorch:" in row["outcome"] for row in json.loads(output.out))
    assert "2 of 2 formats do not repeat PyTorch: onnx-int8, ort-int8" in output.err
    assert (tmp_path / "out" / "ort" / "model.ort").is_file()


@pytest.mark.slow
def test_messages_name_no_temporary_folder(source, tmp_path, monkeypatch, capsys):
    real = quantize_int8_dynamic_model
    turned = [-50.0, 50.0]
    monkeypatch.setattr(
        "compress.quantize.dynamic.quantize_int8_dynamic_model",
        lambda proto, fp32: add_to_logits(real(proto, fp32), turned),
    )
    monkeypatch.setattr("compress.quantize.quantize_export.LEAST_AGREEMENT", 1.1)
    assert export(source, tmp_path / "out", "--quantize", "int8") == 1
    shown = capsys.readouterr().err
    assert "onnx-int8 repeats only" in shown
    assert "of the decisions of onnx-fp32" in shown
    assert tempfile.gettempdir() + "/compress-" not in shown


@pytest.mark.slow
def test_errors_of_libraries_name_no_temporary_folder(source, tmp_path, monkeypatch, capsys):
    def fail(context):
        raise ModelError(f"{context.source / 'model.onnx'} cannot be converted.", hint=f"look into {context.work}")

    monkeypatch.setattr("compress.export.builders.openvino.export_openvino", fail)
    assert export(source, tmp_path / "out", "--format", "openvino") == 1
    shown = capsys.readouterr().err
    assert "error: onnx-fp32/model.onnx cannot be converted.\nhint: look into openvino-fp32\n" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--format", "openvino", "--quantize", "int8"], "nncf takes its ranges from sample rows; got 0"),
        (["--quantize", "static-entropy"], "static-entropy takes its ranges from sample rows; got 0"),
        (["--quantize", "static-minmax", "--calibration", "ONE"], "got 1, expected at least 2"),
        (["--quantize", "nncf-accuracy", "--calibration", "TWO"], "nncf-accuracy compares scores on rows of train"),
        (["--format", "web", "--assets", "EMPTY"], "holds no onnxruntime-web-"),
    ],
)
def test_what_cannot_be_built_is_refused_before_anything_is(words, message, source, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("compress.export.builders.onnx.export_onnx", lambda context: pytest.fail("it was built"))
    monkeypatch.setattr(export_command, "missing_programs", lambda form, settings: [])
    monkeypatch.setattr(export_command, "missing_extras", lambda form: {})
    given = {"ONE": "a film\n\n", "TWO": "a film\nso dull\n"}
    for name, text in given.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "EMPTY").mkdir()
    named = [str(tmp_path / word) if word.isupper() else word for word in words]
    assert export(source, tmp_path / "out", *named) == 2
    assert_one_message(capsys, message)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_of_several_formats_the_refused_one_is_named_first_and_stops_no_other(source, tmp_path, capsys):
    words = ["--format", "onnx", "--format", "openvino", "--quantize", "int8", "--format", "json"]
    assert export(source, tmp_path / "out", *words) == 1
    output = capsys.readouterr()
    assert output.err.splitlines()[0].startswith("openvino-int8 will not be built: nncf takes its ranges")
    outcomes = {row["variant"]: row["outcome"] for row in json.loads(output.out)}
    assert outcomes["openvino-int8"].startswith("failed: nncf takes its ranges from sample rows")
    assert outcomes["onnx-int8"] == "done"


def test_a_page_needs_a_task(tiny_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("compress.export.builders.onnx.export_onnx", lambda context: pytest.fail("it was built"))
    monkeypatch.setattr(export_command, "missing_programs", lambda form, settings: [])
    source = shutil.copytree(tiny_folder("bert"), tmp_path / "model")
    write_info(source, read_info(source).model_copy(update={"task": None}))
    assert export(source, tmp_path / "out", "--format", "web") == 1
    assert_one_message(capsys, "web needs a model that states which task it was trained for")


def test_all_names_every_format():
    assert {each.format for each in export_command.chosen_variants(["all"], None)} == set(EXPORTS)
    int8 = export_command.chosen_variants(["all"], "int8")
    assert {"onnx-int8", "ort-int8", "openvino-int8"} <= {each.name for each in int8}


def test_a_variant_of_a_format_may_be_named():
    assert [each.name for each in export_command.chosen_variants(["openvino-fp16"], None)] == ["openvino-fp16"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--format", "onx"], "no format is called 'onx'; did you mean onnx?"),
        (["--format", "torch-fp32"], "no format is called 'torch-fp32'"),
        (["--quantize", "int9"], "no quantizer is called 'int9'; did you mean int8?"),
    ],
)
def test_unknown_names(words, message, source, tmp_path, capsys):
    assert export(source, tmp_path / "out", *words) == 2
    assert_one_message(capsys, message)
    assert not (tmp_path / "out").exists()


def test_a_full_folder_is_left_as_it_is(source, tmp_path, capsys):
    (tmp_path / "note.txt").touch()
    assert export(source, tmp_path, "--format", "all") == 2
    assert_one_message(capsys, "already exists and is not empty")


def test_a_folder_of_a_later_version_is_one_message(source, broken, capsys):
    content = json.loads((broken / "compress.json").read_text())
    (broken / "compress.json").write_text(json.dumps(content | {"schema_version": 99}))
    assert main(["predict", str(broken), "a good film"]) == 1
    assert_one_message(capsys, "schema_version")
