"""A teacher with a BiLSTM, trained at every point of a grid from two seeds: interrupted, resumed, and to the winner."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from compress.cli import main
from compress.model_folder.model_info import read_info
from compress.report.report_schema import read_report
from compress.storage.file_digests import file_digest
from compress.train.core.optimizer import ModelAndOptimizer

RECIPE = """\
task:
  kind: token_classification
  data: {{train: {folder}/train.conll, select: {folder}/select.conll, test: {folder}/test.conll}}
  max_length: 32
teacher: {folder}/teacher
finetune:
  {{features: last4, head: bilstm, batch_size: 8, epochs: 5, precision: fp32, checkpoint: {{steps: 3}},
   seeds: 2, grid: {{learning_rate: [0.02, 0.005]}}}}
student: {{layers: 1}}
distill: {{epochs: 1, batch_size: 8, soft_label: 1.0}}
quantize: {{methods: dynamic, max_drop: 1.0}}
gate: {{max_drop: 1.0}}
measure: {{rounds: 3, processes: 1, seconds: 0.02, bootstrap: 100, memory: []}}
"""
UPDATES = 40
"""Of each training."""
BEFORE = UPDATES + 4
"""Updates before the interruption: the first training is over, and the second has written a checkpoint at its third."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def recipe(tiny_model, tiny_folder, tmp_path_factory):
    """The recipe, with an encoder of four layers and sentences in which a film after a good one is tagged."""
    folder = tmp_path_factory.mktemp("trials")
    encoder = tiny_model("bert", head="Model", num_hidden_layers=4, initializer_range=0.05)
    shutil.copytree(tiny_folder(encoder, task=None), folder / "teacher")
    for role, count in (("train", 64), ("select", 20), ("test", 20)):
        pairs = (("good O", "film B-A"), ("bad O", "film O"))
        rows = ("\n".join([*pairs[n % 2], *["plot O"] * (n % 7)]) + "\n" for n in range(count))
        (folder / f"{role}.conll").write_text("\n".join(rows), encoding="utf-8")
    path = folder / "tiny.yaml"
    path.write_text(RECIPE.format(folder=folder), encoding="utf-8")
    return path


def run(recipe: Path, runs: Path, *words: str) -> int:
    return main(["run", str(recipe), "--runs", str(runs), "--format", "quiet", *words])


@pytest.fixture(scope="module")
def resumed(recipe, tmp_path_factory):
    """The run that was interrupted in its second training and then ended, with the updates of both attempts."""
    runs, updates, step = tmp_path_factory.mktemp("runs"), [], ModelAndOptimizer.step

    def counted(*given):
        if len(updates) == BEFORE:
            raise KeyboardInterrupt
        updates.append(1)
        return step(*given)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ModelAndOptimizer, "step", counted)
        stopped = run(recipe, runs, "--until", "finetune")
        updates.clear()
        patched.setattr(ModelAndOptimizer, "step", lambda *given: updates.append(1) or step(*given))
        run(recipe, runs, "--until", "finetune")
    return SimpleNamespace(runs=runs, stopped=stopped, updates=len(updates), code=run(recipe, runs))


def teacher_of(runs: Path) -> Path:
    (folder,) = (runs / ".steps").glob("finetune-*")
    return folder


def test_only_what_is_missing_is_trained_and_ends_with_the_same_weights(resumed, recipe, tmp_path):
    assert resumed.stopped == 130
    assert resumed.updates == 4 * UPDATES - UPDATES - 3
    assert run(recipe, tmp_path, "--until", "finetune") == 0
    digests = [file_digest(teacher_of(runs) / "model.safetensors") for runs in (resumed.runs, tmp_path)]
    assert digests[0] == digests[1]
    assert not (teacher_of(tmp_path) / "training").exists()  # the encoder's states and all other models


def test_the_report_has_all_points_with_mean_and_spread(resumed):
    assert resumed.code == 0
    report = read_report(resumed.runs / "tiny")
    assert {row.status for row in report.rows} == {"ok"}
    trials = report.trials["teacher"]
    assert [(trial.settings["learning_rate"], trial.seed) for trial in trials] == [
        (rate, seed) for rate in (0.02, 0.005) for seed in (0, 1)
    ]
    assert all(trial.score is not None and trial.test is not None for trial in trials)
    page = (resumed.runs / "tiny" / "report.md").read_text(encoding="utf-8")
    assert " 0.02, seed 1" in page
    assert " 0.005, mean of 2 seeds" in page


def test_the_teacher_and_the_winner_predict_and_the_teacher_is_exported(resumed, tmp_path, capsys):
    teacher, winner = teacher_of(resumed.runs), resumed.runs / "tiny" / "winner" / "cpu"
    assert read_info(winner).task.kind == "token_classification"
    assert main(["export", str(teacher), str(tmp_path / "onnx"), "--quantize", "int8"]) == 0
    capsys.readouterr()
    for folder in (teacher, tmp_path / "onnx", winner):
        assert main(["predict", str(folder), "good film plot"]) == 0
    of_teacher, of_export, of_winner = (line.split("\t")[0] for line in capsys.readouterr().out.splitlines())
    assert of_teacher == of_export == "O, B-A, O"
    assert of_winner.startswith("O, ")
