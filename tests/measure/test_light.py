"""Everything in this room is there on a base install."""

import subprocess
import sys
from pathlib import Path

import compress.measure

CODE = """
import importlib, pkgutil, sys
for name in ("torch", "onnx", "transformers", "datasets", "openvino", "pynvml", "sklearn", "jinja2"):
    sys.modules[name] = None
import compress.measure
for found in pkgutil.walk_packages(compress.measure.__path__, "compress.measure."):
    importlib.import_module(found.name)
from compress.measure.roofline.matmul_bench import CPU_KERNELS, time_products
found, missing = time_products(CPU_KERNELS, ((8, 8, 8),), 1, 0.0)
assert {rate.kernel for _, rate in found} == {"numpy matmul"}, found
"""


def test_everything_imports_without_extras():
    assert len(list(Path(compress.measure.__file__).parent.rglob("*.py"))) > 10
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
