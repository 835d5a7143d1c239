"""Masks have their stated probabilities, and depend on nothing but the seed and the step."""

import math

import pytest

from compress.pretrain.pretrain_schema import MaskedLM

torch = pytest.importorskip("torch")

from compress.pretrain.methods.masking import Hashes, mask_pieces  # noqa: E402

VOCABULARY, MASK = 1_000, 3
DEFAULT = MaskedLM()
ROWS, WIDTH = 400, 128
ERRORS = 4.5
"""Standard errors that a share may be off: seven in a million draws are."""


def pieces():
    """Ids from 10, a special piece at both ends of every row, and words of one to three pieces."""
    ids = torch.arange(ROWS * WIDTH).reshape(ROWS, WIDTH) % (VOCABULARY - 10) + 10
    maskable = torch.ones_like(ids)
    maskable[:, [0, -1]] = 0
    starts = torch.tensor([1, 1, 0, 1, 0, 0] * WIDTH)[:WIDTH].expand_as(ids)
    return ids, maskable, starts, torch.arange(ROWS)


def masked(settings=DEFAULT, seed=0, step=0, rows=slice(None)):
    ids, maskable, starts, index = (tensor[rows] for tensor in pieces())
    return mask_pieces(ids, maskable, starts, index, seed, step, settings, VOCABULARY, MASK)


def assert_share(hits, total, share, cluster=1):
    """Assert a binomial share within its bounds; draws of a cluster are the same."""
    error = math.sqrt(share * (1 - share) * cluster / total)
    assert abs(hits / total - share) < ERRORS * error


@pytest.mark.parametrize("settings", [MaskedLM(), MaskedLM(share=0.4), MaskedLM(whole_words=True)])
def test_the_shares_are_the_stated_ones(settings):
    ids, changed, targets = pieces()[0], *masked(settings)
    chosen = targets != -100
    total, count = ROWS * (WIDTH - 2), int(chosen.sum())
    assert_share(count, total, settings.share, cluster=3 if settings.whole_words else 1)
    assert_share(int((changed[chosen] == MASK).sum()), count, 0.8)
    replaced = (changed != ids) & (changed != MASK)
    assert_share(int(replaced.sum()), count, 0.1 * (1 - 1 / VOCABULARY))
    assert_share(int(((changed == ids) & chosen).sum()), count, 0.1)
    assert (targets[chosen] == ids[chosen]).all()


def test_special_pieces_and_those_that_were_not_chosen_stay():
    ids, changed, targets = pieces()[0], *masked(MaskedLM(share=0.9))
    assert (targets[:, [0, -1]] == -100).all()
    assert (changed[targets == -100] == ids[targets == -100]).all()


def test_every_place_and_every_random_piece_is_as_likely():
    random = Hashes(torch.arange(2_000), 50, seed=1, step=7)
    shares = random.shares(0)
    assert abs(float(shares.mean()) - 0.5) < ERRORS * math.sqrt(1 / 12 / shares.numel())
    assert (abs(shares.mean(dim=0) - 0.5) < ERRORS * math.sqrt(1 / 12 / 2_000)).all()
    counts = torch.bincount(random.below(2, 100).flatten(), minlength=100)
    expected = 2_000 * 50 / 100
    assert float(((counts - expected) ** 2 / expected).sum()) < 99 + ERRORS * math.sqrt(2 * 99)  # chi-squared


def test_neighbours_rows_and_steps_are_independent():
    draws = [Hashes(torch.arange(1_000), 100, 0, step).shares(0) - 0.5 for step in (0, 1)]
    pairs = [(draws[0], draws[1]), (draws[0][:, 1:], draws[0][:, :-1]), (draws[0][1:], draws[0][:-1])]
    for first, second in pairs:
        assert abs(float((first * second).mean())) < ERRORS / 12 / math.sqrt(first.numel())


def test_the_pieces_of_a_word_are_chosen_together():
    chosen = masked(MaskedLM(whole_words=True))[1] != -100
    starts = pieces()[2].bool()
    continued = ~starts[:, 1:]
    inner = torch.zeros_like(continued)
    inner[:, 1:-1] = True  # words at the ends of a row are cut by the special pieces
    assert (chosen[:, 1:] == chosen[:, :-1])[continued & inner].all()


def test_masks_do_not_depend_on_the_batch():
    whole, part = masked(), masked(rows=slice(17, 20))
    assert all(torch.equal(all_rows[17:20], rows) for all_rows, rows in zip(whole, part, strict=True))


@pytest.mark.parametrize("settings", [MaskedLM(), MaskedLM(masks="static")])
def test_dynamic_masks_change_with_the_step_and_static_ones_do_not(settings):
    first, later = masked(settings, step=3), masked(settings, step=4)
    assert torch.equal(first[1], later[1]) == (settings.masks == "static")
    assert not torch.equal(first[1], masked(settings, seed=1, step=3)[1])
