import pytest

from compress.select.quantization_loss import QuantizationLoss


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
