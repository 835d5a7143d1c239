"""The page of a probe: names that would do harm are text, and Chromium finds nothing wrong with it."""

from pathlib import Path

import pytest

from compress.measure.result_base import Score
from compress.probe.probe_page import probe_page
from compress.probe.probe_result import (
    HeadPatterns,
    LayerChanged,
    LayerGeometry,
    LayerScore,
    ModelChange,
    ModelFacts,
    ProbeReport,
    TaskScores,
)
from tests.chromium import chromium

HOSTILE = '<img src=x onerror="document.title=1"> & "quoted" </script>'
NAMES = ("embeddings", "0", "1")


@pytest.fixture
def report() -> ProbeReport:
    """A probe of two layers with two heads each."""
    score = Score(value=0.5, low=0.4, high=0.6)
    layers = tuple(
        LayerScore(layer=name, score=score, compression=1.2, selectivity=0.1, weight=0.5) for name in (*NAMES, "mean")
    )
    scores = TaskScores(
        model=HOSTILE,
        task=HOSTILE,
        metric="accuracy",
        classes=2,
        reads="word",
        fitted=100,
        scored=50,
        floor=0.5,
        layers=layers,
        best="0",
        best_between=("0", "1"),
        equal=("1",),
    )
    heads = HeadPatterns(
        model=HOSTILE,
        per_layer=(2, 2),
        shares=((0.1, 0.2, 0.3),) * 4,
        patterns=("first", "separator", "itself"),
        pattern=("broad",) * 4,
        distance=(1.0,) * 4,
        entropy=(1.0,) * 4,
        alike=((0, 1, 0.1),),
        divergence=((0.0, 0.1, 0.2, 0.3),) * 4,
        tokens=10,
    )
    geometry = tuple(LayerGeometry(layer=name, anisotropy=0.1, dimension=None) for name in NAMES)
    change = ModelChange(
        earlier="a",
        later=HOSTILE,
        words=100,
        cka=((1.0, 0.5, 0.2),) * 3,
        earlier_layers=NAMES,
        layers=tuple(LayerChanged(layer=name, most_like="0", likeness=0.9, same_depth=score) for name in NAMES),
        heads=(("broad", 4, 2),),
    )
    return ProbeReport(
        models=(ModelFacts(model=HOSTILE, layers=2, geometry=geometry, heads=heads),),
        tasks=(scores,),
        changes=(change,),
        left_out={"length": HOSTILE},
        rows=100,
        seconds=1.0,
        cpu="A Processor",
        created="2026-11-27T00:00:00Z",
    )


def test_names_are_escaped(report: ProbeReport) -> None:
    page = probe_page(report)
    assert "<img" not in page
    assert "broad 2 of 4" in page


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_accessible(report: ProbeReport, tmp_path: Path, width: int, scheme: str) -> None:
    package = pytest.importorskip("axe_core_python")
    axe = (Path(package.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    (tmp_path / "probe.html").write_text(probe_page(report), encoding="utf-8")
    with chromium(tmp_path) as driver:
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        driver.get((tmp_path / "probe.html").as_uri())
        driver.execute_script("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert driver.execute_script("return document.documentElement.scrollWidth <= innerWidth")
        driver.execute_script(axe)
        found = driver.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
        assert [each["id"] for each in found["violations"]] == []
