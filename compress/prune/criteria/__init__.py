"""Importance criteria: the collected mask gradients of a layer's heads or neurons become one score for each of them.

A criterion is a function from signed mask gradients (samples, units) to importance (units,), both float32; larger is
more important.
"""

from __future__ import annotations

from collections.abc import Mapping

CRITERIA: Mapping[str, str] = {"taylor": "compress.prune.criteria.taylor:taylor"}
"""By the name in a recipe's `prune.criterion`: `module:function`, imported when it is called: plans need no torch."""
