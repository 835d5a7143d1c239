"""Optuna in an environment of its own: `python tpe_job.py HISTORY.json` prints the next shape, as JSON.

The history has `seed` and `trials`, each with `shape`, `speed` and `score`; the study is made anew from it.
"""

import json
import sys
from pathlib import Path

import optuna  # type: ignore[import-not-found]
from optuna.distributions import IntDistribution  # type: ignore[import-not-found]

SPACE = {"layers": IntDistribution(1, 6), "heads": IntDistribution(1, 12), "ffn": IntDistribution(64, 1536, step=64)}


def main() -> None:
    """Ask the sampler, with its defaults, for the shape after these."""
    history = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=history["seed"] + len(history["trials"]))
    study = optuna.create_study(directions=["maximize", "maximize"], sampler=sampler)
    for each in history["trials"]:
        values = [each["speed"], each["score"]]
        study.add_trial(optuna.trial.create_trial(params=each["shape"], distributions=SPACE, values=values))
    sys.stdout.write(json.dumps(study.ask(SPACE).params))


if __name__ == "__main__":
    main()
