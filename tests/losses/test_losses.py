"""What holds for every loss of distillation, and for the table."""

import inspect

import pytest
import torch

from compress.losses import LOSSES, LayerLoss
from compress.recipe.loss_schema import Losses
from tests.losses.helpers import TASK_LOSSES
from tests.losses.layers import CASES, EXAMPLES, LAYERS, LENGTHS, OF_BATCH, batch_of, padded, states, value

OF_ROWS = [(name, options) for name, options in CASES if name not in OF_BATCH]


def test_recipe_key_function_and_file_have_one_name():
    for name, loss in LOSSES.items():
        assert loss.function.__name__ == name
        assert inspect.getmodule(loss.function).__name__ == f"compress.losses.distillation.{name}"
    for loss in TASK_LOSSES.values():
        assert inspect.getmodule(loss.function).__name__ == f"compress.losses.task.{loss.function.__name__}"


def test_every_loss_has_its_section_in_a_recipe():
    assert list(LOSSES) == list(Losses.model_fields)
    assert {name for name, loss in LOSSES.items() if isinstance(loss, LayerLoss)} == set(LAYERS)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_equal_states_have_zero_loss(name, options):
    same = states()
    if name == "contrast":
        pytest.skip("a text is distinguished from others, however like its teacher it is")
    assert value(name, same, same, batch_of(), **options).item() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_padding_does_not_change_the_result(name, options):
    ours, theirs = states(), states(seed=9)
    wider = value(name, padded(ours, 4), padded(theirs, 4, fill=-7.0), batch_of(tokens=9), **options)
    assert wider.item() == pytest.approx(value(name, ours, theirs, batch_of(), **options).item(), rel=1e-6)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_padding_gets_no_gradient(name, options):
    ours = {part: each.requires_grad_() for part, each in states().items()}
    value(name, ours, states(seed=9), batch_of(), **options).backward()
    for part, each in ours.items():
        if each.grad is not None:
            tokens = each.grad if part == "hidden" else each.grad.transpose(1, 2)
            real = batch_of()["attention_mask"].bool()
            assert not tokens[~real].any()
            assert name == "contrast" or tokens[real].any()


@pytest.mark.parametrize(("name", "options"), OF_ROWS)
def test_loss_is_independent_of_batch_split(name, options):
    ours, theirs = states(), states(seed=9)
    alone = []
    for row, length in enumerate(LENGTHS):
        parts = [{part: each[row : row + 1] for part, each in one.items()} for one in (ours, theirs)]
        alone.append(value(name, *parts, batch_of([length]), **options).item())
    assert value(name, ours, theirs, batch_of(), **options).item() == pytest.approx(sum(alone) / EXAMPLES, rel=1e-5)


@pytest.mark.parametrize(("name", "options"), OF_ROWS)
def test_rows_of_several_examples_have_equal_weight(name, options):
    ours, theirs = states(), states(seed=9)
    alone = []
    for row, length in enumerate(LENGTHS):
        parts = [{part: each[row : row + 1] for part, each in one.items()} for one in (ours, theirs)]
        alone.append(value(name, *parts, batch_of([length]), **options).item())
    # The first two examples are one row, whose tokens count alike; of texts as a whole each counts once.
    counts = [1, 1] if options.get("form") == "cls" else LENGTHS[:2]
    first = (alone[0] * counts[0] + alone[1] * counts[1]) / sum(counts)
    result = value(name, ours, theirs, batch_of(group=[0, 0, 1]), **options)
    assert result.item() == pytest.approx((first + alone[2]) / 2, rel=1e-5)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_the_gradient_is_that_of_finite_differences(name, options):
    ours, theirs = (states(seed, examples=2, tokens=3, size=3, dtype=torch.float64) for seed in (0, 9))
    batch = batch_of([3, 2], tokens=3)
    needs = LOSSES[name].needs
    if "pairs" in options:
        needs = tuple(part for part in needs if part[0] in "".join(options["pairs"]))

    def loss(*given):
        return value(name, {**ours, **dict(zip(needs, given, strict=True))}, theirs, batch, **options)

    assert torch.autograd.gradcheck(loss, [ours[part].clone().requires_grad_() for part in needs])


@pytest.mark.parametrize(("name", "options"), CASES)
def test_the_teacher_gets_no_gradient(name, options):
    ours, theirs = ({part: each.requires_grad_() for part, each in states(seed).items()} for seed in (0, 9))
    value(name, ours, theirs, batch_of(), **options).backward()
    assert all(each.grad is None for each in theirs.values())
    assert any(each.grad is not None for each in ours.values())


@pytest.mark.parametrize(("name", "options"), CASES)
def test_bf16_is_near_single_precision(name, options):
    """Within 3 % (scores of a matrix product of halves; the others are far nearer), and so is the gradient."""
    result = {}
    for dtype in (torch.float32, torch.bfloat16):
        theirs = states(seed=9, dtype=torch.bfloat16)
        ours = {part: each.to(dtype).requires_grad_() for part, each in states(dtype=torch.bfloat16).items()}
        loss = value(name, ours, {part: each.to(dtype) for part, each in theirs.items()}, batch_of(), **options)
        assert loss.dtype == torch.float32
        loss.backward()
        grads = [each.grad.float().flatten() for each in ours.values() if each.grad is not None]
        result[dtype] = loss.item(), torch.cat(grads)
    (single, slope), (half, rough) = result.values()
    assert half == pytest.approx(single, rel=0.03)
    assert (rough - slope).norm() < 0.03 * slope.norm()


@pytest.mark.parametrize(("name", "options"), CASES)
def test_autocast_changes_little(name, options):
    ours, theirs = states(), states(seed=9)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = value(name, ours, theirs, batch_of(), **options)
    assert result.dtype == torch.float32
    assert result.item() == pytest.approx(value(name, ours, theirs, batch_of(), **options).item(), rel=0.03)


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("lengths", [[1], [5], [1, 1, 1], [5, 1]])
def test_small_batches_and_texts_of_one_token_are_finite(name, options, lengths):
    ours = {part: each.requires_grad_() for part, each in states(examples=len(lengths)).items()}
    loss = value(name, ours, states(seed=9, examples=len(lengths)), batch_of(lengths), **options)
    loss.backward()
    assert loss.isfinite()
    assert loss >= 0
    assert all(each.grad.isfinite().all() for each in ours.values() if each.grad is not None)


@pytest.mark.parametrize("name", OF_BATCH)
def test_single_text_has_zero_loss(name):
    ours = states(examples=1)
    ours["hidden"].requires_grad_()
    loss = value(name, ours, states(seed=9, examples=1), batch_of([4]))
    loss.backward()
    assert loss.item() == 0.0
    assert not ours["hidden"].grad.any()


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("whose", [0, 1])
def test_nan_propagates(name, options, whose):
    """So that the training stops, whichever of the two says it."""
    both = states(), states(seed=9)
    for part in both[whose].values():
        part[1, ..., 0, :] = torch.nan  # of one text's first token
    assert value(name, *both, batch_of(), **options).isnan()


@pytest.mark.parametrize(("name", "options"), CASES)
def test_vectors_of_zeros_are_finite(name, options):
    ours = {part: torch.zeros_like(each).requires_grad_() for part, each in states().items()}
    loss = value(name, ours, states(seed=9), batch_of(), **options)
    loss.backward()
    assert loss.isfinite()
    assert all(each.grad.isfinite().all() for each in ours.values() if each.grad is not None)
