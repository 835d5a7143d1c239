import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from compress.console import Console
from compress.errors import CompressError, ModelError
from compress.measure.predict_rows import predict_encoded
from compress.recipe.training_schema import Checkpoints, Training
from compress.train.core import training_data as materials
from compress.train.core.training_data import predict_function
from compress.train.loop import train
from compress.train.objective import TaskObjective
from tests.train.recording_examples import RecordingExamples

SETTINGS = {"epochs": 2, "batch_size": 8, "learning_rate": 3e-3, "precision": "fp32"}


class Broken(Exception):
    pass


class BreaksAt(TaskObjective):
    """Fails at the given call, as a kill would."""

    def __init__(self, call, task):
        super().__init__(task)
        self.left = call

    def __call__(self, model, batch):
        self.left -= 1
        if self.left == 0:
            raise Broken
        return super().__call__(model, batch)


def run(model, material, work, objective=None, seed=0, evaluate=True, **settings):
    return train(
        model,
        objective or TaskObjective(material.task),
        material.train,
        Training(**{**SETTINGS, **settings}),
        seed=seed,
        work=work,
        evaluate=material.evaluate if evaluate is True else evaluate,
    )


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_training_selects_the_best_weights(precision, tiny_model, material, tmp_path):
    model = tiny_model("bert", initializer_range=0.1)
    result = run(model, material, tmp_path, epochs=4, precision=precision)
    assert result.score == 1.0
    assert material.evaluate(model) == 1.0
    assert result.precision == precision
    assert not model.training
    assert result.history[-1].losses["task"] < result.history[0].losses["task"]
    assert (result.updates, result.rows) == (28, 200)
    assert result.seconds > 0


def test_scores_are_those_of_full_precision(tiny_model, material, tmp_path):
    """In bf16 there are more ties than there will be when the result is scored."""
    seen = []

    def evaluate(model):
        names = ("input_ids", "attention_mask", "token_type_ids")
        arrays = material.train.batch(np.arange(4))
        seen.append(
            (
                torch.is_autocast_enabled("cpu"),
                predict_function(model)({name: arrays[name] for name in names})["logits"],
            )
        )
        return 0.0

    model = tiny_model("bert")
    run(model, material, tmp_path, evaluate=evaluate, precision="bf16", epochs=1)
    (mixed, logits), *_ = seen
    assert not mixed
    assert (logits != torch.from_numpy(logits).bfloat16().float().numpy()).any()


def test_the_same_seed_gives_the_same_weights(tiny_model, material, tmp_path, same_weights):
    models = [tiny_model("bert") for _ in range(3)]
    for index, (model, seed) in enumerate(zip(models, (1, 1, 2), strict=True)):
        run(model, material, tmp_path / str(index), seed=seed)
    assert same_weights(models[0], models[1])
    assert not same_weights(models[0], models[2])


def test_the_caller_keeps_its_random_state(tiny_model, material, tmp_path):
    before = torch.get_rng_state()
    run(tiny_model("bert"), material, tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("call", [2, 6, 9, 14])
def test_resume_is_bit_identical(call, tiny_model, material, tmp_path, same_weights):
    checkpoint = Checkpoints(minutes=None, steps=4)
    whole, halted = tiny_model("bert"), tiny_model("bert")
    expected = run(whole, material, tmp_path / "whole", checkpoint=checkpoint, evaluations=2)
    with pytest.raises(Broken):
        run(halted, material, tmp_path / "halted", BreaksAt(call, material.task), checkpoint=checkpoint, evaluations=2)
    again = tiny_model("bert")
    torch.rand(7)  # the random state of the new process is another one
    result = run(again, material, tmp_path / "halted", checkpoint=checkpoint, evaluations=2)
    assert same_weights(again, whole)
    assert (result.score, result.best_at) == (expected.score, expected.best_at)
    assert result.history == expected.history


def test_checkpoint_intervals_change_nothing(tiny_model, material, tmp_path, same_weights):
    often, never = tiny_model("bert"), tiny_model("bert")
    run(often, material, tmp_path / "often", checkpoint=Checkpoints(minutes=None, steps=1))
    run(never, material, tmp_path / "never", checkpoint=Checkpoints(minutes=None))
    assert same_weights(often, never)


def test_finished_training_leaves_only_its_result(tiny_model, material, tmp_path, same_weights):
    model, again = tiny_model("bert"), tiny_model("bert")
    result = run(model, material, tmp_path, checkpoint=Checkpoints(minutes=None, steps=2))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"best-{result.best_at:08d}.safetensors", "result.json"]
    repeated = run(again, material, tmp_path, BreaksAt(1, material.task))
    assert repeated == result
    assert same_weights(again, model)


def test_files_of_another_training_are_refused(tiny_model, material, tmp_path):
    run(tiny_model("bert"), material, tmp_path)
    with pytest.raises(ModelError, match="holds another training"):
        run(tiny_model("bert"), material, tmp_path, seed=1)
    run(tiny_model("bert"), material, tmp_path, checkpoint=Checkpoints(steps=3))


def test_rows_with_other_labels_and_other_tasks_are_another_training(
    tiny_model, tiny_tokenizer, material, rows, tmp_path
):
    def material_of(changed, task=material.task):
        tokens = materials.fast_tokenizer(tiny_model("bert").config, tiny_tokenizer)
        return materials.from_rows(changed, rows(20), task, tokens, Console("quiet"))

    run(tiny_model("bert"), material, tmp_path)
    run(tiny_model("bert"), material_of(rows(50)), tmp_path)
    turned = [{**row, "label": 1 - row["label"]} for row in rows(50)]
    longer = material.task.model_copy(update={"long": "mean"})
    for other in (material_of(turned), material_of(rows(50), longer)):
        with pytest.raises(ModelError, match="holds another training"):
            run(tiny_model("bert"), other, tmp_path)


def test_a_broken_checkpoint_is_named(tiny_model, material, tmp_path):
    with pytest.raises(Broken):
        run(
            tiny_model("bert"),
            material,
            tmp_path,
            BreaksAt(6, material.task),
            checkpoint=Checkpoints(minutes=None, steps=2),
        )
    (folder,) = tmp_path.glob("checkpoint-*")
    (folder / "tensors.safetensors").write_bytes(b"half a file")
    with pytest.raises(ModelError, match=r"tensors\.safetensors cannot be read"):
        run(tiny_model("bert"), material, tmp_path)


def test_checkpoints_hold_no_pickle(tiny_model, material, tmp_path):
    with pytest.raises(Broken):
        run(
            tiny_model("bert"),
            material,
            tmp_path,
            BreaksAt(6, material.task),
            checkpoint=Checkpoints(minutes=None, steps=2),
        )
    (folder,) = tmp_path.glob("checkpoint-*")
    assert sorted(path.name for path in folder.iterdir()) == ["state.json", "tensors.safetensors"]
    assert json.loads((folder / "state.json").read_text())["done"] == 4


def test_without_evaluation_the_last_weights_are_kept(tiny_model, material, tmp_path):
    result = run(tiny_model("bert"), material, tmp_path, evaluate=None)
    assert result.score is None
    assert result.best_at == result.updates == 14


def scores(*values):
    given = iter(values)
    return lambda model: next(given)


def test_the_best_weights_survive_worse_ones(tiny_model, material, tmp_path, same_weights):
    model, shorter = tiny_model("bert"), tiny_model("bert")
    result = run(model, material, tmp_path / "a", evaluate=scores(0.9, 0.5, 0.6), epochs=3, decay="constant", warmup=0)
    assert (result.score, result.best_at) == (0.9, 7)
    assert [entry.score for entry in result.history] == [0.9, 0.5, 0.6]
    run(shorter, material, tmp_path / "b", evaluate=scores(0.9), epochs=1, decay="constant", warmup=0)
    assert same_weights(model, shorter)


def test_patience_ends_it(tiny_model, material, tmp_path):
    result = run(tiny_model("bert"), material, tmp_path, evaluate=scores(0.9, 0.5, 0.6), epochs=9, patience=2)
    assert (result.updates, result.best_at) == (21, 7)
    assert result.ending == "2 evaluations without improvement"
    assert "3 epochs (2 evaluations without improvement)" in result.summary


def test_smaller_may_be_better_and_nan_never_is(tiny_model, material, tmp_path):
    result = train(
        tiny_model("bert"),
        TaskObjective(material.task),
        material.train,
        Training(**{**SETTINGS, "epochs": 3}),
        seed=0,
        work=tmp_path,
        evaluate=scores(math.nan, 0.3, 0.4),
        larger_is_better=False,
    )
    assert (result.score, result.best_at) == (0.3, 14)
    assert result.history[0].score is None


def test_accumulated_batches_equal_one_batch(tiny_model, material, rows, tmp_path):
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    once, twice = tiny_model("bert", **still), tiny_model("bert", **still)

    # All 50 rows at once, or 20, 20 and 10 of them.
    run(once, material, tmp_path / "once", epochs=2, batch_size=50, warmup=0)
    run(twice, material, tmp_path / "twice", epochs=2, batch_size=20, accumulate=3, warmup=0)
    # Weights cannot be compared: what has no effect (a key's bias) moves by the sign of its rounding error.
    models = once, twice, tiny_model("bert")
    result = [predict_encoded(predict_function(model), material.train, rows(50), material.task, 64) for model in models]
    assert result[0] == pytest.approx(result[1], abs=1e-3)
    assert result[0] != pytest.approx(result[2], abs=1e-2)


def test_every_row_is_seen(tiny_model, material, tmp_path):
    examples = RecordingExamples(material.train)
    train(tiny_model("bert"), TaskObjective(material.task), examples, Training(**SETTINGS), seed=0, work=tmp_path)
    assert np.bincount(examples.seen).tolist() == [2] * 50


def test_frozen_parts_are_not_updated(tiny_model, material, tmp_path):
    model, before = tiny_model("bert"), tiny_model("bert")
    run(model, material, tmp_path, freeze=1, layer_decay=0.9)
    assert torch.equal(model.bert.embeddings.word_embeddings.weight, before.bert.embeddings.word_embeddings.weight)
    ours, theirs = model.bert.encoder.layer, before.bert.encoder.layer
    assert torch.equal(ours[0].output.dense.weight, theirs[0].output.dense.weight)
    assert not torch.equal(ours[1].output.dense.weight, theirs[1].output.dense.weight)
    assert all(parameter.requires_grad for parameter in model.parameters())


class TurnsBad(TaskObjective):
    def __init__(self, call, value, task):
        super().__init__(task)
        self.left, self.value = call, value

    def __call__(self, model, batch):
        self.left -= 1
        task = super().__call__(model, batch)["task"]
        return {"task": task, "extra": task * (self.value if self.left == 0 else 1.0)}


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_non_finite_loss_stops_training(value, tiny_model, material, tmp_path):
    checkpoint = Checkpoints(minutes=None, steps=2)
    text = r"the loss extra became (nan|inf) at update 6 of 14, somewhere in rows \d+.* of train; the last checkpoint"
    with pytest.raises(CompressError, match=text):
        run(tiny_model("bert"), material, tmp_path, TurnsBad(6, value, material.task), checkpoint=checkpoint)
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-00000004"]


class BreaksOn(TaskObjective):
    """Has no loss for the given examples."""

    def __init__(self, bad, task):
        super().__init__(task)
        self.bad = torch.tensor(bad)

    def __call__(self, model, batch):
        bad = torch.isin(batch["index"], self.bad).any()
        return {name: loss / (~bad).float() for name, loss in super().__call__(model, batch).items()}


def test_rows_with_non_finite_loss_are_named(tiny_model, material, tmp_path):
    with pytest.raises(CompressError) as caught:
        run(tiny_model("bert"), material, tmp_path, BreaksOn([11, 40], material.task), batch_size=50)
    assert "the loss task became inf at update 1 of 2, in rows 12, 41 of train; no checkpoint" in str(caught.value)


def test_many_rows_are_counted(tiny_model, material, tmp_path):
    with pytest.raises(CompressError, match="in rows 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 30 more of train"):
        run(tiny_model("bert"), material, tmp_path, BreaksOn(list(range(40)), material.task), batch_size=50)


class SettlesAfter(TaskObjective):
    """Prepares for so many updates."""

    def __init__(self, updates, task):
        super().__init__(task)
        self.left = updates

    def __call__(self, model, batch):
        self.left -= 1
        return {"early" if self.left >= 0 else "late": super().__call__(model, batch)["task"]}

    def is_selectable(self):
        return self.left < 0


def test_scores_before_selectable_phases_do_not_compete(tiny_model, material, tmp_path):
    result = run(
        tiny_model("bert"),
        material,
        tmp_path,
        SettlesAfter(14, material.task),
        evaluate=scores(0.9, 0.8, 0.3, 0.4, 0.2, 0.1),
        epochs=6,
        patience=2,
    )
    assert (result.score, result.best_at, result.updates) == (0.4, 28, 42)
    assert [set(entry.losses) for entry in result.history] == [{"early"}] * 2 + [{"late"}] * 4


def test_logged_losses_are_means_over_active_updates(tiny_model, material, tmp_path):
    class Steady(SettlesAfter):
        def __call__(self, model, batch):
            return {name: 0 * loss + 1.5 for name, loss in super().__call__(model, batch).items()}

    result = run(tiny_model("bert"), material, tmp_path, Steady(3, material.task), batch_size=10, epochs=1)
    assert result.history[0].losses == {"early": 1.5, "late": 1.5}


def test_never_selectable_training_ends_with_its_last_weights(tiny_model, material, tmp_path):
    objective = SettlesAfter(99, material.task)
    result = run(tiny_model("bert"), material, tmp_path, objective, evaluate=scores(0.9, 0.5), patience=1)
    assert (result.score, result.best_at) == (0.5, 14)


def test_non_finite_gradient_stops_training(tiny_model, material, tmp_path):
    class Steep(TaskObjective):
        def __call__(self, model, batch):
            task = super().__call__(model, batch)["task"]
            return {"task": task + (task - task.detach()).abs().sqrt()}  # the slope of a root is infinite at zero

    with pytest.raises(CompressError, match="the gradient's norm became"):
        run(tiny_model("bert"), material, tmp_path, Steep(material.task))


def test_trackers_receive_losses(tiny_model, material, tmp_path, monkeypatch):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    monkeypatch.chdir(tmp_path)
    settings = Training(**SETTINGS)
    work = tmp_path / "work"
    train(
        tiny_model("bert"),
        TaskObjective(material.task),
        material.train,
        settings,
        seed=0,
        work=work,
        track="tensorboard",
    )
    assert list((tmp_path / "tracked").rglob("events.*"))


BOUNDS = {"epochs": {"least": 2, "most": 10}, "patience": 2}


def test_within_bounds_it_ends_soon_after_select_stops_improving(tiny_model, material, tmp_path):
    given = scores(0.5, 0.6, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
    result = run(tiny_model("bert"), material, tmp_path, evaluate=given, **BOUNDS)
    assert result.ending == "2 evaluations without improvement"
    assert [entry.update for entry in result.history] == [7, 14, 21, 28, 35, 42, 49, 56]
    assert (result.updates, result.best_at, result.epochs) == (56, 21, 8.0)
    assert "8 epochs (2 evaluations without improvement)" in result.summary


def test_within_bounds_it_ends_with_the_most_epochs(tiny_model, material, tmp_path):
    result = run(tiny_model("bert"), material, tmp_path, evaluate=scores(*np.linspace(0, 1, 10)), **BOUNDS)
    assert (result.updates, result.best_at, result.ending) == (70, 70, "the most allowed")


@pytest.mark.slow
@pytest.mark.parametrize("call", [27, 31])
def test_an_open_end_resumes_to_the_same_weights(call, tiny_model, material, tmp_path, same_weights):
    """Before the end is decided (after update 28), and after it."""
    values = [0.5, 0.6, 0.6, 0.5, 0.7, 0.6, 0.8, 0.7]
    whole, again = tiny_model("bert"), tiny_model("bert")
    expected = run(whole, material, tmp_path / "whole", evaluate=scores(*values), **BOUNDS)
    checkpoint = Checkpoints(minutes=None, steps=3)
    interrupted = {"evaluate": scores(*values), "checkpoint": checkpoint, **BOUNDS}
    with pytest.raises(Broken):
        run(tiny_model("bert"), material, tmp_path / "halted", BreaksAt(call, material.task), **interrupted)
    left = values[3:] if call == 27 else values[4:]
    result = run(again, material, tmp_path / "halted", evaluate=scores(*left), checkpoint=checkpoint, **BOUNDS)
    assert same_weights(again, whole)
    assert (result.history, result.ending) == (expected.history, expected.ending)


def test_a_limit_of_time_ends_it_and_is_decided_once(tiny_model, material, tmp_path, monkeypatch, same_weights):
    """The clock runs while it is interrupted, and the resumed training ends at the update that was decided."""
    clock = iter(range(0, 10**6, 2))  # a second for each look at the clock and the next
    monkeypatch.setattr("compress.train.loop.time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    settings = {"epochs": 9, "minutes": 0.5, "evaluate": None, "checkpoint": Checkpoints(minutes=None)}
    whole, again = tiny_model("bert"), tiny_model("bert")
    expected = run(whole, material, tmp_path / "whole", **settings)
    assert expected.ending == "the limit of 0.5 minutes"
    decided = expected.updates // 2
    with pytest.raises(Broken):
        run(tiny_model("bert"), material, tmp_path / "halted", BreaksAt(decided + 1, material.task), **settings)
    assert [path.name for path in (tmp_path / "halted").glob("checkpoint-*")] == [f"checkpoint-{decided:08d}"]
    monkeypatch.setattr("compress.train.loop.time", SimpleNamespace(monotonic=lambda: 0.0))
    assert run(again, material, tmp_path / "halted", **settings).updates == expected.updates < 63
    assert same_weights(again, whole)


def with_start(model, material, work, values, *, noise=0.0, larger_is_better=True, **settings):
    objective = TaskObjective(material.task)
    settings = Training(**{**SETTINGS, **settings})
    options = {"seed": 0, "work": work, "start_competes": True, "noise": noise, "larger_is_better": larger_is_better}
    return train(model, objective, material.train, settings, evaluate=scores(*values), **options)


def test_the_start_weights_compete(tiny_model, material, tmp_path, same_weights):
    model = tiny_model("bert")
    result = with_start(model, material, tmp_path, [0.9, 0.8, 0.7])
    assert (result.best_at, result.score) == (0, 0.9)
    assert [(entry.update, entry.score, entry.losses) for entry in result.history[:1]] == [(0, 0.9, {})]
    assert same_weights(model, tiny_model("bert"))


@pytest.mark.parametrize(
    ("values", "noise", "best_at"),
    [
        ((0.5, 0.90, 0.86), 0.05, 14),
        ((0.5, 0.90, 0.84), 0.05, 7),
        ((0.5, 0.90, 0.89), 0.0, 7),
        ((0.9, 0.9, 0.9), 0.0, 14),
        ((0.9, 0.88, 0.89), 0.05, 0),
        ((0.9, 0.95, 0.88), 0.1, 7),
    ],
)
def test_the_last_of_scores_within_noise_is_the_best(values, noise, best_at, tiny_model, material, tmp_path):
    """The first score is that of the start, below which no training ends."""
    result = with_start(tiny_model("bert"), material, tmp_path, values, noise=noise)
    assert (result.best_at, result.score) == (best_at, values[best_at // 7])


def test_within_noise_smaller_may_be_better(tiny_model, material, tmp_path):
    options = {"larger_is_better": False, "noise": 0.05}
    assert with_start(tiny_model("bert"), material, tmp_path / "a", [0.5, 0.30, 0.34], **options).best_at == 14
    assert with_start(tiny_model("bert"), material, tmp_path / "b", [0.5, 0.30, 0.36], **options).best_at == 7


def test_noise_is_that_of_a_paired_difference_on_select(material, rows):
    assert material.noise == pytest.approx((0.1 / 20) ** 0.5)


def test_patience_counts_trained_weights_alone(tiny_model, material, tmp_path):
    result = with_start(tiny_model("bert"), material, tmp_path, [0.9, 0.5, 0.6, 0.5, 0.4], epochs=9, patience=2)
    assert (result.updates, result.best_at) == (28, 0)


class LastPhase(TaskObjective):
    """As with phases, of which the first trains layers alone: only from the second on may weights be kept."""

    is_last = False

    def begin(self, progress, update=0):
        super().begin(progress, update)
        self.is_last = progress > 0.2

    def is_selectable(self):
        return self.is_last


def test_a_start_that_may_not_be_kept_holds_nothing_back(tiny_model, material, tmp_path):
    values, options = [0.9, 0.5, 0.6, 0.7], {"seed": 0, "work": tmp_path, "start_competes": True}
    objective, settings = LastPhase(material.task), Training(**{**SETTINGS, "epochs": 3})
    model = tiny_model("bert")
    result = train(model, objective, material.train, settings, evaluate=scores(*values), **options)
    assert (result.best_at, result.score) == (21, 0.7)


def test_evaluating_the_start_changes_no_weights(tiny_model, material, tmp_path, same_weights):
    one, other = tiny_model("bert"), tiny_model("bert")
    run(one, material, tmp_path / "one", evaluate=scores(0.1, 0.2))
    with_start(other, material, tmp_path / "other", [0.0, 0.1, 0.2])
    assert same_weights(one, other)


@pytest.mark.parametrize(
    ("later", "updates"),
    [((0.5, 0.5), 35), ((0.5, 0.6, 0.6), 42), ((0.6, 0.6, 0.6), 42), ((0.95, 0.6, 0.6), 42)],
)
def test_what_gains_nothing_over_its_start_ends_in_the_second_half_of_the_fall(
    later, updates, tiny_model, material, tmp_path, same_weights
):
    """The rate falls from update 21 on; the other scores still rise there, or are above the start's."""
    model = tiny_model("bert")
    result = with_start(model, material, tmp_path, [0.9, 0.5, 0.5, 0.5, *later], **BOUNDS)
    assert result.updates == updates
    ending = "; no gain over the start" if updates == 35 else ""
    assert result.ending == f"2 evaluations without improvement{ending}"
    assert same_weights(model, tiny_model("bert")) == (later[0] < 0.9)
