"""The outputs of the slices, score and perturb steps, their scores, and their fingerprints."""

import json
from pathlib import Path

import numpy as np
import pytest

from compress.console import Console
from compress.data.splits.prepare_splits import load_prepared, prepare_splits
from compress.errors import RecipeError
from compress.measure import predict_rows
from compress.measure.quality.robustness import PerturbedRows
from compress.pipeline.graph import ModelVariant, Plan
from compress.pipeline.plan import make_plan
from compress.pipeline.preflight.recipe_checks import NAMES
from compress.pipeline.step_context import StepContext
from compress.pipeline.steps import prepare_data, scoring_steps
from compress.pipeline.steps.scoring_steps import QualityScorer
from compress.recipe.load import load_recipe
from compress.recipe.measure_schema import Target
from compress.recipe.task_schema import Task
from compress.steps.model_step import PlannedModel
from compress.tasks import KINDS
from compress.variants import VARIANTS

ROWS = "text,label,source\n" + "".join(
    f"sun and storm number {number},{'sunny' if number % 3 else 'rainy'},{'web' if number % 2 else 'book'}\n"
    for number in range(80)
)
VARIANT = VARIANTS["torch-fp32"]
TEACHER = PlannedModel("teacher", "finetune", None, "finetune")


@pytest.fixture
def recipe(tmp_path: Path):
    (tmp_path / "rows.csv").write_text(ROWS, encoding="utf-8")
    path = tmp_path / "r.yaml"
    path.write_text(
        f"task: {{kind: classification, slices: source, max_length: 16, "
        f"data: {{train: {tmp_path}/rows.csv, test: {tmp_path}/rows.csv}}}}\n"
        f"teacher: {tmp_path}/none\nmeasure: {{robustness: [typos, uppercase], bootstrap: 100}}\n",
        encoding="utf-8",
    )
    return load_recipe(path, (), NAMES)


@pytest.fixture
def scored(recipe, tmp_path: Path, tiny_folder):
    """The prepared rows, their slices and a model's answers, each in the folder of its step."""
    for name in ("data", "slices", "score", "perturb"):
        (tmp_path / name).mkdir()
    task = prepare_splits(recipe.task, recipe.seed, tmp_path / "data").task_info
    inputs = {"data": tmp_path / "data", "finetune": tiny_folder("bert", task)}
    console = Console("quiet")
    prepare_data.slices(StepContext(inputs, tmp_path / "slices", console), recipe.task)
    scoring_steps.score(StepContext(inputs, tmp_path / "score", console), "finetune", VARIANT, "cpu", 16)
    names, seed = recipe.measure.robustness, recipe.seed
    scoring_steps.perturb(
        StepContext(inputs, tmp_path / "perturb", console), "finetune", VARIANT, "cpu", 16, names, seed
    )
    return {**inputs, **{name: tmp_path / name for name in ("slices", "score", "perturb")}}


def kept_in(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / scoring_steps.ANSWERS_FILE, allow_pickle=False) as file:
        return dict(file)


def test_outputs_are_stored_and_those_for_changed_texts_separately(scored, recipe, tmp_path):
    scores, perturbed = kept_in(scored["score"]), kept_in(scored["perturb"])
    assert set(scores) == {"select", "test", "lengths"}
    assert set(perturbed) == {"typos", "uppercase"}
    assert all(answers.shape == (80, 2) for answers in (scores["test"], *perturbed.values()))
    assert scores["lengths"].shape == (80,)
    assert 3 <= scores["lengths"].min() <= scores["lengths"].max() <= 16
    changed = list(PerturbedRows(load_prepared(scored["data"]).rows("test"), KINDS["classification"], "uppercase", 0))
    assert changed[3]["text"] == "SUN AND STORM NUMBER 3"
    facts = json.loads((scored["score"] / scoring_steps.SCORED_FILE).read_bytes())
    assert {"select", "test"} <= set(facts["truncated"])
    assert facts["examples"] == {"select": 1.0, "test": 1.0}


def test_documents_are_embedded_once_and_their_truncated_share_is_recorded(
    tmp_path, tiny_model, tiny_folder, monkeypatch
):
    rows = [{"query": f"what on day {index}", "positives": f"sun and storm {'again ' * index}"} for index in range(40)]
    (tmp_path / "given.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    files = {"train": str(tmp_path / "given.jsonl"), "test": str(tmp_path / "given.jsonl")}
    settings = {"text": ("query",), "label": "positives", "max_length": 16}
    task = prepare_splits(Task(kind="retrieval", data=files, **settings), 0, tmp_path).task_info
    model = tiny_folder(tiny_model("bert", head="ForSentenceEmbedding", pooling="mean"), task)
    context = StepContext({"data": tmp_path, "finetune": model}, tmp_path, Console("quiet"))
    seen, embed = [], predict_rows.embed_documents
    monkeypatch.setattr(predict_rows, "embed_documents", lambda *given: seen.append(given) or embed(*given))
    scoring_steps.score(context, "finetune", VARIANT, "cpu", 16)
    scored = json.loads((tmp_path / scoring_steps.SCORED_FILE).read_bytes())["truncated"]
    assert scored == {
        "select": 0.0,
        "select's documents": pytest.approx(0.5, abs=0.5),
        "test": 0.0,
        "test's documents": pytest.approx(28 / 40),
    }
    assert len(seen) == 2
    scoring_steps.perturb(context, "finetune", VARIANT, "cpu", 16, ("typos", "uppercase"), 0)
    assert len(seen) == 3
    assert kept_in(tmp_path)["typos"]["found"].shape == (40, 40)


def test_slice_values_match_the_test_rows(scored):
    columns = json.loads((scored["slices"] / prepare_data.SLICES_FILE).read_bytes())["columns"]
    assert columns == {"source": ["web" if number % 2 else "book" for number in range(80)]}


def test_quality_has_robustness_slices_and_calibration(scored, recipe):
    teacher = ModelVariant("teacher", VARIANT, "finetune", {"cpu": "score"}, {"cpu": "perturb"})
    plan = Plan(recipe, models=[TEACHER], variants=[teacher])
    scorer = QualityScorer(plan, StepContext(scored, scored["score"], Console("quiet")))
    result = scorer.quality(teacher, Target(device="cpu"), "test")
    assert result is not None
    assert [each.name for each in result.robustness] == ["typos", "uppercase"]
    assert {score.name: score.rows for score in result.slices["source"]} == {"book": 40, "web": 40}
    assert sum(score.rows for score in result.by_length) == 80
    assert result.calibration is not None
    select = scorer.quality(teacher, Target(device="cpu"), "select")
    assert select is not None
    assert (select.robustness, dict(select.slices), select.calibration) == ((), {}, None)


def test_quality_without_perturbed_outputs_has_the_rest(scored, recipe):
    teacher = ModelVariant("teacher", VARIANT, "finetune", {"cpu": "score"}, {"cpu": "perturb"})
    failed = {name: folder for name, folder in scored.items() if name != "perturb"}
    scorer = QualityScorer(
        Plan(recipe, models=[TEACHER], variants=[teacher]), StepContext(failed, scored["score"], Console("quiet"))
    )
    result = scorer.quality(teacher, Target(device="cpu"), "test")
    assert result is not None
    assert (result.robustness, result.rows) == ((), 80)


def test_slices_and_robustness_change_only_result_steps(recipe_file, tmp_path):
    def prints(*overrides):
        return {step.name: step.fingerprint for step in make_plan(load_recipe(recipe_file, overrides, NAMES)).steps}

    plain, sliced, robust = prints(), prints("task.slices=label"), prints("measure.robustness=[typos]")
    assert set(sliced) - set(plain) == {"slices"}
    assert {name for name in plain if plain[name] != sliced[name]} == {
        "quality",
        "select",
        "package",
        "report",
        "publish",
    }
    assert {name for name in plain if plain[name] != robust[name]} == {
        "quality",
        "select",
        "package",
        "report",
        "publish",
    }
    scores = {name for name in plain if name.startswith("score-")}
    assert set(robust) - set(plain) == {name.replace("score-", "perturb-", 1) for name in scores}


def test_unknown_perturbation_names_the_nearest_one(recipe, tmp_path):
    with pytest.raises(RecipeError, match=r"measure\.robustness.*typo.*did you mean typos"):
        load_recipe(tmp_path / "r.yaml", ["measure.robustness=[typo]"], NAMES)
