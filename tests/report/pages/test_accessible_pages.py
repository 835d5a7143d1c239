"""Every page in Chromium: no violation that axe-core finds, nothing loaded, and what the scripts add."""

from pathlib import Path

import pytest

from compress.publish.places import FolderPlace
from compress.publish.records import Record, VariantRecord
from compress.publish.zoo_index import write_index
from compress.report.compare_runs import compare_reports, tables
from compress.report.pages.comparison_page import ChangedRow, ChangedRows, comparison_page, rows_page
from compress.report.pages.render import write_pages
from compress.report.pages.rows_page import DisagreementRow, Disagreements, WrongRow, WrongRows, write_rows_page
from tests.chromium import chromium
from tests.report.conftest import apply_gates

pytestmark = pytest.mark.browser

HOSTILE = '<img src=x onerror="document.title=1"> & "quoted" </script>'
PAGES = ("report.html", "rows.html", "comparison.html", "changed/rows.html", "zoo/index.html")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("browser")) as driver:
        yield driver


@pytest.fixture(scope="module")
def axe():
    package = pytest.importorskip("axe_core_python")
    return (Path(package.__file__).parent / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture
def pages(make_full_report, tmp_path):
    """One of each page, with texts that would do harm."""
    report = apply_gates(make_full_report())
    key = report.verdict("cpu").winner
    wrong = WrongRow(3, 18, (HOSTILE, "another text"), "good", "bad", "good", True)
    models = [WrongRows(key, ("cpu",), 100, 1, 0, 0, "the most confident first", (wrong,))]
    differing = [
        DisagreementRow(number, (f"{HOSTILE} {number}",), "good", "bad", "good", 0.5, right)
        for number, right in enumerate(("model alone", "teacher alone", "teacher alone"))
    ]
    write_rows_page(tmp_path, report.name, models, [Disagreements(key, ("cpu",), tuple(differing))])
    write_pages(tmp_path, report, {"cpu": "films"})
    other = report.model_copy(update={"recipe": {**report.recipe, "seed": 7, "note": HOSTILE}})
    comparison = compare_reports([report, other], ["films", "other"])
    (tmp_path / "comparison.html").write_text(comparison_page(comparison, list(tables(comparison)), has_rows=True))
    changed = ChangedRows(
        ("films", "other"), "cpu", 1, (ChangedRow(0, (HOSTILE,), "good", ("good", "bad"), "now wrong"),)
    )
    (tmp_path / "changed").mkdir()
    (tmp_path / "changed" / "rows.html").write_text(rows_page(("films", "other"), [changed]))
    zoo = FolderPlace(tmp_path / "zoo")
    for version, size in (("1", 4_000_000), ("2", 9_000_000)):
        record = Record(
            name="films",
            version=version,
            published=f"2026-11-2{version}T00:00:00Z",
            digest="0" * 64,
            task=HOSTILE,
            kind="classification",
            metric="accuracy",
            cpu="A Processor",
            variants=(VariantRecord(path=".", variant="onnx-int8", score=0.9, p50_ms=1.5, bytes=size),),
        )
        zoo.create(record.file, record.content())
    write_index(zoo)
    return tmp_path


def show(driver, page, width=1280, scheme="light"):
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    driver.get(page.as_uri())


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_axe_finds_no_violation(name, width, scheme, pages, browser, axe):
    show(browser, pages / name, width, scheme)
    title = browser.title
    browser.execute_script("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    browser.execute_script(axe)
    found = browser.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
    violations = [
        f"{each['id']} ({each['impact']}): {each['help']}: {[node['html'][:120] for node in each['nodes'][:3]]}"
        for each in found["violations"]
    ]
    assert violations == []
    assert browser.title == title
    assert not browser.find_elements("css selector", "img")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    errors = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert errors == []


def shown(browser, selector):
    return [each for each in browser.find_elements("css selector", selector) if each.is_displayed()]


class TestCharts:
    def test_a_marker_says_what_it_is_when_it_has_the_focus(self, pages, browser):
        show(browser, pages / "report.html")
        marker = next(each for each in shown(browser, ".charts g[data-name]"))
        browser.execute_script("arguments[0].focus()", marker)
        text = browser.find_element("css selector", ".pointed").text
        assert text.startswith(f"{marker.get_attribute('data-name')}: ")
        assert marker.get_attribute("aria-label") == text

    def test_the_axis_is_chosen(self, pages, browser):
        show(browser, pages / "report.html")
        axes = browser.find_elements("css selector", ".charts input[type=radio]")
        labels = [each.find_element("xpath", "..").text for each in axes]
        assert labels == ["milliseconds a call, p50", "megabytes"]
        for chosen, label in zip(axes, labels, strict=True):
            chosen.click()
            (figure,) = shown(browser, ".charts figure")
            assert figure.get_attribute("data-axis") == label

    def test_models_are_hidden(self, pages, browser):
        show(browser, pages / "report.html")
        before = len(shown(browser, ".charts g.dimmed"))
        (box,) = [
            each
            for each in browser.find_elements("css selector", ".charts input[type=checkbox]")
            if each.get_attribute("name") == "teacher"
        ]
        box.click()
        dimmed = browser.find_elements("css selector", ".charts g.dimmed")
        assert before == 0
        assert {each.get_attribute("data-name").split("/")[0] for each in dimmed} == {"teacher"}

    def test_zooming_in_and_out(self, pages, browser):
        show(browser, pages / "report.html")
        drawing = shown(browser, ".charts figure svg")[0]
        whole = drawing.get_dom_attribute("viewBox")
        zoom_in, zoom_out, all_of_it = browser.find_elements("css selector", ".charts .controls button")
        zoom_in.click()
        assert drawing.get_dom_attribute("viewBox") != whole
        zoom_out.click()
        zoom_out.click()
        assert list(map(float, drawing.get_dom_attribute("viewBox").split())) == list(map(float, whole.split()))
        zoom_in.click()
        all_of_it.click()
        assert drawing.get_dom_attribute("viewBox") == whole


def test_disagreements_are_filtered(pages, browser):
    show(browser, pages / "rows.html")
    assert len(shown(browser, "#differing-1 tbody tr")) == 3
    browser.execute_script(
        "const each = document.querySelector('select[name=right]'); each.value = 'teacher alone';"
        "each.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    assert len(shown(browser, "#differing-1 tbody tr")) == 2
    assert shown(browser, "form output")[0].text == "2 of 3 shown"


def test_a_place_is_searched_filtered_and_sorted(pages, browser):
    show(browser, pages / "zoo" / "index.html")
    rows = "#models tbody tr"
    assert [each.text.split()[1] for each in shown(browser, rows)] == ["2", "1"]
    browser.find_element("css selector", "input[name=size]").send_keys("5")
    assert len(shown(browser, rows)) == 1
    browser.find_element("css selector", "input[name=size]").clear()
    browser.find_element("css selector", "input[type=search]").send_keys("nothing like it")
    assert shown(browser, rows) == []
    browser.find_element("css selector", "input[type=search]").clear()
    browser.find_element("css selector", "input[name=newest]").click()
    assert len(shown(browser, rows)) == 1
    browser.find_element("css selector", "input[name=newest]").click()
    size = next(each for each in browser.find_elements("css selector", "#models th button") if each.text == "size")
    size.click()
    assert [each.text.split()[1] for each in shown(browser, rows)] == ["1", "2"]
    size.click()
    assert [each.text.split()[1] for each in shown(browser, rows)] == ["2", "1"]
    assert size.find_element("xpath", "..").get_attribute("aria-sort") == "descending"


def test_the_first_screen_answers(pages, browser):
    """What won, how much faster and smaller, what was kept, whether to trust it, and the command: without scrolling."""
    show(browser, pages / "report.html")
    for selector in (".verdict .who", ".verdict .figures", ".verdict .trust", ".verdict .use pre"):
        rect = browser.find_element("css selector", selector).rect
        assert rect["y"] + rect["height"] < 900
    warnings = shown(browser, "main > section.card > ul.know > li")
    assert len(warnings) <= 3
    assert all(each.find_elements("css selector", "strong") for each in warnings[:2])
