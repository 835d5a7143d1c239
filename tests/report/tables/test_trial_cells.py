from compress.model_history import TrialInfo
from compress.report.tables.trial_cells import trial_cells


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
