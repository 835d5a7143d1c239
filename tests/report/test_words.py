import pytest

from compress.measure.facts import Score
from compress.report import words


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        (lambda: words.score(0.9044), "90.4"),
        (lambda: words.score(0.03125, False), "0.0312"),
        (lambda: words.points(0.003), "0.3 points"),
        (lambda: words.points(0.01), "1 point"),
        (lambda: words.points(-1e-9), "0 points"),
        (lambda: words.points(0.25, False), "0.2500"),
        (lambda: words.signed(0.003), "+0.3"),
        (lambda: words.signed(-0.012), "−1.2"),
        (lambda: words.signed(-0.0001), "±0.0"),
        (lambda: words.signed(-0.02, False), "−0.0200"),
        (lambda: words.interval(Score(value=0.9, low=0.889, high=0.92)), "88.9 to 92.0"),
        (lambda: words.times(0.974), "0.97×"),
        (lambda: words.times(4.2), "4.20×"),
        (lambda: words.times(19.02), "19.0×"),
        (lambda: words.times(9.999), "10.0×"),
        (lambda: words.times(120.4), "120×"),
        (lambda: words.milliseconds(0.6123), "0.612 ms"),
        (lambda: words.milliseconds(11.63), "11.6 ms"),
        (lambda: words.milliseconds(1204.0), "1,204 ms"),
        (lambda: words.size(13_900_000), "13.9 MB"),
        (lambda: words.size(438_000_000), "438 MB"),
        (lambda: words.size(1_340_000_000), "1.3 GB"),
        (lambda: words.size(2_500), "2.5 kB"),
        (lambda: words.size(12), "12 B"),
        (lambda: words.count(22_700_000), "22.7 M"),
        (lambda: words.count(1821), "1,821"),
        (lambda: words.seconds(0.42), "0.4 s"),
        (lambda: words.seconds(59.6), "1 min"),
        (lambda: words.seconds(200), "3 min 20 s"),
        (lambda: words.seconds(7500), "2 h 5 min"),
        (lambda: words.percent(0.987), "98.7 %"),
        (lambda: words.probability(0.0001), "< 0.001"),
        (lambda: words.probability(0.041), "0.041"),
    ],
)
def test_numbers_read_well(call, shown):
    assert call() == shown


@pytest.mark.parametrize(
    "say",
    [
        words.score,
        words.points,
        words.signed,
        words.interval,
        words.times,
        words.milliseconds,
        words.size,
        words.count,
        words.seconds,
        words.percent,
        words.probability,
    ],
)
def test_what_is_absent_is_a_dash(say):
    assert say(None) == words.ABSENT


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
def test_metrics_are_written_as_people_write_them(name, shown):
    assert words.metric(name) == shown
