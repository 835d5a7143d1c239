"""A run with `export: all`: what can be built here is scored, delivered and verified; what is left out is named."""

import shutil
from types import SimpleNamespace

import pytest

from compress.cli import main
from compress.formats import EXPORTS
from compress.publish.published_model import find
from compress.report.report_schema import read_report
from compress.variants import describe_missing, missing_extras, missing_programs

FOR_WINNERS = [name for name, form in EXPORTS.items() if not form.competes]
MISSING = {name: describe_missing(missing_extras(name), missing_programs(name)) for name in EXPORTS}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ran(finished_run, assets, tmp_path_factory):
    """The finished run with all formats, published."""
    folder = tmp_path_factory.mktemp("all") / "copy"
    shutil.copytree(finished_run.parent, folder, symlinks=True)
    words = ["--runs", str(folder / "runs"), "--set", "export=all", "--set", f"publish={folder / 'zoo'}"]
    code = main(["run", str(folder / "tiny.yaml"), *words])
    run = folder / "runs" / "tiny"
    entry = folder / "zoo" / find(f"{folder / 'zoo'}/tiny").folder
    return SimpleNamespace(code=code, run=run, report=read_report(run), entry=entry)


@pytest.fixture(scope="module")
def packaged(ran):
    """What was built for the winner, by format."""
    return {row.format: row for row in ran.report.packaged}


def test_the_run_is_complete_and_its_report_names_what_is_left_out(ran, packaged):
    assert ran.code == 0
    assert packaged.keys() == {name for name in FOR_WINNERS if not MISSING[name]}
    assert [remark for remark in ran.report.remarks if "leaves out" in remark] == [
        f"export: all leaves out {name}: not installed: {what}" for name, what in MISSING.items() if what
    ]


@pytest.mark.parametrize("name", FOR_WINNERS)
def test_a_format_of_the_winner_is_scored_delivered_and_verified(name, ran, packaged, capsys):
    if MISSING[name]:
        pytest.skip(f"not installed: {MISSING[name]}")
    row = packaged[name]
    assert (row.status, row.is_delivered, row.test is not None) == ("ok", True, True)
    assert (ran.run / "winner" / "cpu" / name / "compress.json").is_file()
    assert main(["verify", str(ran.entry)]) == 0
    assert f"{ran.entry.name}/{name} ({row.variant.name}) repeats PyTorch" in capsys.readouterr().out
