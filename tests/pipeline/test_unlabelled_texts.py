"""Soft labels, unlabelled texts and augmentation: through the plan, its checks, a rehearsal and a whole run."""

import json
import shutil
from pathlib import Path

import pytest

import compress
from compress.cli import main
from compress.console import Console
from compress.errors import UsageError
from compress.models.tiny import write_tiny_model
from compress.pipeline.execute import Executor
from compress.pipeline.forecast.cost_estimates import Estimates
from compress.pipeline.preflight import preflight
from compress.pipeline.preflight.model_compatibility import compatibility_errors
from compress.pipeline.preflight.preflight import absent_models
from compress.pipeline.run import Options, prepare
from compress.pipeline.step_store import StepStore
from compress.pipeline.strip_paths import recipe_without_paths
from compress.pipeline.torchrun_launch import Launch
from tests.conftest import write_tiny_recipe


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """The tiny recipe, with a masked language model and unlabelled texts at hand."""
    path = write_tiny_recipe(tmp_path)
    write_tiny_model(tmp_path / "words", "bert", masked=True)
    (tmp_path / "more.csv").write_text("text\n" + "".join(f"grey and wet night {day}\n" for day in range(30)))
    return path


@pytest.fixture
def plan_of(recipe, tmp_path):
    def make(*overrides, **options):
        return prepare(recipe, overrides, Options(runs=tmp_path / "runs", **options))

    return make


def prints(plan):
    """Return the fingerprints of all steps but those that write the recipe with its file names."""
    return {step.name: step.fingerprint for step in plan.steps if step.kind not in ("package", "report", "publish")}


def test_masked_model_is_identified_by_its_contents(plan_of, tmp_path):
    shutil.copytree(tmp_path / "words", tmp_path / "same")
    first, same, without = (
        prints(plan_of(*overrides))
        for overrides in (
            [f"distill.augment.model={tmp_path / 'words'}"],
            [f"distill.augment.model={tmp_path / 'same'}"],
            [],
        )
    )
    assert first == same
    assert first["distill"] != without["distill"]
    assert first["finetune"] == without["finetune"]
    plain = recipe_without_paths(plan_of(f"distill.augment.model={tmp_path / 'words'}").recipe)
    assert plain["distill"]["augment"]["model"] == "words"


def test_labelled_makes_unlabelled_texts_of_the_rest_of_train(plan_of):
    plan, without = plan_of("task.data.labelled=8"), plan_of()
    assert "unlabelled" in plan.step("distill").needs
    assert "unlabelled" not in without.step("distill").needs
    assert prints(plan)["data"] != prints(without)["data"]


def test_unlabelled_texts_are_identified_by_their_contents(plan_of, tmp_path):
    (tmp_path / "same.csv").write_bytes((tmp_path / "more.csv").read_bytes())
    first, same, without = (
        prints(plan_of(*overrides))
        for overrides in (
            [f"task.data.unlabelled={tmp_path / 'more.csv'}"],
            [f"task.data.unlabelled={tmp_path / 'same.csv'}"],
            [],
        )
    )
    assert first == same
    changed = {name for name, mark in first.items() if without.get(name) != mark}
    assert {"unlabelled", "distill", "recover"} <= changed
    assert not {"data", "finetune", "floor", "score-teacher-torch-fp32-cpu-b32"} & changed


@pytest.mark.slow
def test_only_distillation_needs_unlabelled_texts(plan_of, tmp_path):
    given = f"task.data.unlabelled={tmp_path / 'more.csv'}"
    plan = plan_of(given)
    assert [step.name for step in plan.steps][:3] == ["data", "unlabelled", "finetune"]
    assert [step.kind for step in plan.steps if "unlabelled" in step.needs] == ["distill", "recover", "report"]
    recovered = plan_of(given, "student=null")
    assert [step.kind for step in recovered.steps if "unlabelled" in step.needs] == ["recover", "report"]
    nobody = [given, "student=null", "prune.recover=false"], [given, "distill=false", "prune=null"]
    for without in ([], *nobody, ["task.data.unlabelled=[]"]):
        assert all(step.kind != "unlabelled" for step in plan_of(*without).steps)


def test_header_of_unlabelled_files_does_not_change_the_data_step(plan_of, tmp_path):
    (tmp_path / "bare.csv").write_text("grey and wet night\n")
    given = [f"task.data.unlabelled={tmp_path / 'bare.csv'}", "task.data.header={unlabelled: [text]}"]
    first, without = prints(plan_of(*given)), prints(plan_of())
    assert first["data"] == without["data"]
    other = prints(plan_of(*given[:1], "task.data.header={unlabelled: [text, ...]}"))
    assert other["data"] == first["data"]
    assert other["unlabelled"] != first["unlabelled"]
    roles = prints(plan_of(given[0], "task.data.header={unlabelled: [text], select: [text, label]}"))
    assert roles["data"] != without["data"]


@pytest.mark.parametrize(("left_out", "warned"), [([], False), (["student=null", "prune.recover=false"], True)])
def test_unused_unlabelled_texts_give_a_warning(recipe, tmp_path, capsys, left_out, warned):
    sets = [f"--set={each}" for each in (f"task.data.unlabelled={tmp_path / 'more.csv'}", *left_out)]
    given = [*sets, "--dry-run"]
    assert main(["run", str(recipe), "--runs", str(tmp_path / "runs"), *given]) == 0
    assert ("unlabelled texts (task.data) have no effect: " in capsys.readouterr().err) == warned


def test_columns_are_checked_before_the_first_step(plan_of, tmp_path):
    (tmp_path / "more.csv").write_text("words\ngrey\n")
    with pytest.raises(UsageError, match=r"more.csv, row 1 .*there is no column 'text'"):
        plan_of(f"task.data.unlabelled={tmp_path / 'more.csv'}")


def test_number_of_training_rows_is_known_after_reading(plan_of, tmp_path):
    plan = plan_of(f"task.data.unlabelled={tmp_path / 'more.csv'}", "distill.augment={model: owner/words, copies: 2}")
    store = StepStore(tmp_path / "runs")
    executor = Executor(plan, store, Console("quiet"), tmp_path / "events.jsonl", Launch())

    def rows():
        return {model.name: Estimates(plan, store).rows(model) for model in plan.evaluated}

    assert rows() == {"teacher": None, "student": None, "pruned": None}
    executor.run(set(), until="data")
    assert rows() == {"teacher": 152, "student": None, "pruned": None}
    assert Estimates(plan, store).training(plan.model("student")) is None
    executor.run(set(), until="unlabelled")
    assert rows() == {"teacher": 152, "student": 3 * 152 + 30, "pruned": 152 + 30}


@pytest.mark.slow
def test_more_unlabelled_texts_do_not_retrain_the_teacher(finished_run, recipe, tmp_path, capsys):
    shutil.copytree(finished_run.parent, tmp_path / "copy")
    runs, events = tmp_path / "copy" / "runs", tmp_path / "copy" / "runs" / "tiny" / "events.jsonl"
    before = len(events.read_text().splitlines())
    given = ["--set", f"task.data.unlabelled={tmp_path / 'more.csv'}", "--until", "distill", "--verbose"]
    assert main(["run", str(tmp_path / "copy" / "tiny.yaml"), "--runs", str(runs), *given]) == 0
    entries = [json.loads(line) for line in events.read_text().splitlines()[before:]]
    ended = [(line["step"], line["event"]) for line in entries if line["event"] != "started"]
    assert ended == [
        ("data", "skipped"),
        ("unlabelled", "finished"),
        ("finetune", "skipped"),
        ("distill", "finished"),
    ]
    err = capsys.readouterr().err
    assert "unlabelled rows: 30" in err
    assert "finetune: nothing changed, skipped" in err
    records = [record for record in StepStore(runs).records() if record.kind == "distill"]
    assert all("data" in record.inputs for record in records)
    trained = [json.loads(path.read_text())["training"]["rows"] for path in runs.glob(".steps/distill-*/compress.json")]
    assert sorted(trained) == [2 * 152, 2 * (152 + 30)]


def test_missing_masked_model_is_reported_by_plan(plan_of, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="there is no folder"):
        plan_of(f"distill.augment.model={tmp_path / 'nowhere'}")
    (fault,) = compatibility_errors(plan_of(f"distill.augment.model={tmp_path / 'teacher'}").recipe)
    assert fault.startswith("distill: augment.model: ")
    assert "holds a BertModel where a masked language model is expected" in fault
    monkeypatch.setattr(preflight, "hub_state", lambda timeout: "not reachable")
    (fault,) = absent_models(plan_of("distill.augment.model=owner/words").recipe, ("distill",))
    assert fault.startswith("distill.augment.model: there is no folder owner/words, and owner/words@main is not on")


def test_smoke_recipe_uses_a_tiny_masked_model(plan_of):
    smoke = plan_of("distill.augment={model: owner/words, copies: 9}", smoke=True).recipe
    assert smoke.distill.augment.copies == 1
    assert Path(smoke.distill.augment.model).name == "masked-bert"
    assert list(compatibility_errors(smoke)) == []


def test_the_plan_prints_the_keys(recipe, tmp_path, capsys):
    overrides = [f"task.data.unlabelled={tmp_path / 'more.csv'}", f"distill.augment.model={tmp_path / 'words'}"]
    sets = [part for override in overrides for part in ("--set", override)]
    assert main(["plan", str(recipe), "--runs", str(tmp_path / "runs"), "--all", *sets]) == 0
    printed = capsys.readouterr().out
    assert "unlabelled: " in printed
    assert "candidates: 15" in printed


@pytest.mark.slow
def test_soft_labels_unlabelled_texts_and_augmentation_run_end_to_end(recipe, tmp_path):
    lines = [line.rsplit(",", 1) for line in (tmp_path / "train.csv").read_text().splitlines()[1:]]
    sure = {"sunny": [0.9, 0.1], "rainy": [0.2, 0.8]}
    train = [json.dumps({"text": text, "soft": sure[label]}) for text, label in lines]
    (tmp_path / "train.jsonl").write_text("\n".join(train))
    overrides = [
        f"task.data.train={tmp_path / 'train.jsonl'}",
        f"task.data.select={tmp_path / 'test.csv'}",
        f"task.data.test={tmp_path / 'test.csv'}",
        f"task.data.unlabelled={tmp_path / 'more.csv'}",
        "task.soft_labels=soft",
        "task.labels=[sunny, rainy]",
        f"distill.augment.model={tmp_path / 'words'}",
        "prune=null",
        "quantize=null",
        "publish=null",
        "export=[]",
    ]
    report = compress.run(recipe, overrides=overrides, runs=tmp_path / "runs")
    assert [row.reason for row in report.rows if row.status != "ok"] == []
    assert report.data.rows == {"train": 160, "select": 60, "test": 60, "unlabelled": 30}
    assert "30 unlabelled" in (tmp_path / "runs" / "tiny" / "report.md").read_text(encoding="utf-8")
    infos = {
        step: next((tmp_path / "runs" / ".steps").glob(f"{step}-*/compress.json")) for step in ("finetune", "distill")
    }
    trained = {step: json.loads(path.read_text())["training"]["rows"] for step, path in infos.items()}
    assert trained == {"finetune": 2 * 160, "distill": 2 * (160 + 30 + 160)}
