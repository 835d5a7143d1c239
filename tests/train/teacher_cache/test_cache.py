"""Teacher outputs cached on disk: the same bits, whatever part of them is cached."""

import errno
import json
import os
import random
import shutil
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from compress.console import Console
from compress.models.student.build_student import build_student
from compress.recipe.distill_schema import Distill
from compress.recipe.student_schema import Student
from compress.tasks import kind_of
from compress.train.distill import distill_from_model
from compress.train.distillation.distill_objective import DistillObjective
from compress.train.distillation.teachers import Teacher
from compress.train.fast_paths.bf16_weights import Bf16Weights
from compress.train.teacher_cache import cache
from compress.train.teacher_cache.cache import CachedTeacher, flatten
from compress.train.teacher_cache.cache_file import LAYER, CachedTensor, CachePlan, TensorFormat, as_bits, layer_key

WANTED = {-1: {"hidden"}, 1: {"hidden", "query", "value"}}
MIB = 2**20


class Counting(Teacher):
    """A teacher that records the number and width of the examples of each call."""

    def __init__(self, model):
        super().__init__([(model, 1.0)])
        self.shapes = []

    def __call__(self, batch, wanted):
        self.shapes.append(tuple(batch["input_ids"].shape))
        return super().__call__(batch, wanted)


@pytest.fixture
def teacher(tiny_model):
    return Counting(tiny_model("bert"))


@pytest.fixture
def batch_of(material):
    def make(*indices, width=None):
        batch = {name: torch.from_numpy(array) for name, array in material.train.batch(np.array(indices)).items()}
        if width is not None:
            more = width - batch["input_ids"].shape[1]
            for name in ("input_ids", "attention_mask", "token_type_ids"):
                batch[name] = torch.nn.functional.pad(batch[name], (0, more))
        return batch

    return make


def cached(teacher, material, folder, disk=100 * MIB, lasting=50, wanted=WANTED, digest="", begin=True, **options):
    train = material.train
    examples = SimpleNamespace(
        example_lengths=train.example_lengths, cacheable=lasting, batch=train.batch, digest=lambda: digest
    )
    made = CachedTeacher(teacher, wanted, examples, folder, disk, **options)
    if begin:
        made.begin()
    return made


def part_of_the_layers(material, count):
    """Bytes for all answers, two classes each, and the layers of so many examples: four parts of 32 numbers a piece."""
    return 4 * 2 * 50 + 4 * 4 * 32 * int(material.train.example_lengths[:count].sum())


def same_bits(batch, ours, theirs):
    """Equal where there are real pieces: what stands in padding is nobody's."""
    ours, theirs = flatten(*ours), flatten(*theirs)
    assert ours.keys() == theirs.keys()
    real = batch["attention_mask"].bool()
    for key, tensor in ours.items():
        assert (tensor.dtype, tensor.shape) == (theirs[key].dtype, theirs[key].shape)
        first, second = (tensor[real], theirs[key][real]) if key.startswith(LAYER) else (tensor, theirs[key])
        assert np.array_equal(as_bits(first), as_bits(second)), key
    return True


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("pieces", [True, False])
def test_cached_tensors_are_read_unchanged(dtype, pieces, tmp_path):
    lengths = np.array([3, 1, 4, 2])
    values = torch.randn(3, *([4] if pieces else []), 2, 5).to(dtype)
    values[0].flatten()[:3] = torch.tensor([float("nan"), float("inf"), -0.0]).to(dtype)
    form = TensorFormat.of(values, pieces, 4)
    tensor = CachedTensor(tmp_path / "x", form, np.cumsum(lengths), create=True)
    tensor.write(np.array([2, 0, 3]), values)
    again = CachedTensor(tmp_path / "x", form, np.cumsum(lengths))
    assert len(again) == 4
    result = as_bits(again.read(np.array([3, 2, 0]), 6))
    for index, (row, length) in enumerate([(2, 2), (0, 4), (1, 3)]):
        expected = np.zeros_like(result[0])
        there = slice(0, length) if pieces else ...
        expected[there] = as_bits(values)[row][there]
        assert np.array_equal(result[index], expected)


def test_teacher_runs_once_per_example(teacher, material, batch_of, tmp_path):
    cached_teacher = cached(teacher, material, tmp_path)
    batch = batch_of(0, 7, 3, 9)
    first = cached_teacher(batch, WANTED)
    assert teacher.shapes[1:] == [tuple(batch["input_ids"].shape)]  # the one before is the look at one example
    assert same_bits(batch, first, teacher(batch, WANTED))
    count = len(teacher.shapes)
    again = batch_of(9, 3, width=30)
    outputs = cached_teacher(again, WANTED)
    assert len(teacher.shapes) == count
    short = batch_of(9, 3)
    assert same_bits(short, cached_teacher(short, WANTED), cached_teacher(short, WANTED))
    width = short["input_ids"].shape[1]
    ours, theirs = flatten(*outputs), flatten(*cached_teacher(short, WANTED))
    assert all(torch.equal(ours[key][:, :width], theirs[key]) for key in ours if key.startswith(LAYER))
    assert torch.equal(ours["logits"], first[0]["logits"][[3, 2]])


def test_layers_have_the_shape_a_model_gives_them(teacher, material, batch_of, tmp_path):
    cached_teacher = cached(teacher, material, tmp_path)
    batch = batch_of(*range(8))
    cached_teacher(batch, WANTED)
    answers, seen = cached_teacher(batch, WANTED)
    fresh, shown = teacher(batch, WANTED)
    assert {name: tensor.shape for name, tensor in answers.items()} == {"logits": fresh["logits"].shape}
    assert seen.keys() == shown.keys()
    for layer, parts in seen.items():
        assert {part: tensor.shape for part, tensor in parts.items()} == {
            part: tensor.shape for part, tensor in shown[layer].items()
        }


def test_augmented_texts_are_not_cached(teacher, material, batch_of, tmp_path):
    cached_teacher = cached(teacher, material, tmp_path, lasting=10)
    both = batch_of(3, 40, 4, 41)
    cached_teacher(both, WANTED)
    assert same_bits(both, cached_teacher(both, WANTED), cached_teacher(both, WANTED))
    assert [rows for rows, _ in teacher.shapes] == [1, 2, 2, 2, 2]  # what is cached and what is not never run together
    assert {width for _, width in teacher.shapes[1:]} == {both["input_ids"].shape[1]}
    alone = batch_of(41, 42)
    assert same_bits(alone, cached_teacher(alone, WANTED), teacher(alone, WANTED))
    assert [path.stat().st_size for path in tmp_path.rglob("present")] == [10]


def test_a_budget_holds_the_layers_of_the_first_examples(teacher, material, batch_of, tmp_path):
    disk = part_of_the_layers(material, 20)
    cached_teacher = cached(teacher, material, tmp_path, disk=disk + 5)
    batch = batch_of(5, 25, 19, 20)
    first = cached_teacher(batch, WANTED)
    assert same_bits(batch, first, cached_teacher(batch, WANTED))
    assert [rows for rows, _ in teacher.shapes] == [1, 2, 2, 2]
    assert torch.equal(cached_teacher(batch, {})[0]["logits"], first[0]["logits"])
    assert len(teacher.shapes) == 4  # outputs are cached for all
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.values")) == disk


def test_only_present_examples_are_read(teacher, material, batch_of, tmp_path, monkeypatch):
    read, get = [], CachedTensor.read

    def watched(tensor, index, width):
        if tensor.form.dtype == "float32":  # not the flags
            read.append(index.tolist())
        return get(tensor, index, width)

    monkeypatch.setattr(CachedTensor, "read", watched)
    cached_teacher = cached(teacher, material, tmp_path, disk=part_of_the_layers(material, 20))
    cached_teacher(batch_of(5, 25, 19, 30), {1: {"hidden"}})
    assert read == [[5, 25, 19, 30], [5, 19]]  # the answers, and the layer
    read.clear()
    beyond = batch_of(26, 31, 41)
    assert same_bits(beyond, cached_teacher(beyond, WANTED), teacher(beyond, WANTED))
    assert read == [[26, 31, 41]]


def test_batch_composition_does_not_depend_on_the_cache(teacher, material, batch_of, tmp_path):
    disk, batch = part_of_the_layers(material, 20), batch_of(5, 25, 19, 20, 3)
    fresh = cached(teacher, material, tmp_path / "fresh", disk=disk)(batch, WANTED)
    begun = cached(teacher, material, tmp_path / "begun", disk=disk)
    begun(batch, WANTED)
    marks = next((tmp_path / "begun").rglob("present"))
    marks.write_bytes(b"".join(b"\1" if index == 19 else b"\0" for index in range(50)))  # killed while it marked
    teacher.shapes.clear()
    assert same_bits(batch, fresh, begun(batch, WANTED))
    assert [rows for rows, _ in teacher.shapes] == [3, 2]


def test_parts_of_a_batch_run_uncompiled(teacher, material, batch_of, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(cache, "eager_only", contextmanager(lambda compiled: (yield seen.append(compiled))))
    cached_teacher = cached(teacher, material, tmp_path, lasting=10, compiles=True)
    for indices in ((0, 1), (2, 20, 3), (20, 21), (0, 1)):
        cached_teacher(batch_of(*indices), WANTED)
    assert seen == [False, True, True, False]


def test_files_are_opened_where_all_processes_pass(teacher, material, batch_of, tiny_model, tiny_task, tmp_path):
    """And not in a call that one with other rows may never make."""

    def factory(own, wanted):
        return cached(own, material, tmp_path, wanted=wanted, begin=False)

    student = tiny_model("bert", num_hidden_layers=1)
    objective = DistillObjective(student, teacher, Distill(losses={"soft_label": 1.0}), tiny_task, cache=factory)
    assert not list(tmp_path.iterdir())
    objective(student, batch_of(0, 1))  # before any training: nothing is cached
    assert not list(tmp_path.iterdir())
    objective.begin(0.0)
    assert list(tmp_path.rglob("present"))
    objective.begin(0.1)
    assert [rows for rows, _ in teacher.shapes] == [2, 1]


def test_plans_are_pure():
    ends = np.array([4, 6, 12])
    logits = {"logits": TensorFormat(dtype="float32", shape=(2,), per_token=False, examples=3)}
    hidden = {layer_key(0, "hidden"): TensorFormat(dtype="bfloat16", shape=(8,), per_token=True)}
    assert CachePlan.within(23, logits, hidden, ends).examples == 0
    for disk, layers in ((24, 0), (87, 0), (88, 1), (120, 2), (10**6, 3)):
        plan = CachePlan.within(disk, logits, hidden, ends)
        assert (plan.examples, plan.layers["layer 0 hidden"].examples) == (3, layers)


def test_outputs_beyond_the_budget_are_warned_about(teacher, material, batch_of, tmp_path, capsys):
    cached_teacher = cached(teacher, material, tmp_path, disk=10, console=Console())
    batch = batch_of(0, 1)
    for _ in range(2):
        assert same_bits(batch, cached_teacher(batch, WANTED), teacher(batch, WANTED))
    assert capsys.readouterr().err.count("alone need more") == 1
    assert not list(tmp_path.rglob("*.values"))


def test_cached_parts_are_logged_once(teacher, material, batch_of, tmp_path, capsys):
    cached(teacher, material, tmp_path, console=Console())(batch_of(0, 1), WANTED)
    output = capsys.readouterr().err
    assert "the teacher's outputs for 50 examples, and its layers for 50 of them" in output
    cached(teacher, material, tmp_path, console=Console())(batch_of(0, 1), WANTED)
    assert not capsys.readouterr().err
    assert [rows for rows, _ in teacher.shapes] == [1, 2]


HALVES = [{"share": 0.5, "hidden_state": 1.0}, {"share": 0.5, "soft_label": 1.0}]


@pytest.mark.parametrize(
    ("device", "size", "is_cached"), [("cuda", None, False), ("cuda", "2GiB", True), ("cpu", None, True)]
)
def test_gpu_caches_layers_only_with_a_size(
    device, size, is_cached, teacher, material, batch_of, tiny_task, tmp_path, capsys, monkeypatch
):
    here = SimpleNamespace(device=torch.device(device), count=1, is_main=True)
    monkeypatch.setattr(cache, "current_processes", lambda: here)
    settings = Distill(epochs=2, batch_size=8, phases=HALVES, cache={} if size is None else size)
    factory = cache.make_teacher_cache(settings, material.train, tiny_task, tmp_path, Console(), "distill")
    here.device, here.wait = torch.device("cpu"), lambda: None
    cached_teacher, batch = factory(teacher, WANTED), batch_of(0, 1, 2)
    cached_teacher.begin()
    for _ in range(2):
        assert same_bits(batch, cached_teacher(batch, WANTED), teacher(batch, WANTED))
        assert same_bits(batch, cached_teacher(batch, {}), teacher(batch, {}))
    assert len(list(tmp_path.rglob("layer*.values"))) == (4 if is_cached else 0)
    output = capsys.readouterr().err
    assert output.count("the teacher's outputs for 50 examples") == 1
    assert ("on a GPU" in output, ", and its layers" in output) == (not is_cached, is_cached)
    assert len(teacher.shapes) == (
        6 if is_cached else 8
    )  # the look at one example, four to compare, and what was not read


@pytest.mark.parametrize(("device", "is_cached"), [("cuda", False), ("cpu", True)])
def test_unused_outputs_are_not_cached(device, is_cached, material, tiny_task, tmp_path, capsys, monkeypatch):
    here = SimpleNamespace(device=torch.device(device), count=1, is_main=True)
    monkeypatch.setattr(cache, "current_processes", lambda: here)
    settings = Distill(epochs=2, batch_size=32, losses={"soft_label": 1.0, "hidden_state": 1.0})
    result = cache.make_teacher_cache(settings, material.train, tiny_task, tmp_path, Console(), "distill")
    assert (result is not None) == is_cached
    assert ("distill: on a GPU, layer outputs are cached only" in capsys.readouterr().err) != is_cached


def test_small_disk_caches_less(teacher, material, batch_of, tmp_path, capsys, monkeypatch):
    free = SimpleNamespace(free=cache.RESERVE + 1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: free)
    cached_teacher = cached(teacher, material, tmp_path, console=Console())
    cached_teacher(batch_of(0, 1), WANTED)
    assert "of 1000 bytes" in capsys.readouterr().err
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.values")) <= 1000


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("indices", [(1, 2, 3), (1, 2, 30), (0, 1, 30)])
def test_full_disk_disables_the_cache_with_a_warning(
    indices, teacher, material, batch_of, tmp_path, capsys, monkeypatch
):
    cached_teacher = cached(teacher, material, tmp_path, console=Console(), disk=part_of_the_layers(material, 20))
    cached_teacher(batch_of(0, 1), WANTED)
    monkeypatch.setattr("os.pwrite", full)
    batch = batch_of(*indices)
    real = batch["attention_mask"].bool()
    ours, theirs = flatten(*cached_teacher(batch, WANTED)), flatten(*teacher(batch, WANTED))
    for key, tensor in theirs.items():  # a part of these was read, or computed with others
        places = real if key.startswith(LAYER) else ...
        assert torch.allclose(ours[key][places], tensor[places], atol=1e-5), key
    assert "No space left on device" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    assert same_bits(batch, cached_teacher(batch, WANTED), teacher(batch, WANTED))


def test_unwritable_folder_disables_the_cache_with_a_warning(teacher, material, batch_of, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    cached_teacher = cached(teacher, material, tmp_path / "file", console=Console())
    batch = batch_of(0, 1)
    assert same_bits(batch, cached_teacher(batch, WANTED), teacher(batch, WANTED))
    assert "cannot be cached" in capsys.readouterr().err


def test_another_teacher_precision_or_data_is_never_read(tiny_model, teacher, material, batch_of, tmp_path):
    batch = batch_of(0, 1, 2)
    cached(teacher, material, tmp_path)(batch, WANTED)
    other = tiny_model("bert")
    with torch.no_grad():
        other.bert.encoder.layer[1].output.dense.weight.mul_(2)
        other.classifier.weight.add_(1)
    other = Counting(other)
    assert same_bits(batch, cached(other, material, tmp_path)(batch, WANTED), other(batch, WANTED))
    copy = Bf16Weights(teacher.model)
    copy.refresh()
    with copy.running():
        low = cached(teacher, material, tmp_path)
        low(batch, WANTED)
        assert low(batch, WANTED)[0]["logits"].dtype == torch.bfloat16
    cached(teacher, material, tmp_path, digest="others")(batch, WANTED)
    assert len(list(tmp_path.iterdir())) == 4


def test_files_from_before_the_last_boot_are_discarded(teacher, material, batch_of, tmp_path, monkeypatch):
    cached(teacher, material, tmp_path)(batch_of(0, 1), WANTED)
    monkeypatch.setattr("compress.train.teacher_cache.cache_file.boot", lambda: "later")
    cached(teacher, material, tmp_path)(batch_of(0, 1), WANTED)
    assert [rows for rows, _ in teacher.shapes] == [1, 2, 1, 2]


@pytest.mark.parametrize("damage", [lambda path: os.truncate(path, 8), lambda path: path.write_text("[]"), Path.unlink])
@pytest.mark.parametrize("which", ["logits.values", "layer 1 hidden.values", "present", "plan.json"])
def test_truncated_files_are_not_read(which, damage, teacher, material, batch_of, tmp_path):
    batch = batch_of(0, 1)
    cached(teacher, material, tmp_path)(batch, WANTED)
    (folder,) = tmp_path.glob("teacher-*")
    damage(folder / which)
    again = cached(teacher, material, tmp_path)
    assert same_bits(batch, again(batch, WANTED), teacher(batch, WANTED))
    assert [rows for rows, _ in teacher.shapes] == [1, 2, 1, 2, 2]  # anew; the last one compares


def test_parts_of_later_phases_are_cached_from_the_start(teacher, material, batch_of, tmp_path):
    cached_teacher = cached(teacher, material, tmp_path)
    batch = batch_of(0, 1, 2)
    assert cached_teacher(batch, {1: {"hidden"}})[1].keys() == {1}
    assert same_bits(batch, cached_teacher(batch, WANTED), teacher(batch, WANTED))
    assert [rows for rows, _ in teacher.shapes] == [1, 3, 3]
    cached_teacher(batch, {0: {"hidden"}})  # not requested at the start: it is computed all the same
    assert [rows for rows, _ in teacher.shapes] == [1, 3, 3, 3]


def test_ensemble_is_cached_as_one(tiny_model, material, batch_of, tmp_path):
    both = Teacher([(tiny_model("bert"), 1.0), (tiny_model("roberta"), 1.0)])
    batch = batch_of(0, 1, 2)
    cached_teacher = cached(both, material, tmp_path)
    cached_teacher(batch, WANTED)
    assert same_bits(batch, cached_teacher(batch, WANTED), both(batch, WANTED))


def test_outputs_per_token_are_cached(tiny_model, material, batch_of, tmp_path):
    teacher = Counting(tiny_model("bert", head="ForTokenClassification"))
    cached_teacher = cached(teacher, material, tmp_path, per_token=True, wanted={})
    batch = batch_of(0, 1, 2)
    cached_teacher(batch, {})
    wide = batch_of(0, 1, 2, width=30)
    logits, real = cached_teacher(wide, {})[0]["logits"], wide["attention_mask"].bool()
    assert logits.shape[:2] == (3, 30)
    assert torch.equal(logits[real], teacher(batch, {})[0]["logits"][batch["attention_mask"].bool()])
    span = Counting(tiny_model("bert", head="ForQuestionAnswering"))
    cached_teacher = cached(span, material, tmp_path, per_token=True, wanted={})
    cached_teacher(batch, {})
    answers = cached_teacher(wide, {})[0]
    assert {name: tensor.shape for name, tensor in answers.items()} == {"start_logits": (3, 30), "end_logits": (3, 30)}
    assert [rows for rows, _ in span.shapes] == [1, 3]


SETTINGS = {"epochs": 3, "batch_size": 8, "learning_rate": 3e-3, "precision": "fp32"}
LOSSES = {"soft_label": 1.0, "hidden_state": 1.0, "attention": 1.0}


@pytest.fixture
def distilled(tiny_model, tiny_tokenizer, tiny_task, rows, monkeypatch):
    """Distils as the settings say; returns the student's weights and how many examples the teacher computed."""
    call = Teacher.__call__

    def run(work, console=None, batches=None, **settings):
        computed = []

        def watched(teacher, batch, wanted):
            computed.append(len(batch["input_ids"]))
            if len(computed) == batches:
                raise KeyboardInterrupt
            return call(teacher, batch, wanted)

        monkeypatch.setattr(Teacher, "__call__", watched)
        teacher = tiny_model("bert")
        student = build_student(teacher, Student(layers=1))
        losses = {} if "phases" in settings else {"losses": LOSSES}
        settings = Distill(**{**SETTINGS, **losses, **settings})
        made = distill_from_model(
            teacher, student, tiny_tokenizer, rows(50), rows(8), tiny_task, settings, work=work, console=console
        )
        return made.state_dict(), sum(computed)

    return run


def alike(first, second, **tolerance):
    return all(torch.allclose(first[name], second[name], **tolerance) for name in first)


def test_training_runs_the_teacher_once_per_example(distilled, tmp_path):
    with_cache, computed = distilled(tmp_path / "with_cache")
    fresh, without_cache = distilled(tmp_path / "fresh", cache=False)
    assert (computed, without_cache) == (51, 150)
    assert alike(with_cache, fresh, atol=2e-4)  # after 21 updates of Adam; a batch's loss is compared below
    assert not list(tmp_path.rglob("*.values"))


def test_restarts_share_the_cache(distilled, tmp_path):
    assert distilled(tmp_path, restarts=3, epochs=1)[1] == 51


@pytest.mark.parametrize(
    "settings", [{"epochs": 1}, {"epochs": 0.5}, {"max_steps": 7}, {"cache": False}, {"losses": {}, "hard_label": 1.0}]
)
def test_no_cache_where_it_is_useless(settings, distilled, tmp_path, capsys):
    distilled(tmp_path, console=Console(), **settings)
    assert "stay on disk" not in capsys.readouterr().err


def test_phases_request_what_they_need(distilled, tmp_path):
    phases = [{"share": 0.5, "hidden_state": 1.0}, {"share": 0.5, "soft_label": 1.0, "relation": 1.0}]
    with_cache, computed = distilled(tmp_path / "with_cache", phases=phases)
    fresh, without_cache = distilled(tmp_path / "fresh", phases=phases, cache=False)
    assert (computed, without_cache) == (51, 150)
    assert alike(with_cache, fresh, atol=5e-4)


@pytest.mark.parametrize("disk", ["100MB", 20_000])
def test_resumed_training_is_bit_identical(disk, distilled, tmp_path):
    often = {"checkpoint": {"steps": 3}, "cache": {"disk": disk}}
    whole, _ = distilled(tmp_path / "whole", **often)
    with pytest.raises(KeyboardInterrupt):
        distilled(tmp_path / "stopped", batches=7, **often)
    assert list(tmp_path.rglob("*.values"))
    stopped, computed = distilled(tmp_path / "stopped", **often)
    assert computed < 50 or disk == 20_000
    assert alike(whole, stopped, rtol=0, atol=0)


@pytest.fixture
def wide(tiny_model, tiny_tokenizer, tiny_task, monkeypatch):
    """Distils a teacher wide enough for its rounding to depend on a batch's shape, on texts of few and many pieces."""
    ask, draw, words = Teacher.__call__, random.Random(0), tiny_tokenizer.convert_ids_to_tokens(range(4, 20))
    texts = [" ".join(draw.choices(words, k=60 if index % 10 == 0 else draw.randint(2, 26))) for index in range(60)]
    train = [{"text": text, "text_pair": None, "label": index % 2} for index, text in enumerate(texts)]
    changed = [kind_of(tiny_task).from_input(text[: len(text) // 2], tiny_task) for text in texts[:20]]
    monkeypatch.setattr(import_module("compress.train.distill"), "augmented_rows", lambda *_: changed)

    def run(work, stop=None):
        calls = []

        def watched(teacher, batch, wanted):
            calls.append(batch)
            if len(calls) == stop:
                raise KeyboardInterrupt
            return ask(teacher, batch, wanted)

        monkeypatch.setattr(Teacher, "__call__", watched)
        sizes = {"hidden_size": 192, "num_attention_heads": 6, "intermediate_size": 384}
        teacher = tiny_model("bert", **sizes, initializer_range=0.08)
        student = build_student(teacher, Student(layers=1))
        options = {"batch_size": 20, "checkpoint": {"steps": 3}, "cache": {"disk": 2_000_000}}
        settings = Distill(**{**SETTINGS, **options, "losses": LOSSES})
        task = tiny_task.model_copy(update={"max_length": 64})
        return distill_from_model(teacher, student, tiny_tokenizer, train, train[:8], task, settings, work=work)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("stop", [6, 12], ids=["in the first epoch", "in the second"])
def test_partial_cache_is_bit_identical(stop, wide, tmp_path):
    """With augmented rows, killed in the first epoch and in the second, between two checkpoints."""
    whole = wide(tmp_path / "whole").state_dict()
    with pytest.raises(KeyboardInterrupt):
        wide(tmp_path / "stopped", stop)
    plan = json.loads(next(tmp_path.rglob("plan.json")).read_text())
    assert plan["outputs"]["logits"]["examples"] == 60
    assert all(0 < form["examples"] < 60 for form in plan["layers"].values())
    assert alike(whole, wide(tmp_path / "stopped").state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_losses_differ_by_no_more_than_padding(dtype, tiny_model, material, batch_of, tiny_task, tmp_path):
    student = tiny_model("bert", num_hidden_layers=1).to(dtype)
    model = tiny_model("bert").to(dtype)
    settings = Distill(losses=LOSSES, hard_label=0.0)
    fresh = DistillObjective(student, model, settings, tiny_task)

    def factory(teacher, wanted):
        return cached(teacher, material, tmp_path, wanted=wanted)

    cached_objective = DistillObjective(student, model, settings, tiny_task, cache=factory)
    with torch.no_grad():
        for first in range(0, 48, 8):
            cached_objective(student, batch_of(*range(first, first + 8), width=32))
        for order in np.random.default_rng(0).permutation(48).reshape(6, 8):
            batch = batch_of(*order)
            ours, theirs = cached_objective(student, batch), fresh(student, batch)
            for name, loss in theirs.items():
                bound = 1e-5 if dtype is torch.float32 else 0.02
                assert ours[name].item() == pytest.approx(loss.item(), rel=bound, abs=bound), name
