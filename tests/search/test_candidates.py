"""The candidates of a search: what they take and weigh by estimate, which fit a budget, which are trained on."""

import pytest

from compress.model_folder.model_info import ShapeInfo
from compress.model_shapes import light_shape, part_shape, parts_of
from compress.pipeline.run import read_recipe
from compress.recipe.schema import Budget
from compress.recipe.student_schema import LightStudent, Part, VocabularyRule
from compress.search.candidate_times import PartTimes
from compress.search.candidates import (
    EIGHT,
    FLOAT32,
    FOUR,
    Bits,
    Candidate,
    Reference,
    SearchInfo,
    bits_of,
    choose_finalists,
    estimate,
    estimate_light,
    front,
    least_pieces,
    may_fit,
    more_is_better,
    shown_score,
    with_fewer_pieces,
)

SHAPE = ShapeInfo(
    family="bert",
    hidden=32,
    heads=(4,) * 3,
    ffn=(64,) * 3,
    vocabulary=100,
    parameters=0,
    embedding_parameters=3200,
    head_size=8,
)
SMALLEST = Bits(FOUR, EIGHT)
TIMES = PartTimes(
    variant="onnx-int8",
    largest=2.4,
    layers=(1, 3),
    heads=(1, 4),
    ffn=(16, 64),
    milliseconds=(((0.5, 0.7), (0.8, 1.2)), ((0.9, 1.4), (1.7, 2.4))),
)


def candidate(milliseconds, score, **changes):
    part = Part(layers=1, heads=1, ffn=8)
    sizes = {"milliseconds": milliseconds, "bytes": 1000}
    return Candidate(name=part.name, student=part, score=score, **sizes, **changes)


@pytest.mark.parametrize(
    ("sizes", "milliseconds"),
    [
        ((3, 4, 64), 2.4),
        ((1, 1, 16), 0.5),
        ((2, 4, 64), (1.2 + 2.4) / 2),
        ((1, 4, 32), 0.8 + (1.2 - 0.8) / 3),
        ((2, 2, 64), ((0.7 + 1.4) / 2 * 2 + (1.2 + 2.4) / 2) / 3),
    ],
)
def test_time_is_that_of_the_timed_models_and_between_them_changes_steadily(sizes, milliseconds):
    layers, heads, ffn = sizes
    part = estimate(TIMES, SHAPE, Part(layers=layers, heads=heads, ffn=ffn), 0, SMALLEST)
    assert part.milliseconds == pytest.approx(milliseconds)


def test_size_is_that_of_the_smallest_file_with_its_tokenizer():
    part = Part(layers=2, heads=2, ffn=16)
    shape = part_shape(SHAPE, part)
    bits = 4.5 * shape.embedding_parameters + 8.5 * (shape.parameters - shape.embedding_parameters)
    assert estimate(TIMES, SHAPE, part, 500, SMALLEST).bytes == round(bits / 8 + 500)
    assert estimate(TIMES, SHAPE, part, 500, Bits(FLOAT32, FLOAT32)).bytes == 4 * shape.parameters + 500


@pytest.mark.parametrize(
    ("quantize", "parts", "light"),
    [
        ("int8", (4.5, 8.5), (4.5, 8.5)),
        ("null", (32, 32), (32, 32)),
        ("{methods: [dynamic, rows-8bit]}", (8.5, 8.5), (8.5, 8.5)),
        ("{methods: [embeddings-4bit]}", (4.5, 8.5), (4.5, 8.5)),
    ],
)
def test_bits_are_those_of_the_methods_of_the_recipe(quantize, parts, light, recipe_file):
    recipe = read_recipe(recipe_file, [f"quantize={quantize}"])
    assert (bits_of(recipe), bits_of(recipe, has_attention=False)) == (parts, light)


@pytest.mark.parametrize(
    ("budget", "fits"),
    [
        ({"p50": "0.5ms"}, True),
        ({"p50": "0.45ms"}, True),  # an estimate may be 15 % off
        ({"p50": "0.4ms"}, False),
        ({"p95": "0.3ms"}, False),
        ({"end_to_end": "0.3ms"}, False),  # the model alone takes longer
        ({"memory": 5000}, True),  # measured of finalists
        ({"size": 1000}, True),
        ({"smaller": 10.0}, True),
        ({"smaller": 30.0}, False),
        ({"speedup": 20.0}, True),  # the teacher takes 10 ms
        ({"speedup": 25.0}, False),
        ({"speedup": 25.0, "target": "server"}, True),
        ({"p50": "0.1ms", "target": "cpu"}, False),
        ({"p50": "0.1ms", "target": "server"}, True),
    ],
)
def test_what_may_fit(budget, fits):
    teacher = Reference(bytes=20_000, milliseconds=10.0)
    assert may_fit(candidate(0.5, 0.9), [Budget(**budget)], "cpu", teacher) is fits


def test_a_teacher_that_was_not_timed_rules_nothing_out():
    assert may_fit(candidate(0.5, 0.9), [Budget(speedup=1000.0, smaller=1000.0)], "cpu", Reference())


@pytest.mark.parametrize(
    ("vocabulary", "pieces"),
    [("seen", 30), (None, 100), ({"keep": 40}, 40), ({"keep": 400}, 100), ({"min_count": 2}, 0)],
)
def test_a_light_student_has_at_least_the_pieces_that_its_rule_keeps(vocabulary, pieces):
    student = LightStudent(kind="static", vocabulary=vocabulary)
    made = estimate_light("static", student, 0.04, least_pieces(student.vocabulary, 100, seen=30), 500, SMALLEST)
    assert (made.milliseconds, made.score) == (0.04, None)
    assert made.bytes == round(light_shape(student, pieces).parameters * 4.5 / 8 + 500)


def test_a_budget_is_shown_as_it_is_written():
    limits = tuple(each.model_dump(exclude_none=True) for each in (Budget(p50="0.5ms", size="5MB", speedup=12.0),))
    facts = {
        "name": "my",
        "limits": limits,
        "max_drop": 0.01,
        "goal": "p50",
        "variant": "onnx-int8",
        "run": "my-search",
    }
    assert SearchInfo(**facts, candidates=()).budget_text == "p50 0.5ms, size 5MB, speedup 12, drop 0.01"


def test_the_front_has_what_is_faster_or_better():
    rows = [candidate(1.0, 0.8), candidate(2.0, 0.8), candidate(3.0, 0.9), candidate(0.5, 0.7), candidate(4.0, 0.85)]
    assert [each.milliseconds for each in front(rows)] == [0.5, 1.0, 3.0]


def test_finalists_are_spread_over_the_front_with_both_ends():
    rows = [candidate(2.0**number, 0.5 + number / 100) for number in range(20)]
    chosen = choose_finalists(rows, 5)
    assert [each.milliseconds for each in chosen] == [1.0, 32.0, 512.0, 16384.0, 524288.0]
    assert choose_finalists(rows[:3], 5) == rows[:3]
    assert choose_finalists(rows, 1) == rows[-1:]


def test_a_front_whose_times_are_close_fills_all_places():
    rows = [candidate(time, 0.5 + time / 100) for time in (1.0, 1.05, 1.1, 1.2, 1.3, 5.0, 6.0)]
    worse = [candidate(time, 0.4) for time in (1.5, 2.0, 4.0)]
    chosen = choose_finalists([*rows, *worse], 6)
    assert len(chosen) == 6
    assert {id(each) for each in chosen} < {id(each) for each in rows}
    assert (chosen[0], chosen[-1]) == (rows[0], rows[-1])


def test_an_error_is_turned_so_that_more_is_better(recipe_file):
    task = read_recipe(recipe_file).task
    errors = task.model_copy(update={"kind": "regression", "metric": "mse"})
    assert (more_is_better(0.25, task), more_is_better(0.25, errors)) == (0.25, -0.25)
    assert (shown_score(0.25, True), shown_score(-0.25, False), shown_score(None, True)) == ("25.0", "0.2500", "")


def test_a_short_front_is_filled_from_the_front_of_the_others():
    rows = [candidate(1.0, 0.9), candidate(2.0, 0.8), candidate(3.0, 0.85), candidate(4.0, 0.7)]
    assert [each.milliseconds for each in choose_finalists(rows, 3)] == [1.0, 2.0, 3.0]
    assert choose_finalists(rows, 9) == rows


def test_the_best_of_the_slowest_is_chosen_where_the_front_ends_early():
    rows = [candidate(1.0, 0.8), candidate(2.0, 0.93), candidate(4.0, 0.91), candidate(8.0, 0.9), candidate(9.0, 0.92)]
    rows.append(candidate(20.0, 0.99, within=False))
    assert [each.milliseconds for each in choose_finalists(rows, 3)] == [1.0, 2.0, 9.0]
    assert [each.milliseconds for each in choose_finalists(rows, 2)] == [1.0, 2.0]
    assert [each.milliseconds for each in choose_finalists(rows, 4)] == [1.0, 2.0, 4.0, 9.0]
    assert [each.milliseconds for each in choose_finalists(rows, 1)] == [2.0]


def test_only_what_may_fit_is_chosen():
    rows = [candidate(1.0, 0.7), candidate(2.0, 0.9, within=False)]
    assert choose_finalists(rows, 5) == rows[:1]
    assert choose_finalists(rows[1:], 5) == []


def test_every_part_has_one_name():
    names = [part.name for part in parts_of(SHAPE)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("rule", "share"), [(None, 1.0), ("seen", 0.0), (VocabularyRule(keep=25), 0.25)])
def test_before_pieces_are_chosen_a_part_may_have_as_few_as_its_rule_allows(rule, share):
    part, whole = (
        Part(layers=1, heads=1, ffn=16),
        estimate(TIMES, SHAPE, Part(layers=1, heads=1, ffn=16), 0, SMALLEST).bytes,
    )
    fewest = with_fewer_pieces(SHAPE, least_pieces(rule, SHAPE.vocabulary) / SHAPE.vocabulary)
    least = estimate(TIMES, fewest, part, 0, SMALLEST).bytes
    assert least == pytest.approx(whole - (1 - share) * SHAPE.embedding_parameters * 4.5 / 8, abs=1)
