import re
import shutil
from html.parser import HTMLParser

import pytest

from compress.report.charts.score_and_speed_charts import legend, speed_chart
from compress.report.pages.render import render_html, render_markdown, script_hash, write_pages
from compress.report.run_facts import TargetFacts
from compress.report.tables.ledger_tables import ledger_table, stage_table
from compress.report.tables.machine_facts import describe_target
from compress.report.tables.quality_tables import class_table
from compress.report.tables.speed_tables import timing_table
from compress.tables import markdown_cell
from tests.report.conftest import apply_gates

VOID = {"meta", "link", "br", "img", "input", "hr", "wbr"}


class Balanced(HTMLParser):
    """Fails where tags do not close as they opened."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_ledger_has_a_row_for_every_variant_and_the_baseline(make_report):
    result = ledger_table(apply_gates(make_report()), "cpu")
    assert len(result.rows) == 10
    assert result.rows[result.winner]["gate"] == "winner"
    assert result.rows[0] == {
        "model": "teacher",
        "variant": "torch-fp32",
        "accuracy (95 %)": "91.5 (89.7 to 93.3)",
        "vs teacher": "–",
        "p50": result.rows[0]["p50"],
        "faster": "–",
        "size": "91.3 MB",
        "cost": "4 min",
        "gate": "reference",
    }
    assert result.rows[8]["vs teacher"] == "−0.9*"
    assert result.rows[9]["model"] == "bag of words"
    assert set(result.columns) == set(result.rows[0])


def test_a_failed_row_stays_in_every_ledger(make_report):
    report = make_report()
    failed = report.rows[-1].model_copy(update={"status": "failed", "reason": "no opset"})
    changes = {"rows": (*report.rows[:-1], failed), "results": report.results[:-1]}
    report = apply_gates(report.model_copy(update=changes))
    assert ledger_table(report, "cpu").rows[8]["gate"] == "failed"
    assert "pruned/onnx-int8 failed: no opset." in report.remarks
    assert ledger_table(report, "cuda").rows[0]["gate"] == "failed"


def test_tables_next_to_the_ledger(make_report):
    report = apply_gates(make_report())
    way = stage_table(report, "cpu", "pruned/onnx-int8").rows
    assert [row["stage"] for row in way] == ["teacher in PyTorch", "onnx-fp32", "distill", "prune", "onnx-int8"]
    assert [row["time"] for row in way] == ["–", "12 s", "2 min 59 s", "2 min 59 s", "5.0 s"]
    assert class_table(report, "cpu", "pruned/onnx-int8").rows[0]["change"] == "−0.9"
    assert timing_table(report, "cpu").rows[0]["runs with"] == "onnxruntime 1.31.1"


@pytest.mark.parametrize(
    ("probe", "change", "warned"),
    [
        (0.915, "±0.0 (by chance)", "gained nothing that test can show over a linear probe (mean), from which it"),
        (0.900, "+1.5", None),
        (0.920, "−0.5", "The teacher is significantly worse than a linear probe (mean)"),
    ],
)
def test_the_stages_begin_with_what_fine_tuning_gained_over_its_probe(probe, change, warned, make_report, quality_of):
    fields = {"probe": quality_of(probe), "probe_name": "a linear probe (mean)"}
    report = apply_gates(make_report().model_copy(update=fields))
    way = stage_table(report, "cpu", "pruned/onnx-int8").rows
    assert [row["stage"] for row in way[:3]] == ["linear probe (mean)", "teacher in PyTorch", "onnx-fp32"]
    assert (way[1]["accuracy"], way[1]["time"]) == (change, "4 min")
    remarks = [remark for remark in report.remarks if "linear probe (mean)" in remark]
    assert len(remarks) == (warned is not None)
    if warned:
        assert warned in remarks[0]
    if "chance" in change:
        assert "(accuracy 91.5 against 91.5, p 1), in 4 min; `finetune: {method: frozen}`" in remarks[0]


def test_both_pages_name_the_winner_and_the_reason(make_report, tmp_path):
    write_pages(tmp_path, apply_gates(make_report()))
    for name in ("report.md", "report.html"):
        page = (tmp_path / name).read_text(encoding="utf-8")
        assert "pruned/onnx-int8" in page
        assert "the fastest of 8 that passed the gate" in page
        assert "no CUDA here" in page
    assert (tmp_path / "report.json").is_file()


def test_the_page_is_balanced_and_loads_nothing(make_report):
    page = render_html(apply_gates(make_report()))
    Balanced().feed(page)
    assert re.findall(r'(?:src|href)="(?!data:)', page) == []
    assert "url(" not in page
    assert page.count("<script") == 1  # which the policy names by its hash
    script = re.search(r"<script>(.*)</script>", page, re.DOTALL)[1]
    assert f"script-src '{script_hash(script)}'" in page
    assert not re.search(r"fetch\(|XMLHttpRequest|import\(|innerHTML|eval\(", script)
    assert "@import" not in page


def test_names_are_escaped(make_report):
    report = apply_gates(make_report(name="<script>alert(1)</script>", remarks=("<b>bold</b> | a_b",)))
    page = render_html(report)
    assert "<script>alert" not in page
    assert "<b>bold" not in page
    assert "A Processor &lt;8&gt;" in page
    assert r"- \<b>bold\</b> \| a\_b" in render_markdown(report)


def test_tables_of_markdown_are_rectangular(make_report):
    blocks = re.findall(r"(?:^\|.*\|\n)+", render_markdown(apply_gates(make_report())), flags=re.MULTILINE)
    assert len(blocks) == 11
    for block in blocks:
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1


def test_a_run_without_winner_and_baseline_is_rendered(make_report):
    report = make_report(floor=None, floor_reason="left out", rows=(), results=(), steps=())
    report = apply_gates(report)
    assert "nothing that may win was measured here" in render_markdown(report)
    page = render_html(report)
    Balanced().feed(page)
    assert "No winner" in page
    assert speed_chart(report, "cpu", 680) is None


def test_the_legend_lists_every_marker(make_report):
    labels = [label for _, label in legend(make_report())]
    assert labels == ["teacher", "student", "pruned", "torch-fp32", "onnx-fp32", "onnx-int8", "missed the gate"]


def test_targets_are_described():
    result = TargetFacts(title="edge", device="cpu", threads=2, batch=8, length=64)
    assert describe_target(result) == "cpu, 2 threads, batch 8, 64 word pieces"
    named = result.model_copy(update={"title": "cpu-t2", "length": "data"})
    assert describe_target(named) == "2 threads, batch 8, lengths of the data"


def test_markdown_cells_are_escaped():
    assert markdown_cell("a|b*c_d`e<f\ng\\") == r"a\|b\*c\_d\`e\<f g" + "\\\\"
    assert markdown_cell("[a](https://b.c) [1]") == r"[a]\(https://b.c) [1]"


@pytest.fixture
def browser():
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    binaries = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if not all(binaries):
        pytest.skip("chromium or its driver is not installed")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = binaries[0]
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(binaries[1]))
    yield driver
    driver.quit()


def show(driver, page, width, scheme):
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    driver.get(page.as_uri())


def charts(driver, width):
    """The number of visible charts; each lies inside the page."""
    result = driver.find_elements("css selector", ".card > svg, .card div > svg")
    shown = [svg for svg in result if svg.is_displayed()]
    assert all(svg.rect["x"] >= 0 and svg.rect["x"] + svg.rect["width"] <= width for svg in shown)
    return len(shown)


@pytest.mark.browser
def test_the_page_fits_a_desktop_and_a_phone(browser, make_report, tmp_path):
    write_pages(tmp_path, apply_gates(make_report()))
    grounds = set()
    for width, scheme in ((1280, "light"), (375, "dark")):
        show(browser, tmp_path / "report.html", width, scheme)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        verdict = browser.find_element("css selector", ".verdict")
        assert "pruned/onnx-int8" in verdict.text
        assert verdict.rect["y"] < 200
        assert charts(browser, width) == 1
        grounds.add(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2
    assert browser.get_log("browser") == []


@pytest.mark.browser
def test_a_desktop_shows_the_whole_ledger_and_a_phone_its_first_columns(browser, make_report, tmp_path):
    write_pages(tmp_path, apply_gates(make_report()))
    for width in (1440, 390):
        show(browser, tmp_path / "report.html", width, "light")
        scroller, hint = (browser.find_element("css selector", name) for name in (".scroll", ".more"))
        client, whole = (scroller.get_property(name) for name in ("clientWidth", "scrollWidth"))
        assert (whole > client) is (width == 390)
        assert hint.is_displayed() is (width == 390)
        gate = browser.find_element("css selector", "tr.win .badge")
        assert gate.rect["x"] + gate.rect["width"] <= width
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.browser
def test_details_are_folded_and_open_without_overflow(browser, make_full_report, tmp_path):
    write_pages(tmp_path, make_full_report())
    for width, scheme in ((1280, "dark"), (375, "light")):
        show(browser, tmp_path / "report.html", width, scheme)
        assert charts(browser, width) == 1
        browser.execute_script("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert charts(browser, width) == 2
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.get_log("browser") == []


def test_the_share_of_truncated_texts_is_always_shown(make_report):
    report = apply_gates(make_report())
    assert "truncated: 0.0 % of test, at 128 word pieces" in render_markdown(report)
    data = report.data.model_copy(update={"truncated": {"train": 0.125, "select": 0.0, "test": 0.01}})
    expected = "12.5 % of train, 0.0 % of select, 1.0 % of test, at 16 windows of 128 word pieces"
    task = report.task.model_copy(update={"long": "mean", "max_windows": 16})
    for page in (render_markdown, render_html):
        assert expected in page(report.model_copy(update={"data": data, "task": task}))


def test_the_documents_that_are_searched_are_counted(make_report):
    report = make_report()
    assert "documents searched" not in render_markdown(apply_gates(report))
    data = report.data.model_copy(update={"documents": 5000})
    report = apply_gates(report.model_copy(update={"data": data}))
    for page in (render_markdown(report), render_html(report)):
        assert "872 test; documents searched on test: 5,000" in page
