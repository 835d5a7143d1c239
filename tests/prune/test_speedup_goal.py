"""Reaching a speed-up: the choice by the table, its correction by timing, and goals out of reach."""

from itertools import cycle

import pytest
import torch

from compress.console import Console
from compress.errors import ModelError
from compress.models.encoder_parts import layer_shapes
from compress.models.heads import HEADS
from compress.prune.cut_and_recover import prune_from_model
from compress.prune.speedup_goal import ATTEMPTS, SpeedupGoal, choose_by_table
from compress.recipe.prune_schema import Prune
from compress.tasks import KINDS
from tests.prune.test_latency_table import shape, table
from tests.train.test_objective import ROWS, task_of

HEAD_IMPORTANCE = [torch.tensor([4.0, 1.0, 3.0, 2.0]), torch.tensor([0.1, 0.2, 0.3, 0.4])]
FFN = [torch.arange(64.0) / 100, torch.arange(64.0).flip(0) / 1000]


def settings(speedup=2.0, **changes):
    return Prune.model_validate({"to": {"speedup": speedup}, "recover": False, **changes})


@pytest.fixture
def timed(monkeypatch):
    """Makes goals whose real models are by a factor faster than the table predicts."""

    def make(model, goal, factor, given=None):
        monkeypatch.setattr(SpeedupGoal, "_open", lambda self, model: "uncut")
        monkeypatch.setattr(SpeedupGoal, "_measure", lambda self, uncut, choice: choice.predicted * factor)
        return SpeedupGoal(model, settings(goal, round_to=2), given or table(), Console("quiet"))

    return make


def test_the_least_important_units_go_and_every_layer_keeps_some():
    choice = choose_by_table(HEAD_IMPORTANCE, FFN, table(), 2.0, 16)
    assert choice.predicted >= 2.0
    sizes = [len(kept) for kept in choice.heads], [len(kept) for kept in choice.ffn]
    assert table().model_time(*sizes) == pytest.approx(table().model_time([4, 4], [64, 64]) / choice.predicted)
    assert all(choice.heads)
    assert all(len(kept) % 16 == 0 and kept for kept in choice.ffn)
    assert len(choice.heads[0]) >= len(choice.heads[1])
    assert choice.heads[1] == sorted(range(4), key=lambda unit: -HEAD_IMPORTANCE[1][unit])[: len(choice.heads[1])][::-1]


def test_none_where_the_table_says_it_cannot_be():
    assert choose_by_table(HEAD_IMPORTANCE, FFN, table(), 19.5, 16) is None
    assert choose_by_table(HEAD_IMPORTANCE, FFN, table(), 19.0, 16).predicted == pytest.approx(19.0)


def test_a_layer_is_dropped_where_that_loses_less():
    choice = choose_by_table(HEAD_IMPORTANCE, [FFN[0], FFN[1] / 10], table(layer=0.7), 10.0, 16)
    assert (choice.heads[1], choice.ffn[1]) == ([], [])
    assert choice.heads[0] == [0, 2]  # more than what both layers could keep in this time
    assert choice.predicted >= 10.0
    sizes = [len(kept) for kept in choice.heads], [len(kept) for kept in choice.ffn]
    assert choice.predicted == pytest.approx(19.0 / table(layer=0.7).model_time(*sizes))


def test_one_layer_stays_at_any_speed():
    dropping = table(layer=0.7)
    choice = choose_by_table(HEAD_IMPORTANCE, FFN, dropping, 19.0 / 0.3, 16)
    assert [len(kept) for kept in choice.heads] == [1, 0]
    assert [len(kept) for kept in choice.ffn] == [16, 0]
    assert choose_by_table(HEAD_IMPORTANCE, FFN, dropping, 70.0, 16) is None


def test_a_table_without_that_time_drops_no_layer():
    assert all(choose_by_table(HEAD_IMPORTANCE, FFN, table(), 18.0, 16).heads)


@pytest.mark.parametrize("factor", [0.8, 1.0, 1.25])
def test_choice_is_corrected_until_the_real_model_is_close(tiny_model, timed, factor):
    goal = timed(tiny_model("bert"), 3.0, factor)
    heads, ffn = goal.select(HEAD_IMPORTANCE, FFN)
    reached = factor * 19.0 / goal.table.model_time([len(kept) for kept in heads], [len(kept) for kept in ffn])
    assert reached == pytest.approx(3.0, rel=0.1)
    chosen = goal.result.attempts[goal.result.chosen]
    assert (chosen.heads, chosen.ffn) == (tuple(map(len, heads)), tuple(map(len, ffn)))
    assert chosen.measured == pytest.approx(reached)
    assert chosen.predicted == pytest.approx(reached / factor)


def test_a_goal_that_the_real_model_misses_is_refused(tiny_model, timed):
    with pytest.raises(ModelError, match=r"10 times faster was not reached: measured at most 7\.60"):
        timed(tiny_model("bert"), 10.0, 0.4).select(HEAD_IMPORTANCE, FFN)


def test_a_choice_that_reaches_the_goal_comes_before_a_nearer_one_that_misses_it(tiny_model, timed, monkeypatch):
    goal, times = timed(tiny_model("bert"), 3.0, 1.0), iter([2.55, 3.6, 2.4, 4.5])
    monkeypatch.setattr(goal, "_measure", lambda uncut, choice: next(times))
    goal.select(HEAD_IMPORTANCE, FFN)
    assert goal.result.attempts[goal.result.chosen].measured == 3.6


def test_attempts_end(tiny_model, timed, monkeypatch):
    goal, tried = timed(tiny_model("bert"), 3.0, 1.0), []
    monkeypatch.setattr(
        goal, "_measure", lambda uncut, choice: tried.append(choice) or 3.0 * (1.05 - len(tried) % 2 / 10)
    )
    goal.select(HEAD_IMPORTANCE, FFN)
    assert 1 < len(tried) <= ATTEMPTS


@pytest.mark.parametrize("dropping", [table(), table(layer=0.6)])
@pytest.mark.parametrize("round_to", [16, 48, 64, 128])
def test_the_largest_speedup_can_be_chosen(dropping, round_to):
    largest = dropping.largest_speedup(shape(), round_to)
    assert choose_by_table(HEAD_IMPORTANCE, FFN, dropping, largest, round_to).predicted == pytest.approx(largest)
    assert choose_by_table(HEAD_IMPORTANCE, FFN, dropping, largest * 1.01, round_to) is None


@pytest.mark.parametrize(
    ("given", "speedup", "reason"),
    [
        (table(hidden=48), 2.0, "hidden 48"),
        (table(), 30.0, "at most 19.0 times faster"),
        (None, 2.0, "needs a latency table"),
    ],
)
def test_what_cannot_be_is_refused_before_scoring(tiny_model, given, speedup, reason):
    with pytest.raises(ModelError, match=reason):
        SpeedupGoal(tiny_model("bert"), settings(speedup), given, Console("quiet"))


def test_table_from_elsewhere_is_taken_at_its_word(tiny_model, tiny_tokenizer, tiny_task, tmp_path):
    path = tmp_path / "phone.json"
    path.write_text(table().model_dump_json())
    rows = [{"text": "a good film" if number % 2 else "a bad film", "label": number % 2} for number in range(32)]
    wanted = settings(3.0, latency_table=str(path), batches=1)
    pruned = prune_from_model(tiny_model("bert"), tiny_tokenizer, rows, rows, tiny_task, wanted)
    shapes = layer_shapes(pruned)
    assert 19.0 / table().model_time([heads for heads, _ in shapes], [ffn for _, ffn in shapes]) >= 3.0


FAMILIES = ("bert", "roberta", "xlm-roberta", "electra", "distilbert")
RECOVER = {"epochs": 1, "batch_size": 8, "learning_rate": 1e-3, "precision": "fp32"}


@pytest.mark.parametrize(("kind", "family"), list(zip(KINDS, cycle(FAMILIES))))
def test_models_of_every_kind_lose_a_layer_and_recover(kind, family, tiny_model, tiny_tokenizer, tmp_path):
    path, head = tmp_path / "phone.json", HEADS[KINDS[kind].head]
    task = task_of(kind).model_copy(update={"metric": KINDS[kind].metrics[0].name})
    path.write_text(table(family=family, layer=0.9).model_dump_json())
    names = [str(index) for index in range(KINDS[kind].output_count(task))]
    pooling = {"pooling": "mean"} if head.name == "sentence-embedding" else {}
    model = tiny_model(family, labels=names, head=head.suffix, pad_token_id=0, **pooling)
    rows = [row for row in ROWS[kind] if row.get("answers") != []] * 2
    wanted = settings(30.0, latency_table=str(path), batches=1, recover=RECOVER)
    pruned = prune_from_model(model, tiny_tokenizer, rows, [], task, wanted)
    assert layer_shapes(pruned) == [(1, 16)]
    assert pruned.config.num_hidden_layers == 1
    assert type(pruned).__name__.endswith(head.suffix)
