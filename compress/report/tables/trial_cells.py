"""The trainings of which the best on select was used: the scores of each, and of several seeds the mean and spread."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from compress import format_numbers as fmt
from compress.errors import pluralize
from compress.model_history import TrialInfo


def trial_cells(trials: Sequence[TrialInfo], larger_is_better: bool) -> dict[str, str]:
    """Return a cell for each training, and one for the seeds of each point of a grid that has several.

    `seed 3` → `84.1 on select, 83.0 on test (used)`, `5 seeds` → `83.6 ± 0.4 on select, 82.9 ± 0.6 on test`.
    """
    scored = [trial.score for trial in trials if trial.score is not None]
    best = (max if larger_is_better else min)(scored, default=None)
    used = next(trial for trial in trials if trial.score == best)
    points: dict[str, list[TrialInfo]] = {}
    for trial in trials:
        points.setdefault(_point(trial), []).append(trial)
    cells: dict[str, str] = {}
    for point, seeds in points.items():
        for trial in seeds:
            name = ", ".join(filter(None, [point, f"seed {trial.seed}" if len(seeds) > 1 else ""]))
            cells[name] = _scores(trial, larger_is_better) + (" (used)" if trial is used else "")
        if len(seeds) > 1:
            name = ", ".join(filter(None, [point, f"mean of {pluralize(len(seeds), 'seed')}"]))
            cells[name] = _spread(seeds, larger_is_better)
    return cells


def _point(trial: TrialInfo) -> str:
    """Return `batch_size 16, learning_rate 3e-05`; empty without a grid."""
    return ", ".join(f"{name} {value:g}" for name, value in trial.settings.items())


def _scores(trial: TrialInfo, larger_is_better: bool) -> str:
    test = f", {fmt.score(trial.test, larger_is_better)} on test" if trial.test is not None else ""
    return f"{fmt.score(trial.score, larger_is_better)} on select{test}"


def _spread(trials: Sequence[TrialInfo], larger_is_better: bool) -> str:
    """Return means with standard deviations."""
    parts = []
    for role, scores in (("select", [each.score for each in trials]), ("test", [each.test for each in trials])):
        known = [score for score in scores if score is not None]
        if len(known) > 1:
            mean, deviation = statistics.mean(known), statistics.stdev(known)
            parts.append(f"{fmt.score(mean, larger_is_better)} ± {fmt.score(deviation, larger_is_better)} on {role}")
    return ", ".join(parts) or fmt.ABSENT
