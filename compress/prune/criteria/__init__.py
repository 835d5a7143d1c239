"""Importance criteria: the collected mask gradients of a layer's heads or neurons become one score for each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from compress.prune.criteria.taylor import taylor

Criterion = Callable[[Tensor], Tensor]
"""From signed mask gradients (samples, units) to importance (units,), both float32; larger is more important."""

CRITERIA: Mapping[str, Criterion] = {"taylor": taylor}
"""Every criterion by its name."""
