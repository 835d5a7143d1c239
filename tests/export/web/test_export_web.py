"""The web folder: what is in it, what its page is given, and what is refused."""

import json
import re

import pytest

from compress.cli import main
from compress.errors import CompressError, ModelError
from compress.export.web import npm_assets
from compress.export.web.export_web import web_readme
from compress.model_folder.model_info import read_info, write_info
from compress.runtime.text_model import TextModel
from compress.storage.file_digests import digests
from tests.variant_builder import build

PAGE_FILES = {"index.html", "style.css", "app.js", "model.js", "encode.js", "tasks.js", "files.js", "service_worker.js"}


@pytest.mark.slow
def test_the_folder_has_the_layout_of_transformers_js_and_a_page(web_folder):
    names = set(digests(web_folder))
    layout = {"config.json", "tokenizer.json", "tokenizer_config.json", "onnx/model_quantized.onnx"}
    runtime = {"runtime/onnxruntime.js", "runtime/onnxruntime.wasm", "runtime/tokenizers.js"}
    licences = {f"licences/{name}" for name in ("onnxruntime-LICENSE", "tokenizers.txt", "packages.json")}
    assert layout | runtime | licences | PAGE_FILES <= names
    assert "onnx/model.onnx" not in names
    assert json.loads((web_folder / "config.json").read_text())["transformers.js_config"] == {"dtype": "q8"}


@pytest.mark.slow
def test_the_browser_stores_every_file_that_the_page_reads(web_folder):
    script = (web_folder / "files.js").read_text()
    stored = set(json.loads(script.partition("FILES = ")[2].rstrip(";\n")))
    assert stored - {"./"} <= set(digests(web_folder))
    scripts = [name for name in sorted(stored) if name.endswith((".js", ".html")) and "/" not in name]
    page = "".join((web_folder / name).read_text() for name in scripts)
    named = set(re.findall(r'"\.?/?([\w/]+\.(?:js|css|wasm|json))"', page))
    assert named - {"service_worker.js"} <= stored
    assert {"onnx/model_quantized.onnx", "index.html", "vectors.js", "runtime/onnxruntime.wasm"} <= stored
    assert not stored & {"README.md", "compress.json", "service_worker.js"}


@pytest.mark.slow
def test_the_same_file_runs_in_python(web_folder, web_source, film_task):
    info = read_info(web_folder)
    assert (info.variant.name, info.variant.format, info.variant.precision) == ("web-int8", "web", "int8")
    assert info.variant.method == "dynamic"
    assert info.variant.parity["max_abs_difference"] == 0
    assert "MatMulInteger" in info.variant.operators
    assert TextModel.open(web_folder).predict(["a good film"])[0]["label"] in film_task.labels


@pytest.mark.slow
def test_the_command_exports_int8(assets, web_source, film_task, tmp_path, capsys):
    source = web_source(film_task, variant=None)
    assert main(["export", str(source), str(tmp_path / "web"), "--format", "web"]) == 0
    assert (tmp_path / "web" / "onnx" / "model_quantized.onnx").is_file()
    assert main(["export", str(source), str(tmp_path / "web"), "--check"]) == 0


def test_assets_of_other_formats_are_refused(tmp_path, capsys):
    assert main(["export", "model", str(tmp_path / "out"), "--assets", str(tmp_path)]) == 2
    assert "--assets has an effect on the format web only" in capsys.readouterr().err


@pytest.fixture(scope="module")
def source(web_source, film_task):
    return web_source(film_task)


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("classification", "does:"),
        ("token_classification", "does, without `entities`:"),
        ("question_answering", "does, with an answer of whole words and without `start` and `end`:"),
    ],
)
def test_the_readme_names_what_predictions_lack(kind, named, source, film_task):
    task = film_task.model_copy(update={"kind": kind})
    assert f"prints what `compress predict` {named}" in web_readme(read_info(source), task, "onnx/model.onnx")


def test_a_folder_without_the_packages_is_one_message(source, tmp_path):
    (tmp_path / "work").mkdir()
    with pytest.raises(CompressError, match=r"holds no onnxruntime-web-1\.30\.0\.tgz"):
        build("web-int8", source, tmp_path / "work", settings={"assets": tmp_path})


def test_a_model_without_a_task_is_refused(source, tmp_path, monkeypatch):
    monkeypatch.setattr(npm_assets, "PACKAGES", ())
    info = read_info(source)
    write_info(source, info.model_copy(update={"task": None}))
    try:
        with pytest.raises(ModelError, match="does not state which task"):
            build("web-int8", source, tmp_path)
    finally:
        write_info(source, info)
