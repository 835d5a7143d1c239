"""Private APIs of torch and transformers are used in `train/fast_paths` alone, with the exceptions listed here."""

import ast
from pathlib import Path

import compress

ROOT = Path(compress.__file__).parent
LIBRARIES = ("torch", "transformers")
MEMBERS = {"_attn_implementation", "_compiled_call_impl", "_indices", "_init_weights", "_values"}
"""Private members of objects of these libraries that this package uses."""

EXCEPTIONS = {
    # transformers calls and documents it as the hook that model classes override; there is no public name.
    "_init_weights": {
        "models/embedding_model.py",
        "models/heads.py",
        "models/load_save.py",
        "models/nonuniform_models.py",
        "models/student/factorised_embeddings.py",
    },
    # The setter is public (`set_attn_implementation`); the current value can be read from the config alone.
    "_attn_implementation": {
        "export/inference_graph.py",
        "models/nonuniform_models.py",
        "prune/surgery.py",
        "prune/prune_vocabulary.py",
        "runtime/torch_eager.py",
    },
    # The rate of INT8 products is what is measured; torch has no public integer matrix product.
    "torch._int_mm": {"measure/roofline/matmul_bench.py"},
    # The runtime serves a compiled graph: compilation limits, errors and the C++ compiler have no public names.
    "torch._dynamo": {"runtime/torch_compiled.py"},
    "torch._inductor": {"runtime/torch_compiled.py"},
}


def private_names(source: str) -> set[str]:
    """Return `library._name` for modules and functions, and the names in `MEMBERS`."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        dotted = []
        if isinstance(node, ast.Import):
            dotted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            dotted = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            dotted = [ast.unparse(node)]
            names |= {node.attr} & MEMBERS
        for name in dotted:
            library, _, rest = name.partition(".")
            part = next((part for part in rest.split(".") if part.startswith("_") and part[:2] != "__"), None)
            if library in LIBRARIES and part and "(" not in name:
                names.add(f"{library}.{part}")
    return names


def test_private_apis_are_used_in_fast_paths_alone():
    used: dict[str, set[str]] = {}
    for path in ROOT.rglob("*.py"):
        file = path.relative_to(ROOT).as_posix()
        if not file.startswith("train/fast_paths/"):
            for name in private_names(path.read_text(encoding="utf-8")):
                used.setdefault(name, set()).add(file)
    assert used == EXCEPTIONS


def test_the_scan_finds_modules_functions_and_members():
    assert private_names("import torch._dynamo") == {"torch._dynamo"}
    assert private_names("from torch._inductor.compile_fx import compile_fx") == {"torch._inductor"}
    assert private_names("torch._foreach_add_(a, b)") == {"torch._foreach_add_"}
    assert private_names("model.config._attn_implementation") == {"_attn_implementation"}
    assert private_names("torch.__version__; self._model(torch)") == set()
