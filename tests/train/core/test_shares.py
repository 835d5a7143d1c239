"""Batches that threads share: the same gradients as without, and weights that are equal from run to run."""

import copy
import json
from io import StringIO

import pytest
import torch

from compress.console import Console
from compress.recipe.distill_schema import Distill
from compress.recipe.training_schema import Checkpoints, Training
from compress.tasks import kind_of
from compress.train.core.distributed import Processes
from compress.train.core.gradients import DeviceBatches, Gradients
from compress.train.core.optimizer import ModelAndOptimizer, frozen, parameters_of, split_optimizer
from compress.train.core.shares import ShareThreads, replicate, share_count, trained_parameters
from compress.train.core.update_schedule import UpdateSchedule
from compress.train.distillation.distill_objective import DistillObjective
from compress.train.fast_paths.fast_dropout import keep_mask
from compress.train.fast_paths.fast_training import fast_training
from compress.train.loop import train
from compress.train.objective import TaskObjective
from compress.train.teacher_cache.cache import make_teacher_cache

CPU = torch.device("cpu")
SETTINGS = {"epochs": 4, "batch_size": 32, "learning_rate": 3e-3, "precision": "fp32"}
LOSSES = {"soft_label": 1.0, "hidden_state": 1.0, "attention": 1.0}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture
def two_threads(one_thread):
    torch.set_num_threads(2)


class BreaksAt(TaskObjective):
    """Fails at the given update, as a kill would."""

    def __init__(self, task, update):
        super().__init__(task)
        self.left = update

    def begin(self, progress, update=0):
        self.left -= 1
        if self.left == 0:
            raise InterruptedError


def first_gradients(model, objective, settings, material, count):
    """Return the first update and its gradients in one vector, computed in ``count`` shares."""
    processes, threads = Processes(), ShareThreads(count)
    schedule, batches = UpdateSchedule(material.train.lengths, settings, 0), DeviceBatches(material.train, CPU)
    words, precision = material.train.vocabulary(), settings.precision
    with frozen(model.train(), settings.freeze):
        trained = ModelAndOptimizer(model, list(objective.modules()), settings, precision, words, threads)
        gradients = Gradients(objective, batches, schedule, trained, processes, threads)
        objective.begin(0.0)
        fast = fast_training(model, objective.teachers(), trained.embeddings, precision, CPU, shares=count)
        with fast, threads.started():
            update = gradients.accumulate(0, False)
    result = [parameter.grad.flatten() for parameter in trained.parameters if parameter.grad is not None]
    return update, torch.cat(result)


def assert_equal_gradients(build, settings, material, tolerance=1e-6):
    (whole, expected), (shared, result) = (first_gradients(*build(), settings, material, count) for count in (1, 3))
    assert shared.losses == pytest.approx(whole.losses, rel=10 * tolerance, abs=tolerance)
    assert shared.norm == pytest.approx(whole.norm, rel=10 * tolerance)
    assert (result - expected).abs().max() < tolerance * expected.norm()


@pytest.mark.parametrize(
    "changes", [{}, {"freeze": "embeddings"}, {"freeze": 1}, {"accumulate": 2, "batch_size": 16}], ids=str
)
def test_fine_tuning_has_the_same_gradients(changes, tiny_model, material):
    settings = Training(**{**SETTINGS, **changes})
    assert_equal_gradients(lambda: (tiny_model("bert", **NO_DROPOUT), TaskObjective(material.task)), settings, material)


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-6), ("bf16", 0.01)])
@pytest.mark.parametrize("width", [32, 16])
def test_distillation_has_the_same_gradients(width, precision, tolerance, tiny_model, material):
    settings = Distill(**{**SETTINGS, **LOSSES, "precision": precision})

    def build():
        student = tiny_model("bert", seed=1, hidden_size=width, **NO_DROPOUT)
        return student, DistillObjective(student, tiny_model("bert", **NO_DROPOUT), settings, material.task)

    assert_equal_gradients(build, settings, material, tolerance)


def test_a_batch_of_fewer_rows_than_shares_is_complete(tiny_model, material):
    settings = Training(**{**SETTINGS, "batch_size": 2})
    assert_equal_gradients(lambda: (tiny_model("bert", **NO_DROPOUT), TaskObjective(material.task)), settings, material)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_killed_training_resumes_bit_for_bit(precision, two_threads, tiny_model, material, tmp_path, same_weights):
    settings = Training(**{**SETTINGS, "precision": precision}, checkpoint=Checkpoints(minutes=None, steps=3))

    def run(work, objective):
        model = tiny_model("bert")
        train(model, objective, material.train, settings, seed=0, work=tmp_path / work, evaluate=material.evaluate)
        return model

    whole, again = (run(work, TaskObjective(material.task)) for work in ("whole", "again"))
    assert same_weights(whole, again)
    with pytest.raises(InterruptedError):
        run("killed", BreaksAt(material.task, 6))
    torch.rand(7)  # the random state of the new process is another one
    assert same_weights(run("killed", TaskObjective(material.task)), whole)


@pytest.mark.parametrize(("stored", "warning"), [(None, ""), (1, "processes × threads are 1 × 2, and were 2 × 1")])
def test_a_checkpoint_of_processes_is_not_that_of_threads(stored, warning, two_threads, tiny_model, material, tmp_path):
    """Earlier versions stored only how many random states there are: those are taken to fit."""
    settings = Training(**SETTINGS, checkpoint=Checkpoints(minutes=None, steps=3))
    with pytest.raises(InterruptedError):
        train(tiny_model("bert"), BreaksAt(material.task, 6), material.train, settings, seed=0, work=tmp_path)
    (path,) = tmp_path.glob("checkpoint-*/state.json")
    state = json.loads(path.read_text())
    assert state.pop("threads") == 2
    path.write_text(json.dumps(state | ({"threads": stored} if stored else {})))
    objective, printed = TaskObjective(material.task), StringIO()
    console = Console("quiet", err=printed)
    train(tiny_model("bert"), objective, material.train, settings, seed=0, work=tmp_path, console=console)
    assert warning in printed.getvalue()
    assert bool(printed.getvalue()) == bool(warning)


def test_shares_use_one_teacher_cache(two_threads, tiny_model, material, tmp_path, same_weights):
    settings, students = Distill(**SETTINGS, **LOSSES), []
    for work in ("fills", "reads"):
        student, teacher = tiny_model("bert", seed=1), tiny_model("bert")
        cache = make_teacher_cache(settings, material.train, material.task, tmp_path, Console("quiet"), "distill")
        objective = DistillObjective(student, teacher, settings, material.task, cache=cache)
        train(student, objective, material.train, settings, seed=0, work=tmp_path / work)
        students.append(student)
    (flags,) = tmp_path.rglob("present")
    assert all(flags.read_bytes())
    assert same_weights(*students)


def test_each_share_draws_from_its_own_generator():
    threads = ShareThreads(3)

    def draw(share):
        with threads.randomness(share):
            return keep_mask(torch.empty(500), 0.5)

    first = threads.run(draw)
    with threads.started():
        second = threads.run(draw)
    masks = [*first, *second]
    assert not any(torch.equal(masks[i], masks[j]) for i in range(6) for j in range(i))


def test_replicas_share_weights_and_nothing_else(tiny_model, material):
    model, teacher = tiny_model("bert", hidden_size=16), tiny_model("bert")
    objective = DistillObjective(model, teacher, Distill(**LOSSES), material.task)
    replica = replicate(model, objective)
    for ours, theirs in zip(trained_parameters(model, objective.modules()), replica.parameters, strict=True):
        assert ours is not theirs
        assert ours.data_ptr() == theirs.data_ptr()
    (copied,) = replica.objective.teachers()
    assert copied is not teacher
    assert all(one is two for one, two in zip(copied.parameters(), teacher.parameters(), strict=True))


@pytest.mark.parametrize(
    ("changes", "expected"), [({}, 2), ({"batch_size": 15}, 1), ({"similarity": 1.0}, 1), ({"contrast": 1.0}, 1)]
)
def test_batches_are_split_where_rows_are_independent(changes, expected, two_threads, tiny_model, material):
    model, settings = tiny_model("bert"), Distill(**{**SETTINGS, "soft_label": 1.0, **changes})
    objective = DistillObjective(model, tiny_model("bert"), settings, material.task)
    assert share_count(objective, model, settings, Processes()) == expected


@pytest.mark.parametrize(
    ("heads", "losses", "expected"), [(4, "attention", 2), (2, "attention", 1), (2, "relation", 2)]
)
def test_batches_on_which_heads_are_matched_are_not_split(heads, losses, expected, two_threads, tiny_model, material):
    model, settings = tiny_model("bert", num_attention_heads=heads), Distill(**SETTINGS, **{losses: 1.0})
    objective = DistillObjective(model, tiny_model("bert", num_attention_heads=4), settings, material.task)
    assert share_count(objective, model, settings, Processes()) == expected


def test_other_attention_and_retrieval_have_one_share(two_threads, tiny_model, material):
    model, settings = tiny_model("bert"), Training(**SETTINGS)
    retrieval = material.task.model_copy(update={"kind": "retrieval"})
    assert kind_of(retrieval).problem == "retrieval"
    assert share_count(TaskObjective(retrieval), model, settings, Processes()) == 1
    eager = copy.deepcopy(model)
    eager.set_attn_implementation("eager")
    assert share_count(TaskObjective(material.task), eager, settings, Processes()) == 1


def test_the_optimizer_is_split_into_parts_of_like_size():
    weights = [torch.nn.Parameter(torch.ones(size)) for size in (90, 50, 30, 10, 3)]
    whole = torch.optim.AdamW([{"params": weights[:3]}, {"params": weights[3:], "weight_decay": 0.0}])
    parts = split_optimizer(whole, 2)
    sizes = [[parameter.numel() for parameter in parameters_of(part)] for part in parts]
    assert sizes == [[90, 3], [50, 30, 10]]
    assert [group["weight_decay"] for group in parts[0].param_groups] == [0.01, 0.0]
    assert all(part.state is whole.state for part in parts)


def test_the_number_of_threads_is_unchanged(two_threads):
    with ShareThreads(2).started():
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == 2


def test_operations_of_a_share_have_its_part_of_the_threads(two_threads):
    def threads_after_an_operation(share):
        torch.ones(1 << 16).add_(1)  # a new thread takes the number of the whole process at its first operation
        return torch.get_num_threads()

    threads = ShareThreads(2)
    with threads.started():
        assert threads.run(threads_after_an_operation) == [1, 1]
