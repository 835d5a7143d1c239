"""A finished tiny run, and runs of it with changed settings or data."""

import json
import shutil
from pathlib import Path

import pytest

import compress
from compress.cli import main
from compress.errors import UsageError
from compress.measure import Latency
from compress.model_folder.model_info import read_info
from compress.pipeline.commands.plan_command import preview
from compress.pipeline.run import Options, prepare
from compress.pipeline.run_lock import named_steps
from compress.pipeline.steps import measure_step
from compress.probe.probe_result import ProbeReport
from compress.report.report_schema import read_report
from compress.train.precision import PrecisionChoice
from tests.conftest import write_tiny_recipe


@pytest.fixture
def copy(finished_run: Path, tmp_path: Path) -> Path:
    """A copy of the finished run that a test may change; it publishes into a zoo of its own."""
    folder = Path(shutil.copytree(finished_run.parent, tmp_path / "copy", symlinks=True))
    recipe = folder / "tiny.yaml"
    shared, own = str(finished_run.parent / "zoo"), str(folder / "zoo")
    text = recipe.read_text(encoding="utf-8")
    assert shared in text
    recipe.write_text(text.replace(shared, own), encoding="utf-8")
    shutil.rmtree(own)
    assert rerun(folder) == (0, ["publish"])
    return folder


def events(folder: Path) -> list[tuple[str, str]]:
    lines = (folder / "runs" / "tiny" / "events.jsonl").read_text().splitlines()
    return [(entry["step"], entry["event"]) for entry in map(json.loads, lines)]


TIMED = ("--set", "measure.memory=[]")
"""For runs that time anew: what the memory of variants is, is in the finished run."""


def rerun(folder: Path, *arguments: str) -> tuple[int, list[str]]:
    """Run the copy again; which steps ran."""
    before = len(events(folder))
    code = main(["run", str(folder / "tiny.yaml"), "--runs", str(folder / "runs"), "--format", "quiet", *arguments])
    return code, [step for step, event in events(folder)[before:] if event == "finished"]


def test_run_folder_has_the_documented_files(finished_run: Path) -> None:
    names = {path.name for path in finished_run.iterdir()}
    assert {"recipe.yaml", "lock.json", "events.jsonl", "report.json", "report.md", "report.html", "winner"} <= names


def test_values_of_auto_settings_are_in_the_report_and_beside_the_recipe(finished_run: Path) -> None:
    """The recovery's learning rate is the only one that the recipe leaves to `auto`, beside all precisions."""
    (name, chosen), *others = read_report(finished_run).chosen.items()
    assert (name, list(chosen), others) == ("pruned", ["learning_rate"], [])
    written = (finished_run / "recipe.yaml").read_text(encoding="utf-8")
    text = chosen["learning_rate"].text
    precisions = read_report(finished_run).precisions
    assert list(precisions) == ["teacher", "student", "pruned"]
    assert written.startswith(f"# Settings left to auto were:\n#   teacher: precision {precisions['teacher']}\n")
    assert f"#   pruned: learning_rate {text}, precision {precisions['pruned']}\n" in written
    assert precisions["pruned"] in (finished_run / "report.md").read_text(encoding="utf-8")
    assert prepare(finished_run / "recipe.yaml").recipe.prune.recover.learning_rate == "auto"
    assert text in (finished_run / "report.md").read_text(encoding="utf-8")


def test_values_of_auto_settings_are_beside_the_recipe_before_there_is_a_report(recipe_file: Path) -> None:
    runs = recipe_file.parent / "runs"
    arguments = ["run", str(recipe_file), "--runs", str(runs), "--format", "quiet", "--until", "finetune"]
    assert main([*arguments, "--set", "finetune.batch_size=auto"]) == 0
    written = (runs / "tiny" / "recipe.yaml").read_text(encoding="utf-8")
    assert written.startswith("# Settings left to auto were:\n#   teacher: batch_size 16 (")


@pytest.mark.slow
def test_a_finished_training_is_not_redone_where_another_precision_would_be_chosen(
    recipe_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = recipe_file.parent / "runs"
    arguments = ["run", str(recipe_file), "--runs", str(runs), "--format", "quiet", "--until", "finetune"]
    for precision in ("bf16", "fp32"):
        choice = PrecisionChoice(precision=precision, reason=f"{precision} was faster")
        monkeypatch.setattr("compress.train.loop.choose_precision", lambda *_, choice=choice: choice)
        assert main(arguments) == 0
    (folder,) = (runs / ".steps").glob("finetune-*")
    training, record = read_info(folder).training, json.loads((folder / "step.json").read_bytes())
    assert training is not None
    assert training.chosen_precision == "bf16 (bf16 was faster)"
    assert (record["rates"]["precision"], record["rates"]["precision_reason"]) == ("bf16", "bf16 was faster")
    assert [step for step, event in events(recipe_file.parent) if event == "finished"].count("finetune") == 1


def test_every_row_was_scored_and_timed(finished_run: Path) -> None:
    report = read_report(finished_run)
    assert [row.key for row in report.rows] == [
        f"{model}/{variant}"
        for model in ("teacher", "student", "pruned")
        for variant in ("torch-fp32", "onnx-fp32", "onnx-int8")
    ]
    for row in report.rows:
        assert row.status == "ok", row.reason
        result = report.result(row.key, "cpu")
        assert result is not None
        assert result.test is not None
        assert result.latency.timed
    assert report.verdicts[0].winner is not None
    assert report.floor is not None
    assert report.probe is not None
    assert report.probe.versus_teacher is not None
    assert report.probe_name in ("a linear probe (mean)", "a linear probe (cls)")
    assert report.probe_name.removeprefix("a ") in (finished_run / "report.md").read_text(encoding="utf-8")
    assert not list((finished_run / "winner").rglob("answers.npz"))
    assert report.data.rows == {"train": 152, "select": 8, "test": 60}


def test_lineage_leads_from_the_winner_to_the_data(finished_run: Path) -> None:
    info = read_info(finished_run / "winner" / "cpu")
    assert {parent.step for parent in info.parents} >= {"data"}
    assert info.recipe is not None
    assert info.recipe["student"]["layers"] == 1


def test_only_what_leaves_the_run_is_named_as_it(finished_run: Path) -> None:
    steps = finished_run.parent / "runs" / ".steps"
    tasks = [read_info(path.parent).task for path in steps.glob("*/compress.json")]
    assert {task.name for task in tasks if task} == {"classification"}
    winner = read_info(finished_run / "winner" / "cpu").task
    assert winner is not None
    assert winner.name == "tiny"
    assert read_report(finished_run).task.name == "tiny"


def test_the_report_states_the_seeds(finished_run: Path) -> None:
    report = read_report(finished_run)
    assert (report.recipe["seed"], report.data.split_seed) == (0, 0)
    for page in ("report.md", "report.html"):
        assert "0 of trainings, 0 of splits" in (finished_run / page).read_text()


def test_published_files_contain_no_local_paths(finished_run: Path) -> None:
    published = finished_run.parent / "zoo" / "tiny@1"
    with_paths = [
        path
        for path in published.rglob("*")
        if path.is_file() and str(finished_run.parent).encode() in path.read_bytes()
    ]
    assert with_paths == []


def test_unchanged_run_skips_every_step(copy: Path) -> None:
    assert rerun(copy) == (0, [])


@pytest.mark.slow
def test_changed_setting_reruns_only_dependent_steps(copy: Path) -> None:
    code, ran = rerun(copy, "--set", "prune.ffn=0.25", "--until", "score")
    assert code == 0
    assert {"cut", "recover"} <= set(ran)
    assert "score-pruned-onnx-int8-cpu-b1" in ran
    assert not {"data", "finetune", "distill", "floor", "score-student-onnx-fp32-cpu-b32"} & set(ran)


def test_a_recipe_of_another_name_with_another_gate_trains_nothing(copy: Path) -> None:
    recipe = copy / "cola.yaml"
    recipe.write_text((copy / "tiny.yaml").read_text())
    command = ["run", str(recipe), "--runs", str(copy / "runs"), "--format", "quiet", "--set", "gate.max_drop=0.9"]
    assert main(command) == 0
    lines = map(json.loads, (copy / "runs" / "cola" / "events.jsonl").read_text().splitlines())
    assert [line["step"] for line in lines if line["event"] == "finished"] == ["select", "package", "report", "publish"]
    assert read_report(copy / "runs" / "cola").task.name == "cola"


def test_checkpoint_intervals_and_paths_rerun_no_training(copy: Path) -> None:
    moved = copy / "elsewhere.csv"
    (copy / "train.csv").rename(moved)
    code, ran = rerun(copy, "--set", "finetune.checkpoint.steps=3", "--set", f"task.data.train={moved}")
    assert (code, ran) == (0, ["package", "report", "publish"])  # these contain the recipe with the names of files


@pytest.mark.slow
def test_changed_data_reruns_everything(copy: Path) -> None:
    with (copy / "train.csv").open("a") as stream:
        stream.write("one more sunny day,sunny\n")
    # The recipe of the copy names the files of the original, so the copy's are named here.
    code, ran = rerun(copy, "--set", f"task.data.train={copy}/train.csv", "--until", "finetune")
    assert (code, ran) == (0, ["data", "finetune"])


def test_from_reruns_a_step_and_its_dependents(copy: Path) -> None:
    code, ran = rerun(copy, "--from", "quantize-pruned-onnx-int8", "--until", "score")
    assert code == 0
    assert ran == [f"{kind}-pruned-onnx-int8" for kind in ("quantize", "fallback")] + ["score-pruned-onnx-int8-cpu-b1"]


@pytest.mark.slow
def test_a_further_method_that_is_not_worth_it_is_screened_out(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compress.export.tune_ort_session.time_folders", lambda folders, *_: [1.0, 2.0, 0.5])
    methods = "quantize.methods=[dynamic,static-minmax,static-entropy]"
    code, ran = rerun(copy, "--set", methods, *TIMED)
    assert code == 0
    assert {"screen-pruned", "quantize-pruned-onnx-int8-minmax", "score-pruned-onnx-int8-entropy-cpu-b32"} <= {*ran}
    assert not {"score-pruned-onnx-int8-minmax-cpu-b32", "tune-pruned-onnx-int8-minmax"} & {*ran}
    report = read_report(copy / "runs" / "tiny")
    slow, fast = (report.row(f"pruned/onnx-int8-{ranges}") for ranges in ("minmax", "entropy"))
    assert slow is not None
    assert fast is not None
    assert slow.status == "not measured"
    assert "in a short timing it takes 2.00 times as long as onnx-int8" in (slow.reason or "")
    result = report.result(fast.key, "cpu")
    assert result is not None
    assert (fast.status, result.latency.timed) == ("ok", True)
    assert report.row("student/onnx-int8-entropy") is None
    assert fast.fallback is not None
    assert fast.fallback.loss.outcome == "passed"
    again, ran = rerun(copy, "--set", methods, *TIMED)
    assert (again, ran) == (0, [])
    options = Options(runs=copy / "runs")
    states = {
        row["step"]: row["state"] for row in preview(prepare(copy / "tiny.yaml", [methods, TIMED[1]], options), options)
    }
    assert {name for name, state in states.items() if state == "skipped"} == {
        f"{step}-pruned-onnx-int8-minmax{target}"
        for step, target in (("admit", ""), ("score", "-cpu-b32"), ("tune", ""))
    }
    assert {*states.values()} == {"done", "skipped"}


def test_damaged_step_is_rerun(copy: Path) -> None:
    (next((copy / "runs" / ".steps").glob("floor-*")) / "step.json").write_text("{")
    code, ran = rerun(copy)
    assert code == 0
    assert "floor" in ran


def test_missed_gate_exits_with_3_and_writes_the_report(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Every class may lose nothing and strictly so: no noisy tiny model passes.
    code, _ = rerun(copy, "--set", "gate.max_drop=0", "--set", "gate.strict=true", "--set", "quantize.max_drop=0")
    report = read_report(copy / "runs" / "tiny")
    if report.verdicts[0].winner is None:
        assert code == 3
        said = capsys.readouterr()
        assert "no winner: cpu:" in said.err
        assert "no winner" not in said.out  # said once
    else:
        assert code == 0


def test_unknown_step_names_the_nearest_step(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert rerun(copy, "--from", "distil")[0] == 2
    assert "did you mean distill" in capsys.readouterr().err


@pytest.mark.slow
def test_failed_variant_does_not_end_the_run(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from compress.errors import ModelError
    from compress.variants import Variant

    def refuse(self: Variant, *args: object, **kwargs: object) -> None:
        raise ModelError("no such luck")

    monkeypatch.setattr(Variant, "make", refuse)
    code, ran = rerun(copy, "--from", "quantize-pruned-onnx-int8", *TIMED)
    report = read_report(copy / "runs" / "tiny")
    row = report.row("pruned/onnx-int8")
    assert code == 1
    assert "measure" in ran
    assert row is not None
    assert (row.status, row.reason) == ("failed", "quantize-pruned-onnx-int8: no such luck")
    monkeypatch.undo()
    assert rerun(copy, *TIMED)[0] == 0
    assert read_report(copy / "runs" / "tiny").row("pruned/onnx-int8").status == "ok"  # type: ignore[union-attr]


@pytest.mark.slow
def test_failed_training_does_not_end_the_run(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from compress.errors import ModelError

    def refuse(*args: object, **kwargs: object) -> None:
        raise ModelError("no such luck")

    monkeypatch.setattr("compress.train.distill.distill", refuse)
    code, ran = rerun(copy, "--from", "distill", *TIMED)
    report = read_report(copy / "runs" / "tiny")
    assert code == 1
    assert "distill: no such luck" in capsys.readouterr().err
    assert {"measure", "select", "report"} <= set(ran)
    status = {row.model: (row.status, row.reason) for row in report.rows if row.variant.name == "torch-fp32"}
    assert status["teacher"] == ("ok", None)
    assert status["student"] == ("failed", "no such luck")
    assert status["pruned"] == ("failed", "distill: no such luck")
    assert report.result("teacher/onnx-int8", "cpu").latency.timed  # type: ignore[union-attr]


@pytest.mark.slow
def test_missing_target_is_reported_as_not_measured(copy: Path) -> None:
    code, _ = rerun(copy, "--set", "targets=[cpu, cuda]", *TIMED)
    report = read_report(copy / "runs" / "tiny")
    missing = next(target for target in report.targets if target.title == "cuda")
    if missing.present:
        pytest.skip("this machine has a CUDA device")
    assert code == 0
    assert missing.reason
    assert all(each.latency.status == "not measured" for each in report.results if each.target == "cuda")


@pytest.mark.slow
def test_a_run_without_any_target_here_fails(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = rerun(copy, "--set", "targets=[cuda]")
    report = read_report(copy / "runs" / "tiny")
    if report.targets[0].present:
        pytest.skip("this machine has a CUDA device")
    assert code == 1
    assert "no target of this recipe is on this machine" in capsys.readouterr().err
    assert not (copy / "runs" / "tiny" / "winner" / "cpu").exists()


@pytest.mark.slow
def test_earlier_recipe_restores_its_winner(copy: Path) -> None:
    winner = copy / "runs" / "tiny" / "winner" / "cpu"
    before = read_info(winner)
    assert rerun(copy, "--set", "gate.max_drop=0.9")[0] == 0
    assert read_info(winner) != before
    assert rerun(copy) == (0, ["publish"])  # the zoo holds the other recipe's winner
    assert read_info(winner) == before


@pytest.mark.slow
def test_the_report_of_a_changed_recipe_is_kept(copy: Path) -> None:
    run = copy / "runs" / "tiny"
    shown, winner = read_report(run), read_info(run / "winner" / "cpu")
    assert rerun(copy, "--set", "gate.max_drop=0.9")[0] == 0
    (kept,) = (run / "previous").iterdir()
    assert read_report(kept) == shown
    assert read_info(kept / "winner" / "cpu") == winner
    assert main(["clean", "--runs", str(copy / "runs"), "--format", "quiet"]) == 0
    assert {path.name for path in (copy / "runs" / ".steps").iterdir()} >= named_steps(kept / "lock.json")
    assert rerun(copy, "--set", "gate.max_drop=0.9")[0] == 0  # the same recipe again
    assert [path.name for path in (run / "previous").iterdir()] == [kept.name]
    assert rerun(copy)[0] == 0
    assert len([*(run / "previous").iterdir()]) == 2


def test_a_run_that_stops_early_leaves_the_report_its_steps(copy: Path) -> None:
    run = copy / "runs" / "tiny"
    before = named_steps(run / "lock.json")
    assert rerun(copy, "--set", "seed=1", "--until", "data")[0] == 0
    assert named_steps(run / "lock.json") > before
    row = read_report(run).verdicts[0].winner
    publishing = ["publish", "tiny", "--runs", str(copy / "runs"), "--to", str(copy / "other"), "--row", row]
    assert main(publishing) == 0
    assert read_info(copy / "other" / "tiny@1").variant.name == row.partition("/")[2]


def test_run_that_stops_early_names_the_result_of_its_last_step(tmp_path: Path, capsys) -> None:
    recipe, runs = write_tiny_recipe(tmp_path), tmp_path / "runs"
    assert main(["run", str(recipe), "--runs", str(runs), "--until", "data"]) == 0
    (folder,) = (runs / ".steps").glob("data-*")
    assert f"data is in {folder}" in capsys.readouterr().err


@pytest.mark.slow
def test_run_that_stops_early_keeps_the_steps_of_the_earlier_report(copy: Path) -> None:
    shown = read_report(copy / "runs" / "tiny")
    assert rerun(copy, "--set", "task.data.split_seed=1", "--until", "data") == (0, ["data"])
    assert main(["clean", "--runs", str(copy / "runs"), "--format", "quiet"]) == 0
    assert read_report(copy / "runs" / "tiny") == shown
    assert rerun(copy) == (0, [])


@pytest.mark.slow
def test_run_function_returns_the_report(finished_run: Path) -> None:
    report = compress.run(finished_run.parent / "tiny.yaml", runs=finished_run.parent / "runs")
    assert report.name == "tiny"


def test_a_mapping_is_a_recipe(tmp_path: Path, recipe_file: Path) -> None:
    recipe = {
        "task": {"kind": "classification", "data": {"train": str(recipe_file.parent / "train.csv"), "test_share": 0.2}},
        "teacher": str(recipe_file.parent / "teacher"),
    }
    plan = prepare(recipe, ["finetune.epochs=1"], Options(runs=tmp_path))
    assert plan.recipe.finetune
    assert plan.recipe.finetune.epochs == 1
    assert [step.kind for step in plan.steps if step.trains] == ["finetune"]


def test_missing_teacher_is_a_usage_error(tmp_path: Path, recipe_file: Path) -> None:
    with pytest.raises(UsageError, match="did you mean minilm-l6"):
        prepare(recipe_file, ["teacher=minilm-l9"], Options(runs=tmp_path))


class TestCommandsOnAFinishedRun:
    def test_report(self, finished_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["report", "tiny", "--runs", str(finished_run.parent / "runs")]) == 0
        assert "» won" in capsys.readouterr().out

    def test_plan_lists_every_step_as_done(self, finished_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
        recipe, runs = str(finished_run.parent / "tiny.yaml"), str(finished_run.parent / "runs")
        assert main(["plan", recipe, "--runs", runs, "--format", "json"]) == 0
        assert {row["state"] for row in json.loads(capsys.readouterr().out)["steps"]} == {"done"}

    def test_plan_forecasts_from_earlier_runs(self, copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
        arguments = ["--runs", str(copy / "runs"), "--format", "json", "--set", "distill.epochs=4"]
        assert main(["plan", str(copy / "tiny.yaml"), *arguments]) == 0
        rows = {row["step"]: row for row in json.loads(capsys.readouterr().out)["steps"]}
        assert rows["finetune"]["state"] == "done"
        assert rows["distill"]["state"] == "to do"
        assert rows["distill"]["seconds"] > 0

    def test_plan_states_the_bounds_of_epochs(self, copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
        arguments = ["--runs", str(copy / "runs"), "--format", "json", "--set", "distill.epochs=auto"]
        arguments += ["--set", "prune.recover.minutes=0.001"]
        assert main(["plan", str(copy / "tiny.yaml"), *arguments]) == 0
        rows = {row["step"]: row for row in json.loads(capsys.readouterr().out)["steps"]}
        assert rows["distill"]["basis"].endswith("; 20 of 20 epochs expected")
        assert "epochs" not in rows["recover"]["basis"]
        assert rows["recover"]["seconds"] == pytest.approx(0.06)

    def test_ls_runs(self, finished_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["ls", "runs", "--runs", str(finished_run.parent / "runs"), "--format", "json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        report = read_report(finished_run)
        winner = report.row(report.verdicts[0].winner)
        assert winner is not None
        assert (row["name"], row["target"], row["winner"]) == ("tiny", "cpu", winner.key)
        result = report.result(winner.key, "cpu")
        assert result is not None
        assert result.test is not None
        assert (row["score"], row["bytes"]) == (result.test.primary.value, winner.bytes_total)
        assert row["p50_ms"] == getattr(result.latency.quantile("p50"), "value", None)
        assert row["created"] == report.created
        assert main(["ls", "runs", "--runs", str(finished_run.parent / "runs")]) == 0
        shown = capsys.readouterr().out
        assert f"accuracy {100 * row['score']:.1f}" in shown
        assert report.created[:4] in shown

    @pytest.mark.slow
    def test_export_and_predict(self, finished_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        student = next((finished_run.parent / "runs" / ".steps").glob("distill-*"))
        out = str(tmp_path / "out")
        assert main(["export", str(student), out, "--quantize", "int8"]) == 0
        assert main(["export", str(student), out]) == 2
        capsys.readouterr()
        assert main(["predict", out, "blue sky", "grey cloud", "--format", "json"]) == 0
        answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [set(answer) for answer in answers] == [{"text", "label", "probability"}] * 2

    def test_publish_under_another_name(self, copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
        zoo = copy / "other-zoo"
        assert main(["publish", "tiny", "--runs", str(copy / "runs"), "--to", str(zoo), "--name", "weather"]) == 0
        assert (zoo / "weather@1" / "README.md").is_file()
        assert main(["verify", str(zoo / "weather")]) == 0
        (zoo / "weather@1" / "config.json").write_text("{}")
        assert main(["verify", str(zoo / "weather")]) == 1


@pytest.mark.slow
def test_a_probe_is_a_step_of_its_own_and_the_report_links_to_it(copy: Path) -> None:
    code, steps = rerun(copy, "--set", "probe=true", *TIMED)
    folder = copy / "runs" / "tiny"
    assert code == 0
    assert {"probe", "report"} <= {*steps}
    assert not {"finetune", "distill", "prune"} & {*steps}
    found = ProbeReport.model_validate_json((folder / "probe.json").read_bytes())
    assert [each.model for each in found.models] == ["encoder", "teacher", "student", "pruned"]
    assert [(each.earlier, each.later) for each in found.changes] == [
        ("encoder", "teacher"),
        ("teacher", "student"),
        ("student", "pruned"),
    ]
    assert found.changes[-1].heads is not None
    assert 'href="probe.html"' in (folder / "report.html").read_text(encoding="utf-8")
    code, steps = rerun(copy, *TIMED)
    assert code == 0
    assert "probe" not in steps
    assert not (folder / "probe.html").exists()


def test_results_that_may_not_belong_together_are_not_published(copy: Path, monkeypatch, capsys) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("compress.pipeline.run.copy_winners", stop)
    assert rerun(copy)[0] == 130
    publish = ["publish", "tiny", "--runs", str(copy / "runs"), "--to", str(copy / "other")]
    assert main(publish) == 1
    assert "may not belong together" in capsys.readouterr().err
    monkeypatch.undo()
    assert rerun(copy)[0] == 0
    assert main(publish) == 0


def test_timings_whose_processes_died_are_tried_again(copy: Path, monkeypatch) -> None:
    def killed(jobs, *_, **__):
        return {job.key: Latency(status="failed", reason="killed by SIGKILL", died=True) for job in jobs}

    monkeypatch.setattr(measure_step, "time_jobs", killed)
    assert rerun(copy, "--from", "measure", *TIMED)[0] != 0
    assert rerun(copy, *TIMED)[1][0] == "measure"  # again, and what ends in the same way twice is a result
    assert "measure" not in rerun(copy, *TIMED)[1]
    assert rerun(copy, "--from", "measure", *TIMED)[0] != 0
    monkeypatch.undo()
    code, steps = rerun(copy, *TIMED)
    assert (code, steps[0]) == (0, "measure")


@pytest.mark.parametrize("form", ["human", "json"])
@pytest.mark.parametrize(("arguments", "code"), [(["--until", "nope"], 2), (["--until", "data"], 0)])
def test_a_dry_run_ends_where_the_run_would(arguments, code, form, finished_run: Path, capsys) -> None:
    command = ["run", str(finished_run.parent / "tiny.yaml"), "--runs", str(finished_run.parent / "runs"), "--dry-run"]
    assert main([*command, "--format", form, *arguments]) == code
    shown = capsys.readouterr()
    if code:
        assert "no step 'nope'" in json.dumps(shown.out + shown.err)
    elif form == "human":
        assert "reading rows" in shown.out
        assert "timing" not in shown.out
    else:
        assert [row["step"] for row in json.loads(shown.out)["steps"]] == ["data"]
