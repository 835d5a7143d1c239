import io

import pytest

from compress.console import Console
from compress.measure.bench.bench_command import quiet_rows, reached_precision, show, tables
from compress.measure.bench.bench_result import Bench, BenchModel, Comparison, TimedModel
from compress.measure.resources.footprint import Footprint
from compress.measure.result_base import Score
from compress.measure.roofline.roofline import KernelRate, LimitShares, MachineLimits
from compress.measure.timing.latency import Latency, Timing, UnderLoad
from compress.recipe.measure_schema import Measure


def latency(value, half=0.01, **more):
    p50 = Score(value=value, low=value * (1 - half), high=value * (1 + half))
    timing = Timing(p50=p50, p95=p50, p99=None, spread=0.0, calls=30, round_medians=(value,) * 3, processes=(0, 1, 2))
    return Latency(**{"status": "measured", "model": timing, "rows_per_second": 1e3 / value, **more})


def times(base, other):
    if base.model is None or other.model is None:
        return None
    value = base.model.p50.value / other.model.p50.value
    return Score(value=value, low=0.95 * value, high=1.05 * value)


FAILED = Latency(status="failed", reason="the process ended with exit code 1")


def session(batch=1, against="a", **result):
    models = {name: TimedModel(latency=each, ratio=times(result[against], each)) for name, each in result.items()}
    title = f"cpu, 1 thread, batch {batch}, 64 pieces"
    return Comparison(title=title, device="cpu", threads=1, batch=batch, length=64, models=models, seconds=12.0)


def made(*targets, grid=(), against="a"):
    size = Footprint(parameters=None, embedding_parameters=None, bytes_total=2_000_000, bytes_weights=1_000_000)
    names = (targets or grid)[0].models
    return Bench(
        created="2030-01-01T00:00:00+00:00",
        made_by="tests",
        against=against,
        models=tuple(BenchModel(name=name, footprint=size) for name in names),
        settings=Measure(),
        targets=targets,
        grid=grid,
    )


def test_table_has_ratios_to_the_base_with_intervals():
    compared, *_ = tables(made(session(a=latency(4.0), b=latency(2.0), c=FAILED)))
    assert compared.title.endswith("times faster than a")
    assert [row["faster"].split()[0] for row in compared.rows] == ["1", "2.00", "–"]
    assert compared.rows[0]["p50 ms"] == "4.00 [3.96, 4.04]"
    assert "c: failed: the process ended with exit code 1" in compared.lines


def test_base_without_figure_suggests_another_base():
    compared, *_ = tables(made(session(a=FAILED, b=latency(2.0))))
    assert compared.rows[1]["faster"] == "–"
    assert any("--against b" in line for line in compared.lines)


def test_one_model_has_no_ratios():
    compared, *_ = tables(made(session(a=latency(4.0))))
    assert "faster" not in compared.rows[0]
    assert "faster" not in compared.title


def test_costs_without_values_have_no_column():
    _, costs = tables(made(session(a=latency(4.0, first_answer_seconds=1.234), b=FAILED)))
    assert [row["model"] for row in costs.rows] == ["a"]
    assert list(costs.columns) == ["model", "rows/s", "first answer s", "size MB"]
    assert costs.rows[0]["first answer s"] == "1.23"


def test_energy_has_its_source_or_a_reason():
    metered = latency(4.0, joules_per_row=0.0123, energy="RAPL package-0")
    costs = list(tables(made(session(a=metered))))[1]
    assert costs.rows[0]["mJ/row"] == "12.3"
    assert costs.lines == ("energy: RAPL package-0",)


def test_known_limits_and_shares_are_shown():
    kernel = KernelRate(value=84.2e9, kernel="a product", size="8 x 8 x 8")
    limits = MachineLimits(
        device="cpu",
        device_name="a processor",
        threads=1,
        fp32=kernel,
        bandwidth=12.34e9,
        measured_at="now",
        fingerprint="f",
    )
    one = session(a=latency(4.0))
    timed = one.models["a"].model_copy(update={"shares": LimitShares(compute=0.4249)})
    result = made(one.model_copy(update={"models": {"a": timed}})).model_copy(update={"limits": (limits,)})
    costs = list(tables(result))[1]
    assert costs.rows[0]["of matrix limit"] == "42.5%"
    assert costs.lines == ("this machine's limits: fp32 84.2 G operations/s, memory 12.3 GB/s",)


def test_callers_have_a_table_of_their_own():
    load = (UnderLoad(callers=2, rows_per_second=1234.5, p50=1.0, p95=None, calls=9),)
    *_, table = tables(made(session(a=latency(4.0, under_load=load), b=latency(4.0))))
    assert table.rows == ({"model": "a", "callers": "2", "rows/s": "1234", "p50 ms": "1", "p95 ms": "–"},)
    assert table.lines == ()
    load = (load[0].model_copy(update={"unstable": "its laps differ by 30%"}),)
    *_, table = tables(made(session(a=latency(4.0, under_load=load), b=latency(4.0))))
    assert table.lines == ("a, 2 callers: unstable: its laps differ by 30%",)


def test_grid_table_has_a_row_per_cell_and_a_column_per_model():
    unsteady = latency(1.0, status="unstable", reason="it swayed")
    cells = (session(1, a=latency(4.0), b=unsteady), session(8, a=latency(8.0), b=FAILED))
    (grid,) = tables(made(grid=cells))
    assert list(grid.rows[0]) == ["batch and pieces", "a, p50 ms", "b"]
    assert [row["batch and pieces"] for row in grid.rows] == ["1 x 64", "8 x 64"]
    assert grid.rows[0]["b"].startswith("4.00 [")
    assert grid.rows[0]["b"].endswith(" ~")
    assert grid.rows[1]["b"] == "–"
    assert any(line.startswith("~ unstable") for line in grid.lines)
    assert "at 8 x 64: b: the process ended with exit code 1" in grid.lines


def test_reached_precision_is_the_widest_interval():
    one = session(a=latency(4.0, 0.01), b=latency(2.0, 0.2))
    within = "medians within ±20% and ratios within ±5.0%"
    assert reached_precision(one, "a", 15.0) == f"12 s of a budget of 15 s bought {within}"
    assert reached_precision(one, "a", None) == f"12 s bought {within}"


def test_unused_settings_are_not_written():
    result = made(session(a=latency(4.0)))
    settings = result.model_dump(mode="json")["settings"]
    assert {"rounds", "seconds", "budget", "callers"} <= set(settings)
    assert not {"memory", "robustness", "grid"} & set(settings)
    assert Bench.model_validate_json(result.model_dump_json()) == result


def test_small_and_missing_shares_are_not_shown_as_zero():
    one = session(a=latency(4.0), b=latency(4.0), c=latency(4.0))
    shares_by_name = {
        "a": LimitShares(compute=0.004),
        "b": LimitShares(reason="the model does not tell its shape"),
        "c": LimitShares(compute=0.5),
    }
    models = {name: timed.model_copy(update={"shares": shares_by_name[name]}) for name, timed in one.models.items()}
    _, costs = tables(made(one.model_copy(update={"models": models})))
    assert [row["of matrix limit"] for row in costs.rows] == ["0.4%", "–", "50.0%"]
    assert "no share of the matrix limit for b: the model does not tell its shape" in costs.lines


def test_quiet_has_a_line_per_model_and_session():
    result = made(session(a=latency(4.0), b=FAILED), grid=(session(a=latency(4.0), b=FAILED),))
    rows = quiet_rows(result)
    assert [(row["model"], row["status"], row["reason"]) for row in rows] == [
        ("a", "measured", None),
        ("b", "failed", FAILED.reason),
    ]
    out = io.StringIO()
    show(result, Console("quiet", out))
    assert [len(line.split("\t")) for line in out.getvalue().splitlines()] == [8, 8]


@pytest.mark.parametrize("width", [40, 80, 160])
def test_tables_are_readable_at_any_width(monkeypatch, width):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "dumb" if width == 80 else "xterm")
    load = (UnderLoad(callers=2, rows_per_second=1234.5, p50=1.0, p95=2.0, calls=90),)
    full = latency(4.0, under_load=load, first_answer_seconds=1.2, resident_memory=2**27, energy="not measured: none")
    one = session(a=full, b=full)
    out = Terminal()
    show(made(one, grid=(one,)), Console("human", out))
    text = out.getvalue()
    assert text.count("4.00 [3.96, 4.04]") == 3
    assert "resident MiB" in text
