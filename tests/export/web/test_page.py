"""The page in headless Chromium: the same answers as in Python, offline, and no request to another host."""

import json
import os
import re
import shutil
import tempfile

import numpy as np
import pytest

from compress.export.comparison.golden_inputs import GOLDEN_TEXTS, SENTENCE
from compress.export.comparison.parity import MARGIN
from compress.export.web.node_check import INT8_TOLERANCE
from compress.runtime.text_model import TextModel
from tests.chromium import chromium, serve_folder
from tests.variant_builder import build

pytestmark = pytest.mark.browser

TEXTS = (
    *(text for group in GOLDEN_TEXTS.values() for text in group),
    *(word * count for word in ("good ", "bad film, ", "\U0001f600") for count in (1, 7, 400)),
    *("\u0130stanbul", "stra\u00dfe", "\ufb01lm", "\u1e9b\u0323", "\u00c5ngstr\u00f6m \u212b", "e\u0301\u0323\u0308"),
    *(
        "\ud55c\uad6d\uc5b4 \uc601\ud654",
        "\u0e20\u0e32\u0e1e\u0e22\u0e19\u0e15\u0e23\u0e4c",
        "\u05e1\u05e8\u05d8 \u05d8\u05d5\u05d1",
    ),
    *("\x01\x02\x1f\x7f\x80\x9f", "tab\tvertical\x0bform\x0cfeed", "a\u00a0b\u2003c\u3000d\u1680e", "\ufffd\ufffe"),
    *("don't can't we'll", SENTENCE * 200),
)
"""50 texts, of which most are unusual."""

PREDICT = """
const [texts, done] = arguments;
(async () => {
  const { Model } = await import("./model.js");
  const read = async (name) => new Uint8Array(await (await fetch(name)).arrayBuffer());
  const model = await Model.load(read);
  const results = [];
  for (const text of texts) {
    const { prediction, outputs } = await model.predict(text);
    results.push({ prediction, logits: outputs[0]?.logits ?? null });
  }
  done(results);
})().catch((error) => done(String(error)));
"""


@pytest.fixture
def serve():
    """Serves folders on this computer: ``serve(folder)`` returns the address and a function that stops the server."""
    stops = []

    def start(folder):
        address, stop = serve_folder(folder)
        stops.append(stop)
        return address, stop

    yield start
    for stop in stops:
        stop()


@pytest.fixture
def browser(tmp_path):
    with chromium(tmp_path) as driver:
        yield driver


def text_of(browser, name):
    return browser.find_element("id", name).text


def wait_for(browser, name, expected):
    """Wait until an element's text holds what is expected, and return all of it."""
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.support.ui import WebDriverWait

    def shown(driver):
        text = text_of(driver, name)
        return text if expected in text else None

    # A page that is loading replaces the elements of the one before.
    waiting = WebDriverWait(browser, 120, ignored_exceptions=[StaleElementReferenceException])
    return waiting.until(shown, f"{name}: {expected}")


def wait_until_stored(browser):
    """Wait until the browser has stored the page. Chromium stores nothing where less than about 4 GiB are free."""
    wait_for(browser, "status", "Ready")
    offline = wait_for(browser, "offline", ".")
    if "free space" in offline and shutil.disk_usage(tempfile.gettempdir()).free < 5 * 2**30:
        pytest.skip("the disk has too little free space for what Chromium stores")
    assert "works offline" in offline


def type_text(browser, *texts):
    fill = """
    document.querySelectorAll("textarea").forEach((area, index) => {
      area.value = arguments[0][index];
      area.dispatchEvent(new Event("input", { bubbles: true }));
    });"""
    browser.execute_script(fill, texts)


def requested(browser):
    """The addresses of all requests over the network that the browser has made since the last call."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = {event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"}
    return {address for address in sent if address.startswith(("http", "ws"))}


def test_the_page_answers_as_python_does(web_folder, serve, browser):
    address, _ = serve(web_folder)
    browser.get(address)
    wait_for(browser, "status", "Ready")
    assert len(TEXTS) == 50
    results = browser.execute_async_script(PREDICT, [[text] for text in TEXTS])
    assert isinstance(results, list), results
    model = TextModel.open(web_folder)
    expected = model.predict(TEXTS, batch=1)
    ours = np.array(
        [model.predictor.predict(model.arrays([each]))["logits"][0] for each in model.prepare(TEXTS).examples]
    )
    read = [result["logits"] is not None for result in results]
    assert [one.get("reason") for one in expected] == [None if each else "no text" for each in read]
    theirs = np.array([result["logits"] for result in results if result["logits"] is not None])
    clear = ~np.array(read) | (np.abs(ours[:, 0] - ours[:, 1]) > MARGIN)
    same = [result["prediction"]["label"] == one["label"] for result, one in zip(results, expected, strict=True)]
    assert clear.sum() > 25
    assert np.array(same)[clear].all()
    assert np.abs(ours[read] - theirs).max() < INT8_TOLERANCE * max(1, np.abs(ours).max())


def test_the_page_works_offline_and_asks_no_other_host(web_folder, serve, browser):
    address, stop = serve(web_folder)
    browser.get(address)
    wait_until_stored(browser)
    type_text(browser, "a good film")
    first = wait_for(browser, "result", "%")
    assert "ms" in text_of(browser, "latency")
    stop()
    type_text(browser, "a bad film")
    assert "ms" in wait_for(browser, "latency", "tokens")
    browser.refresh()
    wait_for(browser, "status", "Ready")
    type_text(browser, "a good film")
    assert wait_for(browser, "result", "%") == first
    addresses = requested(browser)
    assert any(each.endswith("runtime/onnxruntime.wasm") for each in addresses)
    assert {each for each in addresses if not each.startswith(address)} == set()
    assert browser.get_log("browser") == []


def test_another_export_replaces_the_one_that_is_stored(web_folder, web_source, film_task, serve, browser, tmp_path):
    folder = shutil.copytree(web_folder, tmp_path / "page")
    for path in folder.rglob("*"):
        os.utime(path, (0, 0))  # so old that the browser would take it from its HTTP cache for years
    address, _ = serve(folder)
    browser.get(address)
    wait_until_stored(browser)
    shutil.rmtree(folder)
    folder.mkdir()
    plays = film_task.model_copy(update={"name": "plays", "labels": ("dull", "fine")})
    build("web-int8", web_source(plays, labels=plays.labels), folder)
    browser.refresh()
    wait_for(browser, "title", "plays")
    wait_for(browser, "status", "Ready")
    type_text(browser, "a good film")
    expected = TextModel.open(folder).predict(["a good film"])[0]["label"]
    assert wait_for(browser, "result", "%").startswith(expected)


def test_the_script_in_the_readme_runs_as_printed(web_folder, serve, browser, tmp_path):
    folder = shutil.copytree(web_folder, tmp_path / "own")
    scripts = re.findall(r"```html\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    (script,) = [each for each in scripts if "./model.js" in each]
    assert len(script.splitlines()) <= 15
    (folder / "own.html").write_text(f"<!doctype html><body id='own'>{script}")
    browser.get(serve(folder)[0] + "own.html")
    printed = json.loads(wait_for(browser, "own", "probability"))
    expected = TextModel.open(web_folder).predict(["a text"])[0]
    assert printed["label"] == expected["label"]
    assert printed["probability"] == pytest.approx(expected["probability"], abs=INT8_TOLERANCE)


def test_other_hosts_are_forbidden(web_folder, serve, browser):
    address, _ = serve(web_folder)
    other, _ = serve(web_folder)
    browser.get(address)
    wait_for(browser, "status", "Ready")
    # Without CORS, so that nothing but the page's policy refuses it.
    ask = "fetch(arguments[0], { mode: 'no-cors' }).then(() => arguments[1]('allowed'), () => arguments[1]('refused'))"
    assert browser.execute_async_script(ask, other + "page.json") == "refused"
    assert browser.execute_async_script(ask, address + "page.json") == "allowed"


def test_a_cut_text_is_reported_and_typed_markup_is_text(web_folder, serve, browser):
    address, _ = serve(web_folder)
    browser.get(address)
    wait_for(browser, "status", "Ready")
    type_text(browser, "good " * 100)
    wait_for(browser, "latency", "the rest of the text was not read")
    type_text(browser, "")
    assert text_of(browser, "result") == ""
    type_text(browser, "<img src=x onerror=alert(1)>")
    wait_for(browser, "result", "%")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("onnx/model_quantized.onnx", "onnx/model_quantized.onnx could not be loaded: the server answers 404"),
        ("tokenizer.json", "tokenizer.json could not be loaded: the server answers 404"),
    ],
)
def test_a_missing_file_is_reported_on_the_page(web_folder, serve, browser, tmp_path, name, expected):
    folder = shutil.copytree(web_folder, tmp_path / "broken")
    (folder / name).unlink()
    browser.get(serve(folder)[0])
    wait_for(browser, "status", expected)


def test_a_damaged_model_is_reported_on_the_page(web_folder, serve, browser, tmp_path):
    folder = shutil.copytree(web_folder, tmp_path / "broken")
    (folder / "onnx" / "model_quantized.onnx").write_bytes(b"no model")
    browser.get(serve(folder)[0])
    wait_for(browser, "status", "cannot run onnx/model_quantized.onnx")
