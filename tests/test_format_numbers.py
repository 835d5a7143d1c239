import pytest

from compress import format_numbers
from compress.measure.result_base import Score


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        (lambda: format_numbers.score(0.9044), "90.4"),
        (lambda: format_numbers.score(0.03125, False), "0.0312"),
        (lambda: format_numbers.points(0.003), "0.3 points"),
        (lambda: format_numbers.points(0.01), "1 point"),
        (lambda: format_numbers.points(-1e-9), "0 points"),
        (lambda: format_numbers.points(0.25, False), "0.2500"),
        (lambda: format_numbers.signed(0.003), "+0.3"),
        (lambda: format_numbers.signed(-0.012), "−1.2"),
        (lambda: format_numbers.signed(-0.0001), "±0.0"),
        (lambda: format_numbers.signed(-0.02, False), "+0.0200"),
        (lambda: format_numbers.signed(0.02, False), "−0.0200"),
        (lambda: format_numbers.points(-0.0, False), "0.0000"),
        (lambda: format_numbers.points(-0.02, False), "-0.0200"),
        (lambda: format_numbers.interval(Score(value=0.9, low=0.889, high=0.92)), "88.9 to 92.0"),
        (lambda: format_numbers.ratio(0.974), "0.97×"),
        (lambda: format_numbers.ratio(4.2), "4.20×"),
        (lambda: format_numbers.ratio(19.02), "19.0×"),
        (lambda: format_numbers.ratio(9.999), "10.0×"),
        (lambda: format_numbers.ratio(120.4), "120×"),
        (lambda: format_numbers.milliseconds(0.6123), "0.612 ms"),
        (lambda: format_numbers.milliseconds(11.63), "11.6 ms"),
        (lambda: format_numbers.milliseconds(1204.0), "1,204 ms"),
        (lambda: format_numbers.size(13_900_000), "13.9 MB"),
        (lambda: format_numbers.size(438_000_000), "438 MB"),
        (lambda: format_numbers.size(1_340_000_000), "1.3 GB"),
        (lambda: format_numbers.size(2_500), "2.5 kB"),
        (lambda: format_numbers.size(12), "12 B"),
        (lambda: format_numbers.count(22_700_000), "22.7 M"),
        (lambda: format_numbers.count(1821), "1,821"),
        (lambda: format_numbers.seconds(0.04), "< 0.1 s"),
        (lambda: format_numbers.seconds(0.42), "0.4 s"),
        (lambda: format_numbers.seconds(59.6), "1 min"),
        (lambda: format_numbers.seconds(200), "3 min 20 s"),
        (lambda: format_numbers.seconds(7500), "2 h 5 min"),
        (lambda: format_numbers.percent(0.987), "98.7 %"),
        (lambda: format_numbers.money(0.012345), "0.0123"),
        (lambda: format_numbers.money(1204.5), "1,204.50"),
        (lambda: format_numbers.p_value(0.0001), "< 0.001"),
        (lambda: format_numbers.p_value(0.041), "0.041"),
    ],
)
def test_numbers_are_formatted(call, shown):
    assert call() == shown


@pytest.mark.parametrize(
    "function",
    [
        format_numbers.score,
        format_numbers.points,
        format_numbers.signed,
        format_numbers.interval,
        format_numbers.ratio,
        format_numbers.milliseconds,
        format_numbers.size,
        format_numbers.count,
        format_numbers.seconds,
        format_numbers.percent,
        format_numbers.money,
        format_numbers.p_value,
    ],
)
def test_none_is_shown_as_a_dash(function):
    assert function(None) == format_numbers.ABSENT


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("accuracy", "accuracy"),
        ("macro_f1", "macro F1"),
        ("mrr", "MRR"),
        ("mrr_at_10", "MRR@10"),
        ("recall_at_10", "recall@10"),
        ("ndcg_at_10", "nDCG@10"),
        ("exact_match", "exact match"),
        ("spearman", "Spearman"),
        ("map", "MAP"),
    ],
)
def test_metric_names_are_formatted(name, shown):
    assert format_numbers.metric(name) == shown


@pytest.mark.parametrize(
    ("value", "half", "text"),
    [
        (2.3149, 0.07, "2.31 [2.24, 2.38]"),
        (2.3149, 0.004, "2.315 [2.311, 2.319]"),
        (0.012345, 0.001, "0.0123 [0.0113, 0.0133]"),
        (123.4, 5.0, "123 [118, 128]"),
        (12345.0, 500.0, "12345 [11845, 12845]"),
    ],
)
def test_interval_has_significant_digits(value, half, text):
    assert format_numbers.with_interval(Score(value=value, low=value - half, high=value + half)) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0.0, "0"), (0.012345, "0.0123"), (1.0, "1"), (1.234, "1.23"), (12345.6, "12346")]
)
def test_figures_have_three_digits(value, text):
    assert format_numbers.figure(value) == text
