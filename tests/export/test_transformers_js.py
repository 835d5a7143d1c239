"""The lines in the README of exports and entries run as printed in transformers.js, in Node.js and in Chromium."""

import json
import re
import shutil
import subprocess

import pytest

from compress.cli import main
from compress.export.other_tools import VERSION, name_file, transformers_js_section
from compress.export.runners import export_readme
from compress.export.web.node_check import INT8_TOLERANCE
from compress.model_folder.model_info import FolderInfo, read_info
from compress.runtime.text_model import TextModel
from compress.variants import VARIANTS
from tests.chromium import serve_folder
from tests.export.web.conftest import film_task, web_folder, web_source
from tests.export.web.test_page import browser
from tests.variant_builder import build

__all__ = ["browser", "film_task", "web_folder", "web_source"]

CDN = f"https://cdn.jsdelivr.net/npm/@huggingface/transformers@{VERSION}"
LOCAL = "./node_modules/@huggingface/transformers/dist/transformers.web.min.js"


@pytest.fixture(scope="session")
def node_modules(tmp_path_factory):
    """transformers.js from the npm registry."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("node or npm is not installed")
    folder = tmp_path_factory.mktemp("npm")
    command = ["npm", "install", "--ignore-scripts", "--prefix", str(folder), f"@huggingface/transformers@{VERSION}"]
    if subprocess.run(command, capture_output=True, check=False, timeout=600).returncode != 0:
        pytest.skip("transformers.js cannot be downloaded")
    return folder / "node_modules"


@pytest.fixture(scope="module")
def folders(web_source, web_folder, film_task, tmp_path_factory):
    """By name, the folders that users have: of an export, of one in INT8, of the web, and of a zoo."""
    parent = tmp_path_factory.mktemp("folders")
    source = web_source(film_task, variant=None)
    assert main(["export", str(source), str(parent / "plain")]) == 0
    assert main(["export", str(source), str(parent / "plain-int8"), "--quantize", "int8"]) == 0
    shutil.copytree(web_folder, parent / "web")
    entry = parent / "entry"  # as a zoo has it: the model in onnx/
    shutil.copytree(parent / "plain-int8", entry)
    (entry / "onnx").mkdir()
    (entry / "model.onnx").rename(entry / "onnx" / "model.onnx")
    name_file(entry)
    (entry / "README.md").write_text(transformers_js_section(read_info(entry), "onnx/model.onnx", "entry"))
    return parent


def lines(folder, language):
    """The lines of a README in a language, with the name of its folder."""
    readme = (folder / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(rf"```{language}\n(.*?)```", readme, re.DOTALL)
    (code,) = [block for block in blocks if "@huggingface/transformers" in block]
    return code.replace("FOLDER", folder.name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain", "plain-int8", "web", "entry"])
def test_the_lines_for_node_run_as_printed(name, folders, node_modules):
    if not (folders / "node_modules").exists():
        (folders / "node_modules").symlink_to(node_modules)
    code = lines(folders / name, "js")
    assert len(code.splitlines()) <= 4
    (folders / "run.mjs").write_text(code)
    done = subprocess.run(["node", "run.mjs"], cwd=folders, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    expected = TextModel.open(folders / name).predict(["a text"])[0]
    assert f"label: '{expected['label']}'" in done.stdout
    score = float(re.search(r"score: ([\d.e-]+)", done.stdout)[1])
    assert score == pytest.approx(expected["probability"], abs=INT8_TOLERANCE)


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("name", ["plain", "plain-int8", "web", "entry"])
def test_the_lines_for_a_page_run_as_printed(name, folders, node_modules, browser):
    if not (folders / "node_modules").exists():
        (folders / "node_modules").symlink_to(node_modules)
    code = lines(folders / name, "html")
    assert CDN in code
    # The registry's copies of the two packages, since a test asks no other host.
    code = code.replace(CDN, LOCAL)
    packages = {"onnxruntime-web/webgpu": "onnxruntime-web/dist/ort.webgpu.bundle.min.mjs"}
    packages["onnxruntime-common"] = "onnxruntime-common/dist/esm/index.js"
    bundled = json.dumps({"imports": {name: f"./node_modules/{path}" for name, path in packages.items()}})
    wasm = "env.backends.onnx.wasm.wasmPaths = new URL('./node_modules/onnxruntime-web/dist/', location).href;"
    code = code.replace("  Object.assign", f"  {wasm}\n  Object.assign")
    page = f"<!doctype html><script type='importmap'>{bundled}</script><body id='page'>{code}"
    (folders / "own.html").write_text(page)
    address, stop = serve_folder(folders)
    try:
        from selenium.webdriver.support.ui import WebDriverWait

        browser.get(f"{address}own.html")
        WebDriverWait(browser, 60).until(lambda driver: "score" in driver.find_element("id", "page").text)
    finally:
        stop()
    (shown,) = json.loads(browser.find_element("id", "page").text)
    expected = TextModel.open(folders / name).predict(["a text"])[0]
    assert shown["label"] == expected["label"]
    assert shown["score"] == pytest.approx(expected["probability"], abs=INT8_TOLERANCE)


@pytest.mark.slow
def test_other_formats_name_no_file(folders, tmp_path):
    pytest.importorskip("openvino")
    build("openvino-fp32", folders / "plain", tmp_path)
    assert "transformers.js_config" in json.loads((folders / "plain" / "config.json").read_text())
    assert "transformers.js_config" not in json.loads((tmp_path / "config.json").read_text())
    assert "transformers.js" not in (tmp_path / "README.md").read_text()


def test_a_file_that_browsers_do_not_run_has_lines_for_node_only(film_task):
    info = FolderInfo(step="x", task=film_task, variant=VARIANTS["onnx-int8-embeddings-4bit"].info)
    section = transformers_js_section(info, "onnx/model.onnx", "films")
    assert "```js" in section
    assert "```html" not in section
    assert section.endswith("In a browser it does not run there: web has no com.microsoft.GatherBlockQuantized.")


@pytest.mark.parametrize(
    ("kind", "columns", "expected"),
    [
        ("token_classification", ("words",), 'pipeline("token-classification", "./x")'),
        ("question_answering", ("question", "context"), 'await answer("a question", "a context")'),
        ("classification", ("first", "second"), 'text_pair: "another text"'),
        ("regression", ("text",), ".logits.tolist()"),
        ("similarity", ("first", "second"), ".sentence_embedding.tolist()"),
        ("ranking", ("query", "document"), 'text_pair: "another text"'),
    ],
)
def test_every_kind_has_lines_for_its_outputs(kind, columns, expected, film_task):
    task = film_task.model_copy(update={"kind": kind, "text": columns})
    info = FolderInfo(step="x", task=task, variant=VARIANTS["onnx-fp32"].info)
    assert expected in transformers_js_section(info, "onnx/model.onnx", "x")


def test_a_default_prompt_goes_before_the_text(film_task):
    task = film_task.model_copy(update={"kind": "similarity", "text": ("first", "second")})
    info = FolderInfo(step="x", task=task, variant=VARIANTS["onnx-fp32"].info)
    section = export_readme(info, prompt='say "this": ')
    assert section.count(r'tokenizer("say \"this\": a text", { truncation: true })') == 2
