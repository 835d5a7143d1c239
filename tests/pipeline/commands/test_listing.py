from argparse import Namespace

from compress.pipeline.commands.listing import listing


def test_losses_list_their_settings_and_defaults():
    rows = {row["name"]: row for row in listing("losses", Namespace())}
    assert [name for name, row in rows.items() if row["by default"]] == ["soft_label", "hidden_state", "attention"]
    assert rows["soft_label"]["knobs"] == ["form: kl|mse|decoupled", "temperature", "target: 1", "others: 8"]
    assert rows["relation"]["knobs"] == ["pairs: [qq, kk, vv]", "heads", "layer"]
    assert rows["embedding"]["knobs"] == []
