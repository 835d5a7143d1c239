"""Formats that are built for winners only: planned, built, gated, delivered, shown and published."""

import json
import re
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from compress import variants
from compress.cli import main
from compress.console import Console
from compress.errors import CompressError, DeviceUnavailable, ModelError, StepIncomplete
from compress.export.builders import ort_format
from compress.formats import EXPORTS
from compress.measure.resources.footprint import footprint
from compress.model_folder.model_info import read_info
from compress.pipeline.preflight import preflight
from compress.pipeline.run import Options, prepare
from compress.pipeline.step_context import StepContext
from compress.pipeline.step_store import StepStore
from compress.pipeline.steps import package_format
from compress.pipeline.steps.package_step import with_scored_batch
from compress.publish.published_model import find
from compress.report.report_schema import read_report
from compress.runtime import onnx_runtime
from compress.runtime.text_model import TextModel
from compress.select.ledger import read_ledger
from compress.variants import VARIANTS, variant_in
from tests.command_process import run_script
from tests.conftest import write_tiny_recipe

EXPORT_ORT = ort_format.export_ort


def test_a_winner_states_the_batch_that_it_was_scored_in(finished_run):
    """Where its answers depend on it."""
    variant = read_info(finished_run / "winner" / "cpu").variant
    assert variant.scored_batch == (1 if variant.batch_sensitive else None)
    sensitive, other = (VARIANTS[name].info for name in ("onnx-int8", "onnx-fp32"))
    assert with_scored_batch(sensitive, 8).scored_batch == 8
    assert with_scored_batch(other, 8) == other


@pytest.fixture
def plan_of(tmp_path):
    recipe = write_tiny_recipe(tmp_path)
    return lambda *overrides: prepare(recipe, overrides, Options(runs=tmp_path / "runs"))


def test_a_format_that_does_not_compete_is_built_after_the_selection(plan_of):
    plan = plan_of("export=[onnx, ort]")
    names = [step.name for step in plan.steps]
    assert plan.packages == {"ort": "package-ort"}
    assert names.index("select") < names.index("package-ort") < names.index("package") < names.index("report")
    assert plan.step("package-ort").optional
    assert "package-ort" in plan.step("package").needs
    assert not [name for name in names if "-ort-" in name]


def test_each_format_has_a_step_of_its_own(plan_of):
    one, two = plan_of("export=[onnx, ort]"), plan_of("export=[onnx, ort, {format: openvino, compete: false}]")
    assert list(two.packages) == ["ort", "openvino"]
    assert one.step("package-ort").fingerprint == two.step("package-ort").fingerprint


def test_a_changed_builder_of_a_source_builds_a_format_again(plan_of, monkeypatch):
    def settings(form):
        return plan_of("export=[onnx, ort, litert]").step(f"package-{form}").settings

    ort, litert = settings("ort"), settings("litert")
    monkeypatch.setitem(VARIANTS, "onnx-int8", VARIANTS["onnx-int8"].model_copy(update={"version": 99}))
    assert settings("ort")["versions"] == ort["versions"] | {"onnx-int8": 99}
    assert settings("litert") == litert
    assert set(ort["versions"]) == {"ort-fp32", "ort-int8", "onnx-fp32", "onnx-int8"}


def test_a_format_may_compete(plan_of):
    plan = plan_of("export=[onnx, {format: ort, compete: true}]")
    assert plan.packages == {}
    assert {"pruned/ort-fp32", "pruned/ort-int8"} <= {entry.key for entry in plan.variants}
    assert "fallback-pruned-onnx-int8" in plan.step("quantize-pruned-ort-int8").needs  # with its layers in fp32


def test_all_means_what_can_be_built_here(plan_of, monkeypatch):
    missing = {"openvino": {"openvino": "openvino"}}
    monkeypatch.setattr(variants, "missing_extras", lambda form: missing.get(form, {}))
    monkeypatch.setattr(variants, "missing_programs", lambda form: [])
    plan = plan_of("export=[{format: ort, compete: true}, all]")
    listed = {each.format: each.compete for each in plan.recipe.export}
    assert listed["ort"] is True
    assert listed["onnx"] is True
    assert set(listed) == EXPORTS.keys() - {"openvino", "numpy"}


@pytest.fixture
def without_edge(monkeypatch):
    """As if neither ExecuTorch nor LiteRT were installed, and everything else were."""
    missing = {"executorch": {"executorch": "executorch"}, "litert": {"litert_torch": "litert"}}
    monkeypatch.setattr(variants, "missing_extras", lambda form: missing.get(form, {}))
    monkeypatch.setattr(variants, "missing_programs", lambda form: [])


LEFT_OUT = (
    "export: all leaves out executorch: not installed: executorch; pip install 'compress-encoders[executorch]'",
    "export: all leaves out litert: not installed: litert_torch; pip install 'compress-encoders[litert]'",
)


@pytest.mark.parametrize("named", ["onnx", "litert"])
def test_formats_that_all_leaves_out_are_named_in_the_plan(named, without_edge, tmp_path, capsys):
    words = ["--runs", str(tmp_path / "runs"), "--set", f"export=[{named}, all]"]
    assert main(["plan", str(write_tiny_recipe(tmp_path)), *words]) == 0
    shown = capsys.readouterr().err
    expected = LEFT_OUT if named == "onnx" else LEFT_OUT[:1]  # a format that is named is not left out
    assert [line for line in shown.splitlines() if "leaves out" in line] == [f"warning: {line}" for line in expected]


def test_only_the_report_depends_on_formats_that_are_left_out(plan_of, without_edge):
    short, long = plan_of("export=[onnx, all]"), plan_of("export=[onnx, ort, openvino, web]")
    prints = [{step.name: step.fingerprint for step in plan.steps} for plan in (short, long)]
    assert {name for name in prints[0] if prints[0][name] != prints[1][name]} == {"report", "publish"}
    assert not long.left_out


def test_a_format_competes_on_devices_where_it_runs(tmp_path, capsys):
    words = ["--set", "export=[onnx, {format: ort, compete: true}]", "--set", "targets=[cuda]"]
    assert main(["plan", str(write_tiny_recipe(tmp_path)), "--runs", str(tmp_path / "runs"), *words]) == 2
    message = "export.1.compete: ort runs on cpu, and the targets on cuda; without compete it is built for winners"
    assert message in capsys.readouterr().err


def test_a_missing_extra_of_a_format_is_named_before_the_run(plan_of, tmp_path, monkeypatch):
    monkeypatch.setattr(preflight, "missing_extras", lambda form: {"absent_library": form})
    plan = plan_of("export=[onnx, ort]")
    findings = preflight.check(plan, StepStore(tmp_path / "runs"), set())
    assert "not installed: absent_library; pip install 'compress-encoders[ort]'" in findings.missing


@pytest.mark.parametrize("entry", ["web", "{format: web, compete: true}"])
def test_missing_programs_of_a_format_are_named_before_the_run(entry, plan_of, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("COMPRESS_CACHE", str(tmp_path / "cache"))
    findings = preflight.check(plan_of(f"export=[onnx, {entry}]"), StepStore(tmp_path / "runs"), set())
    (reason,) = [each for each in findings.missing if "node" in each]
    assert reason == "not installed: node, npm, which building the format web runs"


def test_all_leaves_out_formats_whose_programs_are_missing(plan_of, tmp_path, monkeypatch):
    monkeypatch.setattr(variants, "missing_extras", lambda form: {})
    monkeypatch.setenv("PATH", str(tmp_path))
    assert {each.format for each in plan_of("export=[all]").recipe.export} == EXPORTS.keys() - {"web", "numpy"}


def test_the_precision_is_the_winners():
    assert variant_in("ort", "int8").name == "ort-int8"
    assert variant_in("ort", "fp32").name == variant_in("ort", "bf16").name == "ort-fp32"
    assert variant_in("openvino", "int8").name == "openvino-int8"


@pytest.fixture(scope="module")
def packaged(finished_run, tmp_path_factory):
    """The finished run with the ORT format for its winner."""
    folder = tmp_path_factory.mktemp("packaged") / "copy"
    shutil.copytree(finished_run.parent, folder, symlinks=True)
    assert rerun(folder) == 0
    return folder


def rerun(folder, *more):
    words = ["--set", "export=[onnx, ort]", "--set", f"publish={folder / 'zoo'}", "--format", "quiet", *more]
    return main(["run", str(folder / "tiny.yaml"), "--runs", str(folder / "runs"), *words])


def test_the_format_is_delivered_beside_the_winner_and_predicts_as_it_does(packaged):
    winner = packaged / "runs" / "tiny" / "winner" / "cpu"
    own, other = read_info(winner), read_info(winner / "ort")
    assert (winner / "ort" / "model.ort").is_file()
    assert other.variant.precision == own.variant.precision
    assert [parent.step for parent in other.parents] == ["package-ort"]
    assert other.recipe == own.recipe
    texts = ["a sunny day", "a rainy day"]
    ours, theirs = TextModel.open(winner / "ort").predict(texts), TextModel.open(winner).predict(texts)
    assert [answer["label"] for answer in ours] == [answer["label"] for answer in theirs]


def test_the_report_has_its_scores_and_gate(packaged):
    report = read_report(packaged / "runs" / "tiny")
    (row,) = report.packaged
    winner = report.row(report.verdicts[0].winner)
    assert (row.target, row.format, row.winner, row.status) == ("cpu", "ort", winner.key, "ok")
    result = report.result(winner.key, "cpu")
    assert row.gate.outcome == result.gate.outcome
    assert row.test.primary == result.test.primary
    for name in ("report.md", "report.html"):
        assert "Further formats of the winners" in (packaged / "runs" / "tiny" / name).read_text()


def test_the_terminal_shows_it(packaged, capsys):
    words = ["report", str(packaged / "runs" / "tiny"), "--runs", str(packaged / "runs")]
    assert main(words) == 0
    assert "further formats of the winners" in capsys.readouterr().out


def test_it_is_published_with_the_winner_whose_size_is_its_own(packaged):
    entry = packaged / "zoo" / find(f"{packaged / 'zoo'}/tiny").folder
    assert main(["verify", str(entry), "--format", "quiet"]) == 0
    assert "ort/model.ort" in json.loads((entry / "digests.json").read_text())["files"]
    assert "| tiny/ort |" in (entry / "README.md").read_text()
    winner, alone = packaged / "runs" / "tiny" / "winner" / "cpu", packaged / "alone"
    shutil.copytree(winner, alone, ignore=shutil.ignore_patterns("ort"))
    assert footprint(winner).bytes_total == footprint(alone).bytes_total


def chosen(winners: dict[str, str]):
    """Return what reads ledgers: those of formats as they are, and others with these winners and no results."""

    def read(folder):
        ledger = read_ledger(folder) if (folder / "ledger.json").is_file() else None
        return ledger if ledger and ledger.packaged else SimpleNamespace(winners=winners, result=lambda *_: None)

    return read


@pytest.fixture
def changed(finished_run, tmp_path):
    shutil.copytree(finished_run.parent, tmp_path / "copy", symlinks=True)
    return tmp_path / "copy"


@pytest.mark.slow
def test_an_int8_winner_gets_int8_which_is_compared_with_its_own_model(changed, monkeypatch):
    def with_int8_winner(folder):
        ledger = read_ledger(folder)
        verdicts = (
            one.model_copy(update={"winner": f"{one.winner.partition('/')[0]}/onnx-int8"}) for one in ledger.verdicts
        )
        return ledger.model_copy(update={"verdicts": tuple(verdicts)})

    monkeypatch.setattr(package_format, "read_ledger", with_int8_winner)
    assert rerun(changed) == 0
    (row,) = read_report(changed / "runs" / "tiny").packaged
    assert (row.variant.name, row.gate.outcome) == ("ort-int8", "passed")
    assert row.select.versus_unquantized is not None


@pytest.mark.slow
def test_a_failing_format_stops_nothing_else(changed, monkeypatch, capsys):
    def fail(context):
        raise ModelError("the graph has an operator that the format lacks.")

    monkeypatch.setattr("compress.export.builders.ort_format.export_ort", fail)
    assert rerun(changed) == 1
    assert "package-ort: the graph has an operator that the format lacks." in capsys.readouterr().err
    (row,) = read_report(changed / "runs" / "tiny").packaged
    assert (row.status, row.reason) == ("failed", "the graph has an operator that the format lacks.")
    assert (changed / "runs" / "tiny" / "winner" / "cpu" / "compress.json").is_file()
    assert not (changed / "runs" / "tiny" / "winner" / "cpu" / "ort").exists()


@pytest.fixture
def package_ort(finished_run, tmp_path, monkeypatch):
    """Packages the ORT format for winners by target, which the finished run timed on the first one only."""

    def package_ort(**winners):
        monkeypatch.setattr(package_format, "read_ledger", chosen(winners))
        runs = finished_run.parent / "runs"
        recipe, options = finished_run.parent / "tiny.yaml", Options(runs=runs)
        targets = ", ".join(f"{{device: cpu, name: {name}}}" for name in winners)
        plan, store = prepare(recipe, ["export=[onnx, ort]", f"targets=[{targets}]"], options), StepStore(runs)
        one = prepare(recipe, ["export=[onnx, ort]"], options)
        inputs = {step.name: store.folder(step.name, step.fingerprint) for step in one.steps}
        inputs = {name: folder for name, folder in inputs.items() if folder.is_dir()}
        (tmp_path / "work").mkdir(exist_ok=True)
        context = StepContext(inputs, tmp_path / "work", Console("quiet"))
        with suppress(StepIncomplete):
            package_format.package_format(context, plan, "ort")
        return context.work, read_ledger(context.work).packaged

    return package_ort


@pytest.fixture
def built(monkeypatch):
    """The variants of the ORT format that are built; in INT8 that fails."""
    names = []

    def build_or_fail(context):
        names.append(context.variant.name)
        if context.variant.precision == "int8":
            raise ModelError("the graph has an operator that the format lacks.")
        return EXPORT_ORT(context)

    monkeypatch.setattr("compress.export.builders.ort_format.export_ort", build_or_fail)
    return names


def test_a_winner_on_several_targets_is_built_once(package_ort, built):
    work, formats = package_ort(small="pruned/onnx-fp32", large="pruned/onnx-fp32")
    assert built == ["ort-fp32"]
    assert [(row.target, row.status) for row in formats] == [("small", "ok"), ("large", "ok")]
    assert all(row.select and row.gate for row in formats)
    assert sorted(path.name for path in work.iterdir()) == ["large", "ledger.json", "small"]


def test_what_fails_for_one_target_is_delivered_for_the_others(package_ort, built):
    winners = {"small": "pruned/onnx-int8", "tiny": "pruned/onnx-int8", "large": "teacher/torch-fp32"}
    work, formats = package_ort(**winners)
    assert built == ["ort-int8", "ort-fp32"]
    assert [row.status for row in formats] == ["failed", "failed", "ok"]
    assert formats[0].reason == "the graph has an operator that the format lacks."
    assert [row.is_delivered for row in formats] == [False, False, True]
    assert sorted(path.name for path in work.iterdir()) == ["large", "ledger.json"]


def test_what_fails_for_every_target_fails(package_ort, built):
    with pytest.raises(CompressError, match=r"^the graph has an operator that the format lacks\.$"):
        package_ort(small="pruned/onnx-int8", large="pruned/onnx-int8")


def test_an_interrupted_step_keeps_the_targets_that_were_done(package_ort, monkeypatch):
    names = []

    def interrupt_the_second(context):
        names.append(context.variant.name)
        if len(names) == 2:
            (context.work / "model.ort").write_bytes(b"half")
            raise KeyboardInterrupt
        return EXPORT_ORT(context)

    monkeypatch.setattr("compress.export.builders.ort_format.export_ort", interrupt_the_second)
    winners = {"small": "pruned/onnx-fp32", "large": "pruned/onnx-int8"}
    with pytest.raises(KeyboardInterrupt):
        package_ort(**winners)
    work, formats = package_ort(**winners)
    assert names == ["ort-fp32", "ort-int8", "ort-int8"]
    assert [(row.target, row.status) for row in formats] == [("small", "ok"), ("large", "ok")]
    assert sorted(path.name for path in work.iterdir()) == ["large", "ledger.json", "small"]
    assert TextModel.open(work / "large").predict(["a sunny day"])


@pytest.mark.slow
def test_the_next_run_builds_what_failed_for_one_target_and_keeps_the_rest(changed, built, monkeypatch, capsys):
    winners = {"small": "pruned/onnx-int8", "large": "pruned/onnx-fp32"}
    targets = ["--set", f"targets=[{', '.join(f'{{device: cpu, name: {name}}}' for name in winners)}]"]
    with monkeypatch.context() as patch:
        patch.setattr(package_format, "read_ledger", chosen(winners))
        assert rerun(changed, *targets) == 1
        closing = capsys.readouterr().err
        assert "package-ort: ort for small: the graph has an operator that the format lacks." in closing
        assert "the next run tries it again" in closing
        run = changed / "runs" / "tiny"
        assert [(row.target, row.status) for row in read_report(run).packaged] == [("small", "failed"), ("large", "ok")]
        (step,) = [step for step in read_report(run).steps if step.name == "package-ort"]
        assert (step.status, "ort for small" in step.reason) == ("failed", True)
        assert (run / "winner" / "large" / "ort" / "model.ort").is_file()
        assert not (run / "winner" / "small" / "ort").exists()
        built.clear()
        patch.setattr("compress.export.builders.ort_format.export_ort", EXPORT_ORT)
        assert rerun(changed, *targets) == 0
    assert [(row.target, row.status) for row in read_report(run).packaged] == [("small", "ok"), ("large", "ok")]
    assert (run / "winner" / "small" / "ort" / "model.ort").is_file()
    assert built == []


KILLED_BUILD = """
import os, signal, sys
from compress.cli import main
from compress.export.builders import ort_format
def export_half(context):
    (context.work / "model.ort").write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
ort_format.export_ort = export_half
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_a_run_that_is_killed_while_it_packages_is_resumed(changed):
    words = ["run", str(changed / "tiny.yaml"), "--runs", str(changed / "runs"), "--set", "export=[onnx, ort]"]
    done = run_script(KILLED_BUILD, *words)
    assert done.returncode == -signal.SIGKILL
    winner = changed / "runs" / "tiny" / "winner" / "cpu"
    assert not (winner / "ort").exists()
    assert rerun(changed) == 0
    assert TextModel.open(winner / "ort").predict(["a sunny day"])
    assert not list((changed / "runs").rglob(package_format.SCRATCH))


@pytest.mark.slow
def test_without_its_runtime_a_format_is_not_scored_and_yet_delivered(changed, monkeypatch):
    def refuse(model_file, variant, placement):
        if variant.format == "ort":
            raise DeviceUnavailable("its runtime runs elsewhere.")
        return opener(model_file, variant, placement)

    opener = onnx_runtime.open_onnx
    monkeypatch.setattr(onnx_runtime, "open_onnx", refuse)
    assert rerun(changed) == 0
    (row,) = read_report(changed / "runs" / "tiny").packaged
    assert (row.outcome, row.reason) == ("not scored", "its runtime runs elsewhere.")
    delivered = changed / "runs" / "tiny" / "winner" / "cpu" / "ort"
    assert read_info(delivered).variant.parity == {}
    assert (delivered / "README.md").is_file()


@pytest.mark.slow
def test_a_format_that_loses_too_much_is_not_delivered(changed, monkeypatch, capsys):
    judged = package_format.gate

    def miss(*arguments, **options):
        reasons = ("lost 9 points against the teacher, 1 point allowed",)
        return judged(*arguments, **options).model_copy(update={"outcome": "missed", "reasons": reasons})

    monkeypatch.setattr(package_format, "gate", miss)
    assert rerun(changed) == 0
    assert "is not delivered: it lost 9 points" in capsys.readouterr().err
    (row,) = read_report(changed / "runs" / "tiny").packaged
    assert not row.is_delivered
    assert not (changed / "runs" / "tiny" / "winner" / "cpu" / "ort").exists()


@pytest.mark.parametrize("form", EXPORTS)
def test_every_format_has_a_variant_in_each_precision(form):
    full, int8 = variant_in(form, "fp32"), variant_in(form, "int8")
    assert (full.format, full.precision) == (form, "fp32")
    assert (int8.format, int8.precision) == (form, "int8")


def test_an_export_that_cannot_be_exported_names_its_model(finished_run, tmp_path, capsys):
    winner = finished_run / "winner" / "cpu"
    assert main(["export", str(winner), str(tmp_path / "out"), "--format", "onnx"]) == 2
    message = capsys.readouterr().err.replace("\n", "")
    folder = re.search(r"exported from: (\S+)", message)
    assert folder is not None, message
    assert (Path(folder[1]) / "model.safetensors").is_file()
