"""The base install pulls, verifies, times and predicts with a published model; nothing on this path imports torch."""

import pytest

import compress
from tests.without_torch import light


@pytest.mark.slow
def test_a_published_model_is_pulled_verified_timed_and_predicts_without_torch(published, tmp_path):
    pulled = tmp_path / "pulled"
    for arguments in (
        ["pull", str(published), str(pulled)],
        ["verify", str(pulled)],
        ["zoo", "ls", str(published.parent)],
        ["zoo", "show", f"{published.parent}/films-small"],
        ["zoo", "diff", str(published), str(published)],
        ["bench", str(pulled), "--rounds", "3", "--seconds", "0.02"],
    ):
        done = light(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
    output = light("predict", str(pulled), "good film")
    assert output.returncode == 0, output.stderr
    assert output.stdout.split()[0] == compress.open(published).predict(["good film"])[0]["label"]
