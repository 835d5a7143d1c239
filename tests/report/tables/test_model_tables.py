import pytest

from compress.model_folder.model_history import ChosenSetting, TrialInfo
from compress.recipe.schema import Recipe
from compress.report.pages.render import render_html, render_markdown
from compress.report.report_schema import Report, ReportModel
from compress.report.run_facts import Provenance
from compress.report.tables.model_tables import describe_losses, training_settings, training_table, trial_cells
from compress.steps.model_step import UNTRAINED
from tests.report.conftest import apply_gates

TASK = {"name": "films", "kind": "classification", "data": {"train": "a.csv", "test": "b.csv"}}


def recipe(distill, **more):
    raw = {"name": "films", "task": TASK, "teacher": "t", "student": {"layers": 1}, "distill": distill, **more}
    return Recipe.model_validate(raw).model_dump(mode="json")


@pytest.fixture
def report(make_report):
    def build(distill, making=None, rows=None, **more) -> Report:
        report = make_report(recipe=recipe(distill, **more), makings=making or {"student": Provenance(start="layer 1")})
        data = report.data.model_copy(update={"rows": rows or report.data.rows})
        return apply_gates(report.model_copy(update={"data": data}))

    return build


def cells(report, model="student"):
    return {row[""]: row[model] for row in training_table(report).rows}


def test_losses_are_listed_with_weights_and_forms(report):
    facts = cells(report({"soft_label": 1.0, "hidden_state": {"weight": {"start": 1, "end": 0}, "form": "cosine"}}))
    assert facts["initial weights"] == "layer 1"
    assert facts["losses"] == "soft_label 1 (kl), hidden_state 1 to 0 (cosine), hard_label 0.5"
    assert facts["rows"] == "6,000 of train"
    assert "teachers" not in facts


@pytest.mark.parametrize(
    ("section", "losses"),
    [("light", "those of distill that compare outputs"), ("shared", "those of distill"), ("no_step", UNTRAINED)],
)
def test_models_that_no_section_lists_losses_of(section, losses, make_report):
    models = (
        ReportModel(name="teacher", section="finetune"),
        ReportModel(name="small", parent="teacher", section=section),
    )
    facts = cells(make_report(models=models, makings={"small": Provenance(start="pieces")}), "small")
    assert facts["losses"] == losses


def test_phases_are_listed_in_order():
    phases = [{"share": 0.6, "hidden_state": 1.0}, {"share": 0.4, "soft_label": 2.0, "hard_label": 0.5}]
    facts = describe_losses(training_settings(recipe({"phases": phases}), "distill"))
    assert facts == (
        "60.0 % of the updates: hidden_state 1 (mse); then 40.0 % of the updates: soft_label 2 (kl), hard_label 0.5"
    )


def test_losses_without_weight_are_left_out():
    assert describe_losses(
        training_settings(recipe({"soft_label": 1.0, "attention": 0, "hard_label": 0}), "distill")
    ) == ("soft_label 1 (kl)")


def test_teachers_and_rows(report):
    facts = cells(
        report(
            {"teachers": ["large", {"source": "other", "weight": 2}], "augment": {"model": "masked"}},
            {"student": Provenance(start="random weights", augmented=5990)},
            {"train": 6000, "select": 10, "test": 10, "unlabelled": 25},
        )
    )
    assert facts["teachers"] == "the teacher, large, other (weight 2)"
    assert facts["rows"] == "6,000 of train, 25 unlabelled, 5,990 augmented (words by masked)"


def test_a_pruned_model_has_its_own_column(report):
    both = {"student": Provenance(start="layer 1"), "pruned": Provenance(start="the student, pruned")}
    shown = report(False, both, prune={"heads": 0.5, "recover": {"soft_label": 3.0}})
    assert cells(shown)["losses"] == "none: it is not trained"
    assert cells(shown, "pruned")["losses"] == "soft_label 3 (kl), hard_label 0.5"


def test_recovery_uses_unlabelled_rows(report):
    both = {"student": Provenance(start="layer 1"), "pruned": Provenance(start="the student, pruned")}
    prune = {"heads": 0.5, "recover": {"soft_label": 1.0}}
    shown = report({"soft_label": 1.0}, both, {"train": 60, "unlabelled": 25}, prune=prune)
    assert cells(shown)["rows"] == "60 of train, 25 unlabelled"
    assert cells(shown, "pruned")["rows"] == "60 of train, 25 unlabelled"


def test_pages_show_the_table_unless_the_report_is_old(report, make_report):
    shown = report({"soft_label": 1.0})
    for page in (render_markdown(shown), render_html(shown)):
        assert "How the models were trained" in page
        assert "hard" in page
    assert "How the models were trained" not in render_markdown(apply_gates(make_report()))
    assert Report.model_validate_json(shown.model_dump_json()).makings == shown.makings


def test_values_of_auto_settings_have_rows_and_the_teacher_a_column(report):
    chosen = {"learning_rate": ChosenSetting(value=2e-4, reason="hidden size 384")}
    shown = report({"soft_label": 1.0}).model_copy(update={"chosen": {"teacher": chosen, "student": chosen}})
    assert training_table(shown).columns == ("", "teacher", "student")
    assert cells(shown, "teacher")["learning_rate (auto)"] == "0.0002 (hidden size 384)"
    assert cells(shown)["losses"] == "soft_label 1 (kl), hard_label 0.5"
    assert "0.0002 (hidden size 384)" in render_markdown(shown)


def test_the_precision_left_to_auto_has_a_row_with_its_reason(report):
    text = "bf16 (updates 1.80 times as fast in bf16, 6 of each precision tried)"
    shown = report({"soft_label": 1.0}).model_copy(update={"precisions": {"teacher": text, "student": text}})
    assert training_table(shown).columns == ("", "teacher", "student")
    assert cells(shown)["precision (auto)"] == cells(shown, "teacher")["precision (auto)"] == text
    for page in (render_markdown(shown), render_html(shown)):
        assert text in page


def test_seeds_have_a_mean_and_a_spread_on_select_and_on_test():
    seeds = [TrialInfo(seed=3, score=0.80, test=0.70), TrialInfo(seed=4, score=0.84, test=0.72)]
    assert trial_cells(seeds, larger_is_better=True) == {
        "seed 3": "80.0 on select, 70.0 on test",
        "seed 4": "84.0 on select, 72.0 on test (used)",
        "mean of 2 seeds": "82.0 ± 2.8 on select, 71.0 ± 1.4 on test",
    }


def test_points_of_a_grid_are_named_by_their_settings():
    points = [
        TrialInfo(seed=0, settings={"batch_size": 16, "learning_rate": 3e-5}, score=0.02),
        TrialInfo(seed=0, settings={"batch_size": 32, "learning_rate": 3e-5}, score=0.03),
    ]
    assert trial_cells(points, larger_is_better=False) == {
        "batch_size 16, learning_rate 3e-05": "0.0200 on select (used)",
        "batch_size 32, learning_rate 3e-05": "0.0300 on select",
    }


def test_each_point_of_a_grid_has_a_mean_over_its_seeds():
    trials = [
        TrialInfo(seed=seed, settings={"epochs": epochs}, score=0.5 + 0.1 * epochs + 0.01 * seed)
        for epochs in (2, 3)
        for seed in (0, 1)
    ]
    cells = trial_cells(trials, larger_is_better=True)
    assert cells["epochs 3, seed 1"] == "81.0 on select (used)"
    assert cells["epochs 2, mean of 2 seeds"] == "70.5 ± 0.7 on select"


def test_of_trainings_without_scores_the_first_is_used():
    assert trial_cells([TrialInfo(seed=0, score=None), TrialInfo(seed=1, score=None)], larger_is_better=True) == {
        "seed 0": "– on select (used)",
        "seed 1": "– on select",
        "mean of 2 seeds": "–",
    }
