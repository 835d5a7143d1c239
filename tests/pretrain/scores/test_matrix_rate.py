"""The operations of a pretraining, counted by torch itself, and the rate that they are compared with."""

import pytest

pytest.importorskip("torch")

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertForMaskedLM

from compress.model_shapes import shape_of_config
from compress.pretrain.methods.bert_pretraining import predict_at
from compress.pretrain.pretrain_report import MatrixRate, PretrainReport, TrainingPart, page
from compress.pretrain.scores.matrix_rate import Passes, operations, time_product

ROWS, LENGTH, MASKED = 4, 32, 5


def test_operations_are_those_that_torch_counts() -> None:
    config = BertConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        vocab_size=300,
        attn_implementation="eager",
    )
    model = BertForMaskedLM(config)
    ids = torch.randint(5, 300, (ROWS, LENGTH))
    chosen = torch.zeros_like(ids, dtype=torch.bool)
    chosen[:, :MASKED] = True
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
    with FlopCounterMode(display=False) as counter:
        predict_at(model, batch, chosen).words.sum().backward()
    passes = Passes(shape_of_config(config.to_dict()), 3, MASKED / LENGTH)
    assert operations([passes], ROWS * LENGTH, ROWS * LENGTH**2) == pytest.approx(counter.get_total_flops(), rel=0.01)


def test_a_family_that_is_not_known_has_no_figure() -> None:
    assert operations([Passes(None, 1, 0.0)], 10, 100) is None


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_product_is_of_the_precision_of_the_training(precision: str) -> None:
    product = time_product(precision, 2)
    assert product.best.kernel == f"torch {precision} linear"
    assert product.operations == 2 * product.best.value > 0
    assert product.threads == torch.get_num_threads()


def test_the_page_says_which_share_of_which_product() -> None:
    report = PretrainReport(
        name="made",
        made_by="compress",
        method="masked_lm",
        start=None,
        shape="2 layers",
        parameters=1,
        vocabulary=1,
        corpus={},
        training=(TrainingPart(length=32, steps=1, passes=1.0, pieces=1, seconds=1.0, precision="bf16"),),
        matrix_rate=MatrixRate(
            operations=2e10, fastest=8e10, kernel="torch bf16 linear", size="128x384x1536", threads=1, processes=2
        ),
        held_out=None,
        cpu="a CPU",
    )
    assert (
        "- Share of the matrix rate: 25%, 20.0 GFLOP/s of the 80.0 of the fastest product (torch bf16 linear,"
        " 128x384x1536, timed right after the training; 1 thread in each of 2 processes, a CPU)" in page(report)
    )
    assert "1 pieces per second in bf16\n" in page(report)
    (part,) = report.training
    chosen = report.model_copy(update={"training": (part.model_copy(update={"precision_reason": "it is faster"}),)})
    assert "1 pieces per second in bf16 (it is faster)\n" in page(chosen)
    assert "- Share of the matrix rate: not known" in page(report.model_copy(update={"matrix_rate": None}))
