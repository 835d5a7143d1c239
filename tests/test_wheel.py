"""What a wheel holds, exactly; and that cards are found from a wheel, an editable install and a checkout."""

import json
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.wheel

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ("teachers", "students", "recipes")
BUILT_FROM = ("compress/", "teachers/", "students/", "recipes/", "README.md", "LICENSE", "pyproject.toml", ".gitignore")

LOOK = """
import json, compress
from compress import cards
found = {kind: sorted(cards.available(kind)) for kind in ("teachers", "students", "recipes")}
cards.list_teachers(), cards.list_students()
print(json.dumps({"home": compress.__file__, **found}))
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A clean copy of the tracked files that a build reads."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout, so which files are tracked is unknown")
    listing = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, check=True).stdout
    copy = tmp_path_factory.mktemp("checkout")
    for name in listing.splitlines():
        if name.startswith(BUILT_FROM) and (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    return copy


def build(checkout, hook):
    """Run one hook of the build backend and return the archive it wrote."""
    code = f"import sys; from hatchling.build import {hook}; print({hook}(sys.argv[1]))"
    dist = checkout / f"dist-{hook}"
    done = subprocess.run([sys.executable, "-c", code, dist], cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dist / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(checkout):
    return build(checkout, "build_wheel")


def tracked(checkout, folder, pattern="*"):
    return {path.relative_to(checkout).as_posix() for path in (checkout / folder).rglob(pattern) if path.is_file()}


def in_archive(archive):
    names = set(zipfile.ZipFile(archive).namelist())
    return {name for name in names if ".dist-info/" not in name}, {name for name in names if ".dist-info/" in name}


def test_the_wheel_holds_the_package_the_cards_and_nothing_else(checkout, wheel):
    files, about = in_archive(wheel)
    cards = {f"compress/_shipped/{name}" for kind in SHIPPED for name in tracked(checkout, kind, "*.yaml")}
    assert files == tracked(checkout, "compress") | cards
    assert {"compress/py.typed", "compress/_shipped/recipes/quickstart.yaml"} <= files
    names = {name.partition(".dist-info/")[2] for name in about}
    assert names == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}


def test_the_wheel_installs_both_commands(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
    text = archive.read(name).decode()
    assert "compress = compress.cli:main" in text
    assert "compress-encoders = compress.cli:main" in text


def test_the_source_distribution_builds_the_same_wheel(checkout, wheel, tmp_path):
    sdist = build(checkout, "build_sdist")
    shutil.unpack_archive(sdist, tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    again = build(unpacked, "build_wheel")
    assert in_archive(again) == in_archive(wheel)


def look(*arguments, path=""):
    """Ask a fresh interpreter what it finds, away from this checkout."""
    command = [sys.executable, *arguments]
    env = {"PYTHONPATH": str(path), "PATH": ""}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd=Path(path or "/"))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def expected(checkout):
    return {kind: sorted(path.stem for path in (checkout / kind).glob("*.yaml")) for kind in SHIPPED}


def test_cards_are_found_from_a_wheel(checkout, wheel, tmp_path):
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        tmp_path,
        wheel,
    ]
    subprocess.run(install, check=True)
    result = look("-c", LOOK, path=tmp_path)
    assert Path(result.pop("home")).parent == tmp_path / "compress"
    assert result == expected(checkout)


def test_cards_are_found_from_an_editable_install(checkout, tmp_path):
    editable = build(checkout, "build_editable")
    files, _ = in_archive(editable)
    assert all(name.endswith(".pth") for name in files), "an editable install that copies files goes stale"
    zipfile.ZipFile(editable).extractall(tmp_path)
    # Without site packages of its own, so that no other editable install of this project comes first.
    libraries = sysconfig.get_paths()["purelib"]
    setup = f"import site, sys; site.addsitedir({str(tmp_path)!r}); sys.path.append({libraries!r})"
    result = look("-S", "-c", setup + LOOK)
    assert Path(result.pop("home")).parent == checkout / "compress"
    assert result == expected(checkout)


def test_cards_are_found_from_a_checkout(checkout):
    result = look("-c", LOOK, path=checkout)
    assert Path(result.pop("home")).parent == checkout / "compress"
    assert result == expected(checkout)
