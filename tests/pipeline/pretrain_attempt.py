"""A program for the tests: runs a pretraining recipe, and is killed at the given update if one is given.

python pretrain_attempt.py RECIPE RUNS [UPDATE]
"""

import os
import signal
import sys

from compress.cli import main
from compress.train.core.optimizer import ModelAndOptimizer


def dies_at(update):
    """Make the given update, counted from 1, the last action of this process."""
    step, calls = ModelAndOptimizer.step, iter(range(1, 1000))

    def dying(*arguments):
        if next(calls) == update:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(*arguments)

    ModelAndOptimizer.step = dying


if __name__ == "__main__":
    recipe, runs, *update = sys.argv[1:]
    if update:
        dies_at(int(update[0]))
    sys.exit(main(["pretrain", recipe, "--runs", runs, "--verbose"]))
