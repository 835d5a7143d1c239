import pytest
import torch

from compress.data.splits.prepare_splits import load_prepared
from compress.errors import ModelError, UsageError
from compress.families import FAMILIES
from compress.losses import LOSSES
from compress.model_folder.model_info import TaskInfo, read_info
from compress.models.encoder_parts import layer_shapes, layers_of, word_embeddings
from compress.models.load_save import load, load_model
from compress.models.student.build_student import build_student
from compress.prune.prune_vocabulary import prune_vocabulary, prune_vocabulary_from_model
from compress.recipe.distill_schema import Distill
from compress.recipe.loss_schema import Losses
from compress.recipe.student_schema import Student
from compress.runtime.text_model import TextModel
from compress.tasks import KINDS
from compress.train.distill import distill, distill_from_model
from compress.train.distillation.distill_objective import DistillObjective
from tests.train.distillation.test_cka_layer_map import without_layers

SETTINGS = {"epochs": 2, "batch_size": 8, "learning_rate": 3e-3, "precision": "fp32"}
ALL = {"soft_label": 1.0, "hidden_state": 1.0, "attention": 1.0}


def tensors(material, count=6):
    return {name: torch.from_numpy(array) for name, array in material.train.batch(list(range(count))).items()}


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_distils(name, tiny_model, tiny_folder, prepared, tmp_path):
    losses = ALL if FAMILIES[name].query else {"soft_label": 1.0, "hidden_state": 1.0}
    teacher = tiny_folder(tiny_model(name))
    made = distill(teacher, Student(layers=1), prepared, Distill(**SETTINGS, losses=losses), 0, tmp_path)
    assert set(made.result.history[1].losses) == {"hard_label", *losses}
    first, last = made.result.history[1].losses, made.result.history[-1].losses
    assert sum(last.values()) < sum(first.values())
    info = read_info(tmp_path)
    assert (info.step, info.shape.layers, info.shape.family) == ("distill", 1, name)
    assert load(tmp_path).config.id2label == {0: "bad", 1: "good"}


def test_a_narrow_student_learns_through_projections_that_are_dropped(tiny_model, tiny_folder, prepared, tmp_path):
    spec = Student(layers=1, hidden=16, heads=2)
    made = distill(tiny_folder("bert"), spec, prepared, Distill(**SETTINGS, losses=ALL), 0, tmp_path)
    assert made.info.shape.hidden == 16
    assert "hidden_state" in made.result.history[-1].losses
    assert load(tmp_path).config.hidden_size == 16


@pytest.mark.gpu
def test_the_teacher_stays_as_it_is(tiny_model, tiny_tokenizer, tiny_task, rows, same_weights):
    teacher, before = tiny_model("bert"), tiny_model("bert")
    student = build_student(teacher, Student(layers=1))
    distill_from_model(teacher, student, tiny_tokenizer, rows(20), rows(8), tiny_task, Distill(**SETTINGS, losses=ALL))
    assert same_weights(teacher, before)
    assert all(parameter.grad is None for parameter in teacher.parameters())


def test_another_teacher_is_another_training(tiny_model, material):
    student, settings = tiny_model("bert"), Distill(**SETTINGS)
    changed = tiny_model("bert")
    with torch.no_grad():
        next(layers_of(changed)[-1].parameters()).add_(1e-3)
    identities = [
        DistillObjective(student, each, settings, material.task).identity() for each in (tiny_model("bert"), changed)
    ]
    assert (
        identities[0]
        == DistillObjective(student, tiny_model("bert"), settings, material.task).identity()
        != identities[1]
    )
    DistillObjective(student, changed.bfloat16(), settings, material.task).identity()


@pytest.mark.slow
@pytest.mark.gpu
def test_a_student_follows_its_teacher_without_any_label(tiny_model, tiny_tokenizer, tiny_task, rows):
    teacher = tiny_model("bert")
    student = build_student(teacher, Student(layers=2, start="random"), seed=5)
    settings = Distill(**{**SETTINGS, "epochs": 30}, losses={"soft_label": 1.0}, hard_label=0.0, temperature=1.0)
    wrong = [{**row, "label": 0} for row in rows(50)]
    pieces = tiny_tokenizer([row["text"] for row in wrong], padding=True, return_tensors="pt")

    def distance():
        with torch.no_grad():
            ours, theirs = student(**pieces).logits.softmax(-1), teacher(**pieces).logits.softmax(-1)
        return (ours - theirs).abs().mean().item()

    student.train(False)
    before = distance()
    distill_from_model(teacher, student, tiny_tokenizer, wrong, [], tiny_task, settings)
    assert distance() < before / 3


def test_pruned_students_recover(tiny_model, tiny_folder, prepared, tmp_path):
    student = tiny_model("bert")
    layer = student.bert.encoder.layer[0]
    layer.intermediate.dense = torch.nn.Linear(32, 48)
    layer.output.dense = torch.nn.Linear(48, 32)
    origin = Student(source=str(tiny_folder(student)))
    made = distill(
        tiny_folder("bert"),
        origin,
        prepared,
        Distill(**SETTINGS, losses=ALL),
        0,
        tmp_path,
        step="recover",
        recovers=True,
    )
    assert made.info.step == "recover"
    assert made.info.shape.ffn == (48, 64)
    assert layer_shapes(load(tmp_path)) == [(4, 48), (4, 64)]


def test_rows_without_an_answer_are_learnt_from_beside_those_of_train(tiny_folder, prepared, tmp_path):
    more = [{"text": f"a {word} plot", "text_pair": None} for word in ("fine", "dull", "good")]
    settings = Distill(**SETTINGS, losses={"soft_label": 1.0})
    teacher = tiny_folder("bert")
    (tmp_path / "alone").mkdir()
    made = distill(teacher, Student(layers=1), prepared, settings, 0, tmp_path, unlabelled_rows=more)
    alone = distill(teacher, Student(layers=1), prepared, settings, 0, tmp_path / "alone")
    assert (made.result.rows, alone.result.rows) == (2 * 53, 2 * 50)


def test_no_distillation_leaves_the_student_as_it_is_built(tiny_folder, prepared, tmp_path, same_weights):
    teacher = tiny_folder("bert")
    made = distill(teacher, Student(layers=1), prepared, False, 0, tmp_path)
    assert made.result is None
    assert same_weights(load(tmp_path), build_student(load(teacher), Student(layers=1)))


def test_losses_are_zero_between_equal_models(tiny_model, material, tiny_task):
    teacher, student = tiny_model("bert"), tiny_model("bert")
    losses = DistillObjective(student, teacher, Distill(losses=ALL, hard_label=0.0), tiny_task)(
        student, tensors(material)
    )
    assert set(losses) == set(ALL)
    assert all(loss.item() == pytest.approx(0.0, abs=1e-5) for loss in losses.values())


def test_weights_scale_losses(tiny_model, material, tiny_task):
    teacher, student = tiny_model("bert"), build_student(tiny_model("bert"), Student(layers=1))
    student.train(False)
    batch = tensors(material)
    once = DistillObjective(student, teacher, Distill(losses=ALL, hard_label=1.0), tiny_task)(student, batch)
    thrice = DistillObjective(student, teacher, Distill(losses=dict.fromkeys(ALL, 3.0), hard_label=3.0), tiny_task)(
        student, batch
    )
    for name, loss in once.items():
        assert thrice[name].item() == pytest.approx(3 * loss.item(), rel=1e-5)


def test_only_required_models_run(tiny_model, material, tiny_task, monkeypatch):
    teacher, student = tiny_model("bert"), tiny_model("bert")
    objective = DistillObjective(student, teacher, Distill(losses={"soft_label": 0.0}, hard_label=1.0), tiny_task)
    monkeypatch.setattr(teacher, "forward", None)  # a teacher that nothing asks does not run
    assert set(objective(student, tensors(material))) == {"hard_label"}
    assert objective.modules() == []


def test_only_mapped_layers_are_observed(tiny_model, material, tiny_task):
    teacher, student = tiny_model("bert", num_hidden_layers=3), tiny_model("bert")
    settings = Distill(losses={"hidden_state": 1.0}, layer_map=((1, 2),), hard_label=0.0)
    losses = DistillObjective(student, teacher, settings, tiny_task)(student, tensors(material))
    losses["hidden_state"].backward()
    assert student.classifier.weight.grad is None
    assert student.bert.encoder.layer[1].output.dense.weight.grad is not None


def test_several_answers_and_numbers_distil(tiny_model, material, tiny_task):
    for kind, labels in (("multi_label", ("bad", "good")), ("regression", ())):
        task = tiny_task.model_copy(update={"kind": kind, "labels": labels})
        teacher, student = (tiny_model("bert", labels=labels or ("score",)) for _ in range(2))
        objective = DistillObjective(student, teacher, Distill(losses={"soft_label": 1.0}, hard_label=0.0), task)
        assert objective(student, tensors(material))["soft_label"].item() == pytest.approx(0.0, abs=1e-5)


def test_several_answers_distil_in_bf16(tiny_model, tiny_tokenizer, tiny_task, rows):
    task = tiny_task.model_copy(update={"kind": "multi_label", "metric": "micro_f1"})
    marked = [{**row, "label": [float(row["label"] == 0), float(row["label"] == 1)]} for row in rows(20)]
    teacher = tiny_model("bert")
    student = build_student(teacher, Student(layers=1))
    settings = Distill(**{**SETTINGS, "precision": "bf16"}, losses=ALL)
    distill_from_model(teacher, student, tiny_tokenizer, marked, marked, task, settings)
    assert student.config.problem_type == "multi_label_classification"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"losses": {}, "hard_label": 0.0}, "nothing to train on"),
        ({"losses": ALL, "layer_map": ((0, 9),)}, "layer that does not exist"),
    ],
)
def test_impossible_settings_are_refused(settings, message, tiny_model, tiny_task):
    with pytest.raises((UsageError, ModelError), match=message):
        DistillObjective(tiny_model("bert"), tiny_model("bert"), Distill(**settings), tiny_task)


def test_attention_of_fused_families_is_refused_at_once(tiny_model, tiny_task):
    model = tiny_model("modernbert")
    with pytest.raises(ModelError, match="modernbert computes"):
        DistillObjective(model, model, Distill(losses={"attention": 1.0}), tiny_task)


def test_another_vocabulary_is_refused(tiny_folder, tiny_model, prepared, tmp_path):
    from compress.models.tiny import write_tiny_model

    write_tiny_model(tmp_path / "other", "bert")
    with pytest.raises(ModelError, match="has another vocabulary"):
        distill(tiny_folder("bert"), Student(source=str(tmp_path / "other")), prepared, Distill(), 0, tmp_path / "work")


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_vocabulary_of_its_own_is_trained_as_the_whole_one(family, tiny_folder, prepared, tmp_path):
    losses = ALL if FAMILIES[family].query else {"soft_label": 1.0, "hidden_state": 1.0}
    teacher, settings = tiny_folder(family), Distill(**SETTINGS, losses=losses)
    distill(teacher, Student(layers=1), prepared, False, 0, tmp_path / "built")
    kept = prune_vocabulary(tmp_path / "built", prepared, "seen", None, tmp_path / "start").info.vocabulary
    made, whole = (
        distill(teacher, Student(source=str(tmp_path / start)), prepared, settings, 0, tmp_path / f"from-{start}")
        for start in ("start", "built")
    )
    assert made.info.vocabulary == kept
    assert kept.pieces == made.info.shape.vocabulary < kept.pieces_before < whole.info.shape.vocabulary
    assert kept.positions == kept.positions_before
    assert whole.info.vocabulary is None
    assert "\n" not in (tmp_path / "from-start" / "tokenizer.json").read_text()
    for ours, theirs in zip(made.result.history[1:], whole.result.history[1:], strict=True):
        assert ours.losses == pytest.approx(theirs.losses, abs=1e-5)
    texts = [row["text"] for row in load_prepared(prepared).rows("select")]
    ours, theirs = (
        [row["probability"] for row in TextModel.open(tmp_path / name).predict(texts)]
        for name in ("from-start", "from-built")
    )
    assert ours == pytest.approx(theirs, abs=1e-4)


def test_a_factorised_student_of_a_checkpoint_with_fewer_pieces(tiny_folder, prepared, tmp_path):
    teacher = tiny_folder("bert")
    prune_vocabulary(teacher, prepared, "seen", None, tmp_path / "start")
    student = Student(source=str(tmp_path / "start"), layers=1, hidden=16, heads=2, factors=8)
    made = distill(teacher, student, prepared, Distill(**SETTINGS), 0, tmp_path / "work")
    assert made.info.shape.vocabulary == made.info.vocabulary.pieces
    assert word_embeddings(load(tmp_path / "work")).weight.shape == (made.info.vocabulary.pieces, 8)


def test_models_in_memory_with_a_vocabulary_of_their_own(tiny_model, tiny_tokenizer, tiny_task, rows, same_weights):
    teacher, train = tiny_model("bert"), rows(20)
    student = build_student(teacher, Student(layers=1))
    own, tokenizer, _ = prune_vocabulary_from_model(student, tiny_tokenizer, {"train": train}, tiny_task, "seen", None)
    data = (tiny_tokenizer, train, rows(8), tiny_task, Distill(**SETTINGS, losses=ALL, layer_map="measured"))
    distill_from_model([(teacher, 1.0), (tiny_model("bert"), 2.0)], own, *data, student_tokenizer=tokenizer)
    distill_from_model([(teacher, 1.0), (tiny_model("bert"), 2.0)], student, *data)
    for ours, theirs in zip(layers_of(own)[0].parameters(), layers_of(student)[0].parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
    with pytest.raises(ModelError, match="the student has 64 token embeddings and the teacher 999"):
        distill_from_model(tiny_model("bert", vocab_size=999), student, *data)


WORDS = ["a", "good", "film", "the", "plot", "was", "bad"]
KIND_ROWS = {
    "multi_label": {"text": "a good film", "text_pair": None, "label": [1.0, 0.0, 1.0]},
    "regression": {"text": "a good film", "text_pair": "the plot", "label": 0.5},
    "multiple_choice": {"text": "the plot", "choices": ["was bad", "a good film"], "label": 1},
    "ranking": {"text": "the plot", "candidates": ["was bad", "a good film"], "label": [0.0, 1.0]},
    "similarity": {"text": "the plot", "text_pair": "a good film", "label": 0.7},
    "retrieval": {"query": "the plot", "positives": ["a good film"], "negatives": ["was bad"]},
    "token_classification": {"words": WORDS, "label": [0, 1, 2, 0, 1, 0, 0]},
    "question_answering": {"question": "the plot", "context": " ".join(WORDS * 4), "answers": ["good"], "start": 2},
}


@pytest.mark.parametrize("kind", KIND_ROWS)
def test_every_kind_is_distilled_in_a_vocabulary_of_its_own(kind, tiny_model, tiny_folder, tiny_tokenizer):
    metric, labels = KINDS[kind].metrics[0].name, () if kind == "regression" else ("O", "B-x", "I-x")
    task = TaskInfo(name="t", kind=kind, text=("a",), labels=labels, metric=metric, max_length=16)
    folder, rows = tiny_folder(tiny_model("bert", head="Model"), None), [KIND_ROWS[kind]] * 8
    settings = Distill(**{**SETTINGS, "epochs": 1, "batch_size": 4, "losses": ALL})
    student = build_student(load_model(folder, task), Student(layers=1), task)
    own, tokenizer, _ = prune_vocabulary_from_model(student, tiny_tokenizer, {"train": rows}, task, "seen", None)
    assert len(tokenizer) < len(tiny_tokenizer)
    for model, options in ((own, {"student_tokenizer": tokenizer}), (student, {})):
        distill_from_model(load_model(folder, task), model, tiny_tokenizer, rows, [], task, settings, **options)
    ours, theirs = (dict(model.named_parameters()) for model in (own, student))
    for name in ours:
        if "word_embeddings" not in name:
            torch.testing.assert_close(ours[name], theirs[name], atol=1e-5, rtol=1e-3)


def test_every_loss_of_the_table_is_usable():
    assert set(Losses.model_fields) == set(LOSSES)


@pytest.mark.parametrize(("student", "first"), [({"layers": 1}, 0), ({"layers": 1, "start": "random"}, 7)])
def test_a_student_made_of_its_teacher_competes_as_it_is(student, first, tiny_folder, prepared, tmp_path):
    made = distill(tiny_folder("bert"), Student(**student), prepared, Distill(**SETTINGS), 0, tmp_path)
    assert made.result.history[0].update == first


def test_frozen_layers_are_those_before_pruning(tiny_model, tiny_tokenizer, tiny_task, rows):
    teacher, student = tiny_model("bert", num_hidden_layers=3), tiny_model("bert", seed=5)
    before = [{name: weight.clone() for name, weight in layer.state_dict().items()} for layer in layers_of(student)]
    settings = Distill(**SETTINGS, losses={"soft_label": 1.0}, freeze=2)
    sets = (rows(20), [], tiny_task)
    trained = distill_from_model(teacher, student, tiny_tokenizer, *sets, settings, pruning=without_layers(0))
    weights = [layer.state_dict() for layer in layers_of(trained)]
    frozen = [all(torch.equal(old[name], new[name]) for name in old) for old, new in zip(before, weights, strict=True)]
    assert frozen == [True, False]  # layer 0 of three was dropped, 1 is frozen, 2 learns
