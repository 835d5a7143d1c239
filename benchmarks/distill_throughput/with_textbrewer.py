"""TextBrewer as its SST-2 notebook sets it up: every row padded to 128, all hidden states and maps, fp32.

The notebook matches hidden states; attention is matched as in its other examples. The loss on maps is
the one of all contestants, registered as its manual describes.
"""

from importlib import import_module
from typing import Any

import torch
from torch.utils.data import DataLoader, RandomSampler
from transformers import get_linear_schedule_with_warmup

from benchmarks.distill_throughput import shared_torch
from benchmarks.distill_throughput.race_job import Clock, Job, run_contestant

ATTENTION = "attention_kl"


def distil(job: Job, clock: Clock) -> str:
    """Train on the job's rows."""
    textbrewer: Any = import_module("textbrewer")
    textbrewer.register_new("match_Loss", ATTENTION, shared_torch.attention)
    torch.manual_seed(job.seed)
    teacher, student = shared_torch.models(job, output_hidden_states=True, output_attentions=True)
    rows = shared_torch.examples(job, length=job.length)
    loader = DataLoader(rows, sampler=RandomSampler(rows), batch_size=job.batch)  # type: ignore[arg-type, var-annotated]
    optimizer = torch.optim.AdamW(student.parameters(), lr=job.rate)
    optimizer.register_step_post_hook(lambda *_: clock.step(job.batch))
    distiller = textbrewer.GeneralDistiller(
        train_config=textbrewer.TrainingConfig(output_dir=str(job.output), device="cpu"),
        distill_config=textbrewer.DistillationConfig(
            temperature=job.temperature,
            kd_loss_weight=job.temperature**2,  # its loss on logits is not multiplied by the square
            intermediate_matches=matches(job),
        ),
        model_T=teacher,
        model_S=student,
        adaptor_T=adapted,
        adaptor_S=adapted,
    )
    with distiller:
        distiller.train(
            optimizer,
            loader,
            job.epochs,
            scheduler_class=get_linear_schedule_with_warmup,
            scheduler_args={"num_warmup_steps": job.updates // 10, "num_training_steps": job.updates},
            callback=None,
        )
    shared_torch.save_student(student, job)
    return "fp32"


def matches(job: Job) -> list[dict[str, Any]]:
    """Pairs of layers as TextBrewer counts them: hidden state 0 is the output of the embeddings."""
    weight = 1.0 / len(job.pairs)
    described = [("hidden", 1, "hidden_mse"), ("attention", 0, ATTENTION)]
    return [
        {"layer_S": own + first, "layer_T": other + first, "feature": feature, "loss": loss, "weight": weight}
        for feature, first, loss in described
        for own, other in job.pairs
    ]


def adapted(batch: shared_torch.Batch, outputs: Any) -> dict[str, Any]:
    """The inputs of TextBrewer's losses, by its names."""
    return {
        "logits": outputs.logits,
        "hidden": outputs.hidden_states,
        "attention": outputs.attentions,
        "inputs_mask": batch["attention_mask"],
    }


if __name__ == "__main__":
    run_contestant(distil)
