from argparse import Namespace

from compress.pipeline.commands.listing import listing


def test_losses_tell_their_knobs_and_which_count_by_default():
    rows = {row["name"]: row for row in listing("losses", Namespace())}
    assert [name for name, row in rows.items() if row["by default"]] == ["soft_label", "hidden_state", "attention"]
    assert rows["soft_label"]["knobs"] == ["form: kl|mse|decoupled", "temperature", "target: 1", "others: 8"]
    assert rows["relation"]["knobs"] == ["pairs: [qq, kk, vv]", "heads", "layer"]
    assert rows["embedding"]["knobs"] == []
