import subprocess
import sys
from pathlib import Path

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


def test_no_public_name_is_shadowed_by_a_package_once_that_is_imported():
    packages = {path.parent.name for path in Path(compress.__file__).parent.glob("*/__init__.py")}
    assert not packages & set(compress.PUBLIC)


def test_every_public_name_is_there():
    for name in compress.PUBLIC:
        assert callable(getattr(compress, name))
