"""No loss waits for a GPU to tell what it holds.

On torch's `meta` device tensors have shapes and no values, so that whoever asks for one fails. What the host knows of a
batch stays on the host, as `compress.batch_arrays` declares.
"""

from contextlib import nullcontext

import pytest
import torch

from compress.batch_arrays import BATCH_POSITIONS, EXTRA_COLUMNS
from compress.losses import LOSSES
from compress.losses.tensor_ops.row_groups import RowGroups, loss_on_subset
from compress.losses.tensor_ops.soft_targets import select_soft_targets
from compress.recipe.loss_schema import SoftLabel
from tests.losses import test_task_losses
from tests.losses.distillation import test_soft_label
from tests.losses.helpers import OUTPUTS, TASK_LOSSES, drawn
from tests.losses.layers import CASES, batch_of, section, states

PROBLEMS = sorted(TASK_LOSSES)
ON_HOST = {array.name for array in (*EXTRA_COLUMNS, *BATCH_POSITIONS) if array.where == "host"}


@pytest.fixture(autouse=True)
def without_autocast(monkeypatch):
    """It knows no `meta` device."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())


def away(tensors, learns=False):
    """The same on a device that tells nothing, but for what stays with the host."""
    moved = {name: each if name in ON_HOST else each.to("meta") for name, each in tensors.items()}
    return {name: each.requires_grad_() if learns else each for name, each in moved.items()}


def test_ungrouped_batch_needs_no_counting(monkeypatch):
    monkeypatch.setattr(torch, "bincount", None)
    assert RowGroups.from_batch(batch_of()).example_weights().tolist() == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize("group", [None, [0, 0, 1]])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_layers(name, options, group):
    ours, theirs = away(states(), learns=True), away(states(seed=9))
    loss = LOSSES[name].function(ours, theirs, away(batch_of(group=group)), section(name, **options))
    loss.backward()
    assert loss.device.type == "meta"


@pytest.mark.parametrize("form", test_soft_label.FORMS)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_answers(problem, form):
    ours, theirs = away(test_soft_label.outputs(problem), learns=True), away(test_soft_label.outputs(problem, seed=9))
    arrays = test_soft_label.batch()
    if problem == "single_label_classification":
        arrays |= {"labels": torch.zeros(6, dtype=torch.int64), "labelled": torch.tensor([1.0, 1, 0, 1, 1, 1])}
    test_soft_label.compared(problem, ours, theirs, arrays=away(arrays), form=form).backward()


@pytest.mark.parametrize("long", ["mean", "max", "attention"])
@pytest.mark.parametrize("problem", [problem for problem in PROBLEMS if problem != "retrieval"])
def test_true_answers(problem, long):
    """But for retrieval's, which looks for texts that are the same."""
    outputs, batch, about = test_task_losses.cases(long)[problem]
    TASK_LOSSES[problem].function(away(outputs, learns=True), away(batch), about.long).backward()


def test_true_answers_of_some_rows():
    chosen = torch.tensor([True, True, False, True, True, True])
    outputs, batch, about = test_task_losses.cases()["single_label_classification"]

    def loss(ours, few):
        assert RowGroups.from_batch(few).num_rows == 2
        return TASK_LOSSES["single_label_classification"].function(ours, few, about.long)

    loss_on_subset(chosen, away(outputs, learns=True), away(batch), loss).backward()


def test_soft_labels():
    form = OUTPUTS["single_label_classification"]
    brought = torch.tensor([[0.5, 0.5], [torch.nan, torch.nan], [0.9, 0.1]])
    batch = away({**batch_of(), "soft_labels": brought})
    theirs = select_soft_targets(away({"logits": drawn(3, 2)}), batch, "cut", form)
    ours = away({"logits": drawn(3, 2, seed=1)}, learns=True)
    LOSSES["soft_label"].function(ours, theirs, batch, "cut", form, SoftLabel()).backward()
