"""Runs `compress`, in which every attempt of a cut is slower than predicted; killed in one of them, counted from 1.

python slower_than_predicted.py 2 run RECIPE
"""

import os
import signal
import sys
from itertools import count

from compress.cli import main
from compress.prune.speedup_goal import SpeedupGoal

SHARE = 0.7
"""Of the predicted speed-up: the first attempt misses the goal."""

time_model, attempts, killed = SpeedupGoal._measure, count(1), int(sys.argv[1])


def measure(self, uncut, choice):
    """Time the real model, for what that leaves behind; the result must not depend on the machine."""
    time_model(self, uncut, choice)
    if next(attempts) == killed:
        os.kill(os.getpid(), signal.SIGKILL)
    return SHARE * choice.predicted


SpeedupGoal._measure = measure
sys.exit(main(sys.argv[2:]))
