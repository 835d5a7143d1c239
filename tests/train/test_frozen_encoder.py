"""A BiLSTM on a frozen encoder: tags are learnt, the encoder runs once over train, a killed training resumes."""

import errno

import pytest
import torch

from compress.data.splits.prepare_splits import prepare_splits
from compress.errors import unexpected
from compress.model_folder.model_info import read_info
from compress.models.load_save import load
from compress.quantize.quantization_aware import quantization_aware
from compress.recipe.distill_schema import Distill, QuantizationAware
from compress.recipe.schema import Task
from compress.recipe.student_schema import Student
from compress.recipe.training_schema import Checkpoints, Finetune
from compress.runtime import open_predictor
from compress.train import frozen_encoder
from compress.train.core.optimizer import ModelAndOptimizer
from compress.train.distill import distill
from compress.train.finetune import finetune
from compress.train.teacher_cache.cache_file import CachedTensor

SETTINGS = {"features": "last4", "head": "bilstm", "epochs": 6, "batch_size": 8, "learning_rate": 1e-2}
SETTINGS |= {"precision": "fp32"}


@pytest.fixture(scope="module")
def tagged(tmp_path_factory):
    """A prepared folder of sentences whose tag depends on the word before."""
    folder = tmp_path_factory.mktemp("tagged")
    for role, count in (("train", 60), ("select", 20), ("test", 10)):
        rows = (
            f"{['good', 'bad'][n % 2]} O\nfilm {('B-A', 'O')[n % 2]}\n" + "plot O\n" * (n % 3) for n in range(count)
        )
        (folder / f"{role}.conll").write_text("\n".join(rows), encoding="utf-8")
    files = {role: str(folder / f"{role}.conll") for role in ("train", "select", "test")}
    (folder / "data").mkdir()
    columns = {"text": "tokens", "label": "tags"}
    task = Task(name="tags", kind="token_classification", data=files, max_length=16, **columns)
    prepare_splits(task, 0, folder / "data")
    return folder / "data"


@pytest.fixture(scope="module")
def encoder(tiny_model, tiny_folder):
    model = tiny_model("bert", head="Model", initializer_range=0.05, num_hidden_layers=4)
    return model, str(tiny_folder(model, task=None))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_it_learns_tags_on_an_encoder_that_stays_as_it_is(precision, encoder, tagged, tmp_path):
    model, source = encoder
    made = finetune(source, tagged, Finetune(**SETTINGS | {"precision": precision}), 0, tmp_path / "teacher")
    assert made.result.score > 0.9
    trained = load(tmp_path / "teacher")
    before, after = model.state_dict(), trained.base_model.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in after)
    assert read_info(tmp_path / "teacher").task.kind == "token_classification"
    assert not (tmp_path / "teacher" / "training").exists()


@pytest.mark.slow
def test_students_learn_from_it(encoder, tagged, tmp_path):
    finetune(encoder[1], tagged, Finetune(**SETTINGS), 0, tmp_path / "teacher")
    training = {name: SETTINGS[name] for name in ("epochs", "batch_size", "learning_rate", "precision")}
    settings = Distill(**training, losses={"soft_label": 1.0, "hidden_state": 1.0})
    learned = distill(tmp_path / "teacher", Student(layers=2), tagged, settings, 0, tmp_path / "student")
    assert learned.result.score > 0.9
    assert open_predictor(tmp_path / "student") is not None


def test_it_is_trained_for_int8_and_keeps_its_bilstm(encoder, tagged, tmp_path):
    finetune(encoder[1], tagged, Finetune(**SETTINGS), 0, tmp_path / "teacher")
    training = {name: SETTINGS[name] for name in ("batch_size", "learning_rate", "precision")}
    settings = QuantizationAware(**training, epochs=1, losses={"soft_label": 1.0, "hidden_state": 1.0})
    learned = quantization_aware(tmp_path / "teacher", tagged, settings, 0, tmp_path / "qat")
    assert learned.result.score > 0.9
    assert load(tmp_path / "qat").config.head_layers == "bilstm"


def test_every_seed_reads_the_features_of_one_encoding(encoder, tagged, tmp_path, monkeypatch):
    written = []
    write = frozen_encoder._write
    monkeypatch.setattr(frozen_encoder, "_write", lambda *given: (written.append(len(given[2])), write(*given)))
    made = finetune(encoder[1], tagged, Finetune(**SETTINGS | {"epochs": 1}, seeds=2), 0, tmp_path)
    assert written == [60]
    assert [trial.seed for trial in made.result.trials] == [0, 1]
    assert all(trial.test is not None for trial in made.result.trials)


@pytest.mark.slow
@pytest.mark.parametrize(("part", "method", "calls"), [(ModelAndOptimizer, "step", 10), (CachedTensor, "write", 1)])
def test_a_killed_training_resumes_bit_for_bit(
    part, method, calls, encoder, tagged, tmp_path, monkeypatch, same_weights
):
    """Killed between updates, and while the states are written."""
    write = frozen_encoder._write
    settings = Finetune(**SETTINGS, checkpoint=Checkpoints(steps=3))
    monkeypatch.setattr(frozen_encoder, "BATCH", 16)
    finetune(encoder[1], tagged, settings, 0, tmp_path / "whole")
    original, left = getattr(part, method), iter(range(calls))

    def interrupted(*given):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return original(*given)

    monkeypatch.setattr(part, method, interrupted)
    with pytest.raises(KeyboardInterrupt):
        finetune(encoder[1], tagged, settings, 0, tmp_path / "killed")
    monkeypatch.setattr(part, method, original)
    written = []
    monkeypatch.setattr(frozen_encoder, "_write", lambda *given: (written.append(1), write(*given)))
    finetune(encoder[1], tagged, settings, 0, tmp_path / "killed")
    assert len(written) == (part is CachedTensor)  # what is complete is not encoded again
    assert same_weights(load(tmp_path / "whole"), load(tmp_path / "killed"))


def test_a_full_disk_ends_in_one_message(encoder, tagged, tmp_path, monkeypatch):
    def full(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    with pytest.raises(OSError, match="No space left") as raised:
        finetune(encoder[1], tagged, Finetune(**SETTINGS), 0, tmp_path)
    assert "free some disk space" in unexpected(raised.value).hint
    assert not (tmp_path / "config.json").exists()
