"""Which quantized files of a model are scored and timed beside the first method's."""

import pytest

from compress.select.quantized_files import QuantizationLoss, ScreenedFile, reason_against, screen


@pytest.mark.parametrize(
    ("outcome", "drop", "doubt"),
    [
        ("passed", 0.002, ""),
        ("undecided", 0.002, ""),
        ("undecided", 0.013, "; the rows cannot tell whether it is more"),
        ("missed", 0.002, "; the gate is strict, and a larger loss is not excluded"),
        ("missed", 0.03, ""),
    ],
)
def test_the_text_says_what_the_figures_do_not(outcome, drop, doubt):
    loss = QuantizationLoss(outcome=outcome, score=0.8, drop=drop, error=0.01, allowed=0.005)
    expected = f"lost {100 * drop:.2g} points on select against its own unquantized model, 0.5 points allowed{doubt}"
    assert loss.text == expected


def file(variant="static", *, milliseconds=1.0, size=1000, drop=0.002, outcome="passed") -> ScreenedFile:
    loss = QuantizationLoss(outcome=outcome, score=0.9 - drop, drop=drop, error=0.002, allowed=0.005)
    return ScreenedFile(variant=variant, loss=loss, milliseconds=milliseconds, bytes_total=size)


FIRST = file("onnx-int8")


@pytest.mark.parametrize("better", [{"milliseconds": 0.95}, {"size": 800}, {"drop": -0.003}])
def test_faster_smaller_or_better_files_are_kept(better):
    assert reason_against(file(**better), FIRST) is None


@pytest.mark.parametrize("alike", [{}, {"milliseconds": 0.98}, {"size": 950}, {"drop": 0.001}])
def test_differences_within_the_noise_are_no_reason_to_keep_a_file(alike):
    assert "neither a tenth smaller nor better on select" in reason_against(file(**alike), FIRST)


def test_the_reason_names_the_speed():
    reason = reason_against(file(milliseconds=1.31), FIRST)
    assert reason.startswith("in a short timing it takes 1.31 times as long as onnx-int8")


def test_a_file_that_loses_too_much_is_not_kept_however_fast():
    reason = reason_against(file(milliseconds=0.1, drop=0.012, outcome="missed"), FIRST)
    assert reason == "it lost 1.2 points on select against its own unquantized model, 0.5 points allowed"


@pytest.mark.parametrize("first", [None, file("onnx-int8", drop=0.05, outcome="missed")])
def test_without_a_first_file_that_may_win_every_other_one_that_passes_is_kept(first):
    assert reason_against(file(milliseconds=3.0), first) is None


def test_all_files_are_listed_with_the_reasons_of_those_not_kept():
    result = screen(FIRST, (file("slow", milliseconds=2.0), file("fast", milliseconds=0.5)))
    assert [each.variant for each in result.files] == ["onnx-int8", "slow", "fast"]
    assert list(result.reasons) == ["slow"]
