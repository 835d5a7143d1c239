"""A hand-written training loop: padding to the longest row of a batch, eager attention, fp32."""

import torch
from torch.utils.data import DataLoader
from transformers import get_linear_schedule_with_warmup

from benchmarks.distill_throughput import shared_torch
from benchmarks.distill_throughput.race_job import Clock, Job, run_contestant


def distil(job: Job, clock: Clock) -> str:
    """Train on the job's rows."""
    torch.manual_seed(job.seed)
    teacher, student = shared_torch.models(job)
    loader = DataLoader(shared_torch.examples(job), batch_size=job.batch, shuffle=True, collate_fn=shared_torch.collate)  # type: ignore[arg-type, var-annotated]
    optimizer = torch.optim.AdamW(student.parameters(), lr=job.rate)
    schedule = get_linear_schedule_with_warmup(  # type: ignore[no-untyped-call]
        optimizer, job.updates // 10, job.updates
    )
    for _ in range(job.epochs):
        for batch in loader:
            loss = loss_of(job, teacher, student, batch)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            clock.step(len(batch["labels"]))
    shared_torch.save_student(student, job)
    return "fp32"


def loss_of(job: Job, teacher: torch.nn.Module, student: torch.nn.Module, batch: shared_torch.Batch) -> torch.Tensor:
    """Soft labels, hidden states and attention maps of the mapped layers, each with weight one."""
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    options = {"output_hidden_states": True, "output_attentions": True}
    with torch.no_grad():
        theirs = teacher(**inputs, **options)
    ours, mask = student(**inputs, **options), batch["attention_mask"]
    loss = shared_torch.soft_label(ours.logits, theirs.logits, job.temperature)
    for own, other in job.pairs:
        # The first hidden state is the output of the embeddings.
        hidden = shared_torch.hidden_state(ours.hidden_states[own + 1], theirs.hidden_states[other + 1], mask)
        loss = loss + (hidden + shared_torch.attention(ours.attentions[own], theirs.attentions[other], mask)) / len(
            job.pairs
        )
    return loss


if __name__ == "__main__":
    run_contestant(distil)
