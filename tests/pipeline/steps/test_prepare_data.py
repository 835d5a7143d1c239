"""What is refused as soon as the rows are known."""

import json

import pytest

from compress.cli import main


@pytest.mark.parametrize(("prune", "code"), [("{heads: 0.25}", 2), ("{vocabulary: seen}", 0), ("null", 0)])
def test_a_sample_too_small_for_importance_is_refused_before_training(prune, code, recipe_file, tmp_path, capsys):
    train, test = (tmp_path / f"{role}.csv" for role in ("train", "test"))
    train.write_text("".join(train.read_text().splitlines(keepends=True)[:8]))
    recipe_file.write_text(recipe_file.read_text().replace("select_share: 0.05", f"select: {test}"))
    command = ["run", str(recipe_file), "--runs", str(tmp_path / "runs"), "--until=data", f"--set=prune={prune}"]
    assert main(command) == code
    main([*command[:-1], "--set=prune=null"])
    assert main([*command, "--until=recover" if code else "--until=data"]) == code  # of rows that are prepared already
    message = "importance needs at least 8 rows of train to be computed on, and there are 7"
    assert (message in capsys.readouterr().err) == (code == 2)
    events = (tmp_path / "runs" / "tiny" / "events.jsonl").read_text().splitlines()
    assert {json.loads(line)["step"] for line in events} <= {"data"}
