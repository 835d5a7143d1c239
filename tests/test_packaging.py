"""What pyproject.toml, constraints.txt and the Makefile promise, without building or installing anything."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def pins():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return {canonical(line.partition("==")[0]): line.partition("==")[2] for line in lines if not line.startswith("#")}


def applies(requirement, extras=()):
    return not requirement.marker or any(requirement.marker.evaluate({"extra": each}) for each in ("", *extras))


def closure(requirements):
    """Everything that these requirements bring, from the metadata of what is installed."""
    result, left = {}, [Requirement(each) for each in requirements]
    while left:
        wanted = left.pop()
        name = canonical(wanted.name)
        if name == "compress-encoders":
            left += [Requirement(each) for extra in wanted.extras for each in EXTRAS[extra]]
            continue
        new = set(wanted.extras) - result.get(name, set())
        if name in result and not new:
            continue
        result.setdefault(name, set()).update(wanted.extras)
        try:
            needs = [Requirement(each) for each in metadata.distribution(wanted.name).requires or []]
        except metadata.PackageNotFoundError:
            pytest.skip(f"{wanted.name} is not installed, so what it needs is unknown")
        left += [need for need in needs if applies(need, wanted.extras)]
    return set(result)


# What only CUDA builds of torch bring; torch names their exact versions itself.
CUDA = re.compile(r"nvidia-|cuda-|triton")


def test_constraints_pin_the_whole_tree():
    wanted = closure([*PROJECT["dependencies"], *EXTRAS["all"], *EXTRAS["dev"]])
    assert {name for name in wanted if not CUDA.match(name)} - set(pins()) == set()


def test_constraints_are_exact_and_of_no_local_build():
    for name, version in pins().items():
        assert version, name
        assert Version(version).local is None, name


def test_constraints_admit_what_pyproject_asks_for():
    pinned = pins()
    for each in [*PROJECT["dependencies"], *(line for extra in EXTRAS.values() for line in extra)]:
        requirement = Requirement(each)
        if canonical(requirement.name) != "compress-encoders":
            assert requirement.specifier.contains(pinned[canonical(requirement.name)]), each


def test_all_has_every_extra_but_some():
    (everything,) = EXTRAS["all"]
    # torchao writes to the error stream of every program that imports transformers.
    with_torchao = {"neural-compressor", "executorch", "litert", "litert-runtime"}
    of_a_cluster = {"ray"}
    assert Requirement(everything).extras == set(EXTRAS) - {"all", "dev", *with_torchao, *of_a_cluster}


def test_the_base_install_is_light():
    heavy = {"torch", "transformers", "datasets", "accelerate", "pandas", "pyarrow", "scikit-learn", "scipy", "onnx"}
    assert closure(PROJECT["dependencies"]) & heavy == set()


@pytest.fixture
def make(tmp_path):
    """Runs make on a copy of the Makefile, with a command in the place of Python."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    for name in ("Makefile", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)

    def run(script):
        python = tmp_path / "python"
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
        command = ["make", "-C", tmp_path, "demo", f"PYTHON={python}", "VENV=.venv"]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=clean)

    return run


def error_line(done):
    """The one line that names the fault and its remedy."""
    assert done.returncode != 0
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("error:")]
    return line


def test_make_names_a_python_that_is_too_old(make):
    assert "Python 3.11, 3.12 or 3.13 is needed" in error_line(make('case "$2" in *version_info*) exit 1;; esac'))


@pytest.mark.parametrize(
    "version", [(3, 10, 14), (3, 11, 0), (3, 12, 1), (3, 13, 9), (3, 14, 0)], ids=lambda each: f"3.{each[1]}"
)
def test_make_readme_and_classifiers_know_the_pythons_that_pyproject_admits(version):
    name = f"3.{version[1]}"
    admitted = Version(".".join(map(str, version))) in SpecifierSet(PROJECT["requires-python"])
    check = re.search("^ADMITTED = import sys; (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    with pytest.raises(SystemExit) as exit_of_make:
        exec(check[1], {"sys": SimpleNamespace(exit=sys.exit, version_info=version)})
    assert (not exit_of_make.value.code) == admitted
    assert (f"Programming Language :: Python :: {name}" in PROJECT["classifiers"]) == admitted
    readme = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert any("Python 3." in line and name in line for line in readme) == admitted


def test_make_names_a_missing_venv_module(make):
    line = error_line(make('case "$2" in *ensurepip*) exit 1;; esac'))
    assert "apt-get install python3-venv" in line


def test_project_files_name_the_version_and_the_pinned_ruff():
    import yaml

    import compress

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    released = re.search(r"^## \[(\d+\.\d+\.\d+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert citation["version"] == released.group(1) == compress.__version__
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert [each["rev"] for each in hooks["repos"]] == [f"v{pins()['ruff']}"]


def test_the_workflow_calls_targets_of_the_makefile_on_every_admitted_python():
    import yaml

    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    called = re.findall(r"run: make ([\w-]+)", workflow)
    assert called
    assert all(re.search(f"^{target}:", makefile, re.MULTILINE) for target in called)
    tested = yaml.safe_load(workflow)["jobs"]["linux"]["strategy"]["matrix"]["python"]
    admitted = SpecifierSet(PROJECT["requires-python"])
    assert tested == [f"3.{minor}" for minor in range(100) if f"3.{minor}.0" in admitted]


def test_make_install_brings_what_the_readme_types():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (extras,) = re.findall(r'installed-demo: .*\n.*-e "\.\[(.*)\]"', makefile)
    assert {"train", "serve"} <= {*extras.split(",")}
