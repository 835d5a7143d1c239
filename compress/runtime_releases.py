"""Which runtimes open an ONNX graph: the oldest ONNX Runtime, and the build that transformers.js loads in browsers.

Both follow from the graph's operators, its opset and the version of its file (IR). The tables were measured by opening
exports of every family, by every method, in the wheels of ONNX Runtime from 1.17 on and in Node.js; the test of this
module builds the files again and compares them with the tables.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from compress.errors import nearest

RELEASES: Sequence[tuple[str, int, int]] = (("1.19", 21, 10), ("1.21", 22, 10), ("1.23", 23, 11))
"""Releases of ONNX Runtime that raised the highest opset and IR they read, with both. What 1.19 reads was not read
before: 1.17 has neither IR 10 nor the operator Gelu, and 1.18 aborts while it optimizes ModernBERT."""

OLDEST = RELEASES[0][0]
"""The oldest release in which any export is known to run."""

MICROSOFT = "com.microsoft."
"""How operators that are not of the ONNX standard begin in compress.json."""

CONTRIBUTED = {
    # 1.20 to 1.22 have it for ONNX's own 4-bit types only, and lack the attribute `bits`.
    f"{MICROSOFT}GatherBlockQuantized": "1.23",
    # Fused by ONNX Runtime itself in files of the ORT format.
    **dict.fromkeys(
        [
            f"{MICROSOFT}{name}"
            for name in ("BiasGelu", "DynamicQuantizeMatMul", "FusedGemm", "FusedMatMul", "MatMulIntegerToFloat")
        ],
        OLDEST,
    ),
}
"""Operators beyond the standard that our files have, and the release in which they run as we write them."""

WEB = "web"
"""The ONNX Runtime Web that transformers.js 4.3.1 loads in browsers. Unlike the build of our own page it has few
operators beyond the standard, and GatherBlockQuantized is not among them."""

EVERYWHERE = ("onnxruntime-1.20", WEB)
"""Where the root of a published entry runs, if any variant that passed the gate does."""

NAME = re.compile(r"onnxruntime-(\d+\.\d+)")


def least_release(operators: Collection[str], ir: int = 0, installed: str = "") -> str:
    """Return the oldest ONNX Runtime that runs a graph.

    Args:
        operators: as compress.json lists them, with the `opset 20`.
        ir: the IR version of its file; 0 where there is none to read.
        installed: the release in which it is known to run, for what the tables do not list.
    """
    opset = next((int(name.removeprefix("opset ")) for name in operators if name.startswith("opset ")), 0)
    reading = next((name for name, highest, newest in RELEASES if opset <= highest and ir <= newest), installed)
    contributed = [CONTRIBUTED.get(name, installed) for name in operators if name.startswith(MICROSOFT)]
    return max(OLDEST, reading, *contributed, key=_numbers)


def check_runs_in(name: str) -> str:
    """Return the name of a runtime if a recipe's `runs_in` may hold it; raise ValueError otherwise."""
    if name != WEB and not NAME.fullmatch(name):
        examples = (WEB, *(f"onnxruntime-{release}" for release in ("1.19", "1.20", "1.23")))
        raise ValueError(
            f"no runtime is called '{name[:60]}'{nearest(name, examples)}; any release of ONNX Runtime may be named"
        )
    return name


def why_not_in(name: str, form: str, operators: Collection[str], stated: str | None = None) -> str | None:
    """Return why a file does not run in a runtime that `check_runs_in` accepts; None where it does.

    Args:
        name: of the runtime.
        form: the file's format, a key of `formats.FORMATS`.
        operators: of its graph; empty where it is unknown.
        stated: the oldest ONNX Runtime that its folder states, for files without operators.
    """
    if form not in (("onnx", "web") if name == WEB else ("onnx", "ort", "web")):
        return f"{name} reads no {form}"
    if name == WEB:
        lacking = [each for each in operators if each.startswith(MICROSOFT)]
        return f"{name} has no {' and no '.join(lacking)}" if lacking else None
    least = least_release(operators, installed=stated or "") if operators else stated or OLDEST
    wanted = name.removeprefix("onnxruntime-")
    return f"{name} is too old: it needs ONNX Runtime {least}" if _numbers(least) > _numbers(wanted) else None


def why_not_in_all(
    names: Sequence[str], form: str, operators: Collection[str], stated: str | None = None
) -> str | None:
    """Return why a file does not run in one of several runtimes, the first that fails; None where it runs in all."""
    return next(filter(None, (why_not_in(name, form, operators, stated) for name in names)), None)


def _numbers(release: str) -> tuple[int, ...]:
    """Return `(1, 23)` for `1.23.2`: files depend on releases, not on their patches."""
    return tuple(int(digits) for digits in release.split(".")[:2] if digits.isdigit())
