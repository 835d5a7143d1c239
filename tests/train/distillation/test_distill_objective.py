"""What a student is held to, and when: phases, moving weights, and what rows bring along."""

import math

import numpy as np
import pytest
import torch

from compress.errors import UsageError
from compress.families import FAMILIES
from compress.losses import EMBEDDINGS
from compress.losses.distillation.hidden_state import hidden_state
from compress.models.encoder_parts import capture_parts
from compress.models.student.build_student import build_student
from compress.recipe.distill_schema import Distill
from compress.recipe.loss_schema import HiddenState, SoftLabel
from compress.recipe.student_schema import Student
from compress.recipe.training_schema import Checkpoints
from compress.train.distillation.distill_objective import DistillObjective
from compress.train.distillation.layer_pairs import STUDENT, TEACHER
from compress.train.distillation.teachers import Teacher
from compress.train.loop import train
from compress.train.objective import TaskObjective, forward

TWO = ({"share": 0.6, "hidden_state": 1.0, "attention": 1.0, "embedding": 1.0}, {"share": 0.4, "soft_label": 2.0})


class Listening(Teacher):
    """Records the requested parts of each call."""

    def __init__(self, model):
        super().__init__([(model, 1.0)])
        self.requested = []

    def __call__(self, batch, wanted):
        self.requested.append({layer: set(parts) for layer, parts in wanted.items()})
        return super().__call__(batch, wanted)


@pytest.fixture
def six(material):
    return {name: torch.from_numpy(array) for name, array in material.train.batch(list(range(6))).items()}


@pytest.fixture
def pair(tiny_model):
    """(a student of one layer, its teacher)."""
    teacher = tiny_model("bert")
    return build_student(teacher, Student(layers=1)).train(False), teacher


def after(objective, progress, student, batch):
    objective.begin(progress)
    return objective(student, batch)


def test_phases_follow_one_another(pair, six, tiny_task):
    student, teacher = pair
    recorder = Listening(teacher)
    objective = DistillObjective(student, recorder, Distill(phases=TWO), tiny_task)
    active = [set(after(objective, progress, student, six)) for progress in (0.0, 0.59, 0.6, 0.99)]
    assert active == [{"hidden_state", "attention", "embedding"}] * 2 + [{"soft_label"}] * 2
    assert recorder.requested == [{1: {"hidden", "query", "key"}, EMBEDDINGS: {"hidden"}}] * 2 + [{}] * 2
    assert objective.layer_pairs.all_parts(TEACHER) == recorder.requested[0]
    assert objective.layer_pairs.all_parts(STUDENT) == {0: {"hidden", "query", "key"}, EMBEDDINGS: {"hidden"}}


def test_each_phase_is_what_it_would_be_alone(pair, six, tiny_task):
    student, teacher = pair
    phased = DistillObjective(student, teacher, Distill(phases=TWO, temperature=2.0), tiny_task)
    for progress, phase in zip((0.3, 0.8), TWO, strict=True):
        losses = {name: weight for name, weight in phase.items() if name != "share"}
        alone = DistillObjective(student, teacher, Distill(losses=losses, hard_label=0.0, temperature=2.0), tiny_task)(
            student, six
        )
        result = after(phased, progress, student, six)
        assert {name: loss.item() for name, loss in result.items()} == {n: loss.item() for n, loss in alone.items()}


def test_shares_that_add_up_with_rounding_begin_in_time(pair, tiny_task):
    phases = [{"share": share, "soft_label": weight} for share, weight in ((0.2, 1.0), (0.4, 2.0), (0.4, 3.0))]
    objective = DistillObjective(*pair, Distill(phases=phases), tiny_task)
    weights = []
    for done in range(10):
        objective.begin(done / 10)
        weights.append(objective.weights["soft_label"])
    assert weights == [1.0] * 2 + [2.0] * 4 + [3.0] * 4


def test_weights_move_within_their_phase(pair, six, tiny_task):
    phases = [
        {"share": 0.5, "hidden_state": 1.0, "soft_label": {"weight": {"start": 0.0, "end": 2.0}}},
        {"share": 0.5, "soft_label": {"weight": {"start": 2.0, "end": 0.0}}, "hard_label": 1.0},
    ]
    student, teacher = pair
    objective = DistillObjective(student, teacher, Distill(phases=phases), tiny_task)
    assert set(after(objective, 0.0, student, six)) == {"hidden_state"}  # what weighs nothing is not computed
    full = after(objective, 0.5, student, six)["soft_label"].item()
    for progress, share in ((0.125, 0.25), (0.25, 0.5), (0.75, 0.5), (0.875, 0.25)):
        result = after(objective, progress, student, six)["soft_label"].item()
        assert result == pytest.approx(share * full, rel=1e-5)


def test_single_loss_may_start_at_weight_zero(pair, six, tiny_task):
    student, teacher = pair
    rising = Distill(losses={"soft_label": {"weight": {"start": 0.0, "end": 1.0}}}, hard_label=0.0)
    loss = after(DistillObjective(student, teacher, rising, tiny_task), 0.0, student, six)["soft_label"]
    assert loss.item() == 0.0
    loss.backward()


def test_a_phase_without_losses_is_refused(pair, tiny_task):
    empty = Distill(phases=[{"share": 0.5, "soft_label": 1.0}, {"share": 0.5, "hidden_state": 0.0}])
    with pytest.raises(UsageError, match="in phase 2 all distillation losses and hard_label have weight zero"):
        DistillObjective(*pair, empty, tiny_task)


@pytest.mark.parametrize(
    ("phases", "settled"),
    [
        (TWO, [False, True]),
        (TWO[::-1], [True, True]),
        (({"share": 0.5, "hard_label": 1.0}, {"share": 0.5, "soft_label": 1.0, "hidden_state": 1.0}), [False, True]),
        (({"share": 0.5, "hidden_state": 1.0}, {"share": 0.5, "attention": 1.0}), [False, True]),
        ((), [True, True]),
    ],
)
def test_scores_compete_from_the_last_phase_that_trains_outputs(phases, settled, pair, tiny_task):
    objective, result = DistillObjective(*pair, Distill(phases=phases), tiny_task), []
    for progress in (0.1, 0.9):
        objective.begin(progress)
        result.append(objective.is_selectable())
    assert result == settled


def test_the_best_weights_come_from_the_last_phase(pair, material, tmp_path):
    student, teacher = pair
    scores = iter([0.9, 0.8, 0.7, 0.2, 0.3])
    settings = Distill(phases=TWO, epochs=5, batch_size=8, learning_rate=5e-5, patience=1, precision="fp32")
    objective = DistillObjective(student, teacher, settings, material.task)
    result = train(
        student, objective, material.train, settings, seed=0, work=tmp_path, evaluate=lambda model: next(scores)
    )
    assert (result.score, result.best_at, result.updates) == (0.3, 35, 35)
    assert set(result.history[0].losses) == {"hidden_state", "attention", "embedding"}
    assert set(result.history[-1].losses) == {"soft_label"}


class Killed(Exception):
    pass


@pytest.mark.parametrize("call", [4, 15, 23])
def test_phases_resume_bit_for_bit(call, tiny_model, material, tmp_path, same_weights):
    """Projections learn in the first phase alone; where it is killed in the second their memory is kept too."""
    teacher = tiny_model("bert")
    narrow = Student(layers=1, hidden=16, heads=2)
    settings = Distill(
        phases=[{"share": 0.6, "hidden_state": 1.0, "embedding": {"weight": {"start": 1.0, "end": 0.0}}}, TWO[1]],
        epochs=4,
        batch_size=8,
        learning_rate=3e-3,
        precision="fp32",
        checkpoint=Checkpoints(minutes=None, steps=1),
    )

    def run(work, dies_at=0):
        student = build_student(teacher, narrow, seed=1)
        objective = DistillObjective(student, teacher, settings, material.task)
        real, left = objective._teacher_outputs, [dies_at]

        def ask(batch):
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            return real(batch)

        objective._teacher_outputs = ask
        train(student, objective, material.train, settings, seed=0, work=work)
        return student

    whole = run(tmp_path / "whole")
    with pytest.raises(Killed):
        run(tmp_path / "killed", call)
    assert same_weights(run(tmp_path / "killed"), whole)


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.resizable])
def test_each_layer_pair_has_one_projection(name, tiny_model, batch_of, tiny_task):
    teacher = tiny_model(name)
    student = build_student(teacher, Student(layers=1, hidden=16, heads=2, start="random"), seed=1)
    losses = dict.fromkeys(("hidden_state", "embedding", "contrast"), 1.0)
    objective = DistillObjective(student, teacher, Distill(losses=losses, hard_label=0.0), tiny_task)
    assert sorted(objective.projections) == [(EMBEDDINGS, EMBEDDINGS), (0, 1)]
    assert [tuple(module.weight.shape) for module in objective.modules()] == [(32, 16)] * 2
    torch.stack(list(objective(student, batch_of(student)).values())).sum().backward()
    assert all(module.weight.grad.abs().sum() > 0 for module in objective.modules())


@pytest.fixture
def batch_of():
    """Makes a padded batch for any family."""

    def make(model):
        ids = torch.arange(24).reshape(3, 8) % 20 + 4
        mask = torch.ones_like(ids)
        mask[1, 5:] = 0
        pad = model.config.pad_token_id or 0
        ids = torch.where(mask > 0, ids, pad)
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
        return {**given, "labels": torch.tensor([0, 1, 1])}

    return make


def test_projections_are_shared_and_used(tiny_model, six, tiny_task):
    teacher = tiny_model("bert")
    student = build_student(teacher, Student(layers=1, hidden=16, heads=2), seed=1).train(False)
    objective = DistillObjective(student, teacher, Distill(losses={"hidden_state": 1.0}, hard_label=0.0), tiny_task)
    with (
        capture_parts(student, {0: {"hidden"}}) as ours,
        capture_parts(teacher, {1: {"hidden"}}) as theirs,
    ):
        forward(student, six)
        forward(teacher, six)
    wide = {"hidden": objective.projections[0, 1](ours[0]["hidden"])}
    expected = hidden_state(wide, theirs[1], six, HiddenState())
    assert objective(student, six)["hidden_state"].item() == pytest.approx(expected.item(), rel=1e-6)


def test_the_last_layer_follows_the_teacher_s_last_or_another(tiny_model, six, tiny_task):
    teacher = tiny_model("bert", num_hidden_layers=4)
    student = build_student(teacher, Student(layers=2))
    for layer, expected in ((None, 3), (1, 1)):
        recorder = Listening(teacher)
        settings = Distill(losses={"relation": {"weight": 1.0, "layer": layer}}, hard_label=0.0)
        objective = DistillObjective(student, recorder, settings, tiny_task)
        objective(student, six)
        assert recorder.requested == [{expected: {"query", "key", "value"}}]
        assert list(objective.student_parts) == [1]
    with pytest.raises(UsageError, match=r"relation.layer: 4 does not exist; the teacher has layers 0 to 3"):
        DistillObjective(student, teacher, Distill(losses={"relation": {"layer": 4}}), tiny_task)


def test_given_pairs_come_before_the_layer_map(tiny_model, six, tiny_task):
    recorder = Listening(tiny_model("bert", num_hidden_layers=4))
    student = build_student(recorder.model, Student(layers=2))
    settings = Distill(losses={"hidden_state": 1.0}, hard_label=0.0, layer_map="measured")
    DistillObjective(student, recorder, settings, tiny_task, pairs=((0, 2), (1, 3)))(student, six)
    assert sorted(recorder.requested[0]) == [2, 3]


def test_soft_labels_override_the_teacher(pair, six, tiny_task):
    student, teacher = pair
    settings = Distill(losses={"soft_label": 1.0}, hard_label=0.0, temperature=2.0)
    probabilities = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5], [1.0, 0.0], [0.0, 1.0], [0.7, 0.3]])
    recorder = Listening(teacher)
    objective = DistillObjective(student, recorder, settings, tiny_task)
    loss = objective(student, {**six, "soft_labels": probabilities})["soft_label"]
    assert recorder.requested == []  # nothing that the rows do not tell
    wanted = (probabilities**0.5) / (probabilities**0.5).sum(dim=-1, keepdim=True)  # at temperature 2
    given = (forward(student, six)["logits"] / 2).log_softmax(dim=-1)
    expected = 4 * torch.nn.functional.kl_div(given, wanted, reduction="batchmean")
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_rows_without_soft_labels_use_the_teacher(pair, six, tiny_task):
    student, teacher = pair
    settings = Distill(losses={"soft_label": 1.0}, hard_label=0.0)
    own = torch.tensor([[0.9, 0.1]] * 6)
    own[[1, 4]] = math.nan
    losses = {
        name: DistillObjective(student, teacher, settings, tiny_task)(student, {**six, **given})["soft_label"].item()
        for name, given in {"mixed": {"soft_labels": own}, "model": {}}.items()
    }
    assert losses["mixed"] != losses["model"]
    alone = [each_row(student, teacher, settings, tiny_task, six, own, row) for row in range(6)]
    assert losses["mixed"] == pytest.approx(np.mean(alone), rel=1e-4)


def each_row(student, teacher, settings, task, batch, own, row):
    one = {name: tensor[row : row + 1] for name, tensor in batch.items()}
    if own[row].isfinite().all():
        one["soft_labels"] = own[row : row + 1]
    return DistillObjective(student, teacher, settings, task)(student, one)["soft_label"].item()


@pytest.mark.parametrize("form", ["kl", "mse", "decoupled"])
def test_certain_rows_are_followed_in_every_form(form, pair, six, tiny_task):
    student, teacher = pair
    settings = Distill(losses={"soft_label": SoftLabel(form=form)}, hard_label=0.0)
    certain = torch.tensor([[1.0, 0.0], [0.0, 1.0]] * 3)
    loss = DistillObjective(student, teacher, settings, tiny_task)(student, {**six, "soft_labels": certain})[
        "soft_label"
    ]
    loss.backward()
    assert loss.isfinite()
    assert all(each.grad.isfinite().all() for each in student.parameters() if each.grad is not None)


def test_layer_losses_ignore_soft_labels(pair, six, tiny_task):
    student, teacher = pair
    recorder = Listening(teacher)
    settings = Distill(losses={"soft_label": 1.0, "hidden_state": 1.0}, hard_label=0.0)
    objective = DistillObjective(student, recorder, settings, tiny_task)
    objective(student, {**six, "soft_labels": torch.full((6, 2), 0.5)})
    assert recorder.requested == [{1: {"hidden"}}]


def test_hard_label_uses_true_labels_only(pair, six, tiny_task):
    student, teacher = pair
    objective = DistillObjective(student, teacher, Distill(losses={}, hard_label=1.0), tiny_task)
    labelled = torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0, 1.0])
    result = objective(student, {**six, "labelled": labelled})["hard_label"]
    few = {name: tensor[labelled > 0] for name, tensor in six.items()}
    assert result.item() == pytest.approx(TaskObjective(tiny_task)(student, few)["task"].item() / 2, rel=1e-5)
    whole = objective(student, {**six, "labelled": torch.ones(6)})["hard_label"]
    assert whole.item() == TaskObjective(tiny_task)(student, six)["task"].item()
    none = objective(student, {**six, "labelled": torch.zeros(6)})["hard_label"]
    assert none.item() == 0.0
    none.backward()


def test_invalid_layer_map_is_refused(tiny_model, tiny_task):
    teacher = tiny_model("bert")
    for pairs in (((0, 2),), ((2, 0),)):
        with pytest.raises(UsageError, match="names a layer that does not exist"):
            DistillObjective(teacher, teacher, Distill(losses={"hidden_state": 1.0}, layer_map=pairs), tiny_task)
