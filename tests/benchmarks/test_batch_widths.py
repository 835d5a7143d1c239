from benchmarks import batch_widths
from compress.train.fast_paths import fast_training

TINY = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}


def test_a_way_trains_with_its_widths(monkeypatch):
    monkeypatch.setattr(batch_widths, "MINILM", TINY)
    monkeypatch.setattr(batch_widths, "HEADS", (2, 1))
    monkeypatch.setattr(batch_widths, "FFN", (64, 48))
    monkeypatch.setattr(fast_training, "BF16_MULTIPLE", 8)
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "4096")
    trained = batch_widths.trained

    def pruned(model, *others):
        assert model.config.layer_shapes == [{"heads": 2, "ffn": 64}, {"heads": 1, "ffn": 48}]
        return trained(model, *others)

    monkeypatch.setattr(batch_widths, "trained", pruned)
    rate, memory = batch_widths.cost(batch_widths.Way("bf16", 16, 4096), updates=2, threads=1)
    assert fast_training.BF16_MULTIPLE == 16
    assert rate > 0
    assert memory > 0
