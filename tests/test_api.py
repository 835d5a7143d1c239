import subprocess
import sys
from types import ModuleType

import pytest

import compress


def test_importing_compress_imports_nothing_else():
    ours = "[name for name in sys.modules if name.startswith('compress.')]"
    code = f"import sys, compress; sys.exit({ours} or 0)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_is_listed():
    assert set(compress.__all__) == {"__version__", *compress.PUBLIC}
    assert set(compress.PUBLIC) <= set(dir(compress))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'prun'"):
        compress.prun  # noqa: B018


@pytest.fixture
def stand_in(monkeypatch):
    """Puts a module with one function in the place of a package of ours."""

    def put(package, function):
        module = ModuleType(f"compress.{package}")
        setattr(module, function, lambda *args: (package, *args))
        monkeypatch.setitem(sys.modules, f"compress.{package}", module)
        return module

    return put


def test_a_verb_is_found_in_its_module(stand_in):
    stand_in("pipeline", "run")
    assert compress.run("recipe") == ("pipeline", "recipe")


@pytest.mark.parametrize("verb", ["prune", "export", "quantize", "measure"])
def test_a_package_that_is_a_verb_can_be_called_whoever_imported_it_first(stand_in, monkeypatch, verb):
    module = stand_in(verb, verb)
    monkeypatch.setattr(compress, verb, module, raising=False)  # what importing the package does
    assert getattr(compress, verb)("model") == (verb, "model")
    assert isinstance(getattr(compress, verb), ModuleType)
