from compress.pipeline.fingerprint import fingerprint


def test_equal_settings_in_any_order_have_one_fingerprint() -> None:
    first = fingerprint("distill", {"a": 1, "b": {"c": 2, "d": 3}}, {"data": "x", "finetune": "y"})
    second = fingerprint("distill", {"b": {"d": 3, "c": 2}, "a": 1}, {"finetune": "y", "data": "x"})
    assert first == second


def test_every_part_changes_the_fingerprint() -> None:
    base = fingerprint("distill", {"a": 1}, {"data": "x"})
    assert base != fingerprint("recover", {"a": 1}, {"data": "x"})
    assert base != fingerprint("distill", {"a": 2}, {"data": "x"})
    assert base != fingerprint("distill", {"a": 1}, {"data": "z"})
