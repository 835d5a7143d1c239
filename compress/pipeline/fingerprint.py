"""A step's fingerprint: a digest of everything that changes its result, and of nothing else."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from compress.steps import KINDS

LENGTH = 16

VERSIONS: dict[str, int] = {
    **{name: kind.version for name, kind in KINDS.items()},
    "data": 4,
    "latency": 4,
    "export": 3,
    "quantize": 2,
    "fallback": 2,
    "score": 2,
    "floor": 2,
    "measure": 5,
    "quality": 5,
    "workload": 2,
    "cascade": 2,
    "select": 8,
    "package": 2,
    "package-format": 3,
    "report": 18,
    "pretrain-vocabulary": 2,
    "pretrain-corpus": 2,
    "pretrain-packing": 2,
    "pretrain": 2,
    "pretrain-report": 3,
}
"""By kind of step, 1 for others. Raised when a step's code changes its result, so that older results are not reused."""


def fingerprint(kind: str, settings: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """Return the fingerprint of a step of ``kind`` with these settings and inputs of these fingerprints."""
    content = {"kind": kind, "version": VERSIONS.get(kind, 1), "settings": settings, "inputs": inputs}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:LENGTH]
