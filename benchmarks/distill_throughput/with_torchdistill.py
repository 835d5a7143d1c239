"""torchdistill as its GLUE example sets it up: a distillation box built from a configuration, with Accelerate.

The example learns from the teacher's logits only. Losses on layers are added in torchdistill's own way: hooks on
modules, and losses on their outputs.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from transformers import get_linear_schedule_with_warmup

from benchmarks.distill_throughput import shared_torch
from benchmarks.distill_throughput.race_job import Clock, Job, run_contestant

PIECES = "bert.embeddings.word_embeddings"
"""Its input is hooked: losses derive the padding mask from it."""
LOGITS = "classifier"
HookedOutputs = Mapping[str, Mapping[str, Any]]


class FollowLayer(nn.Module):
    """The loss of one pair of layers, on their hidden states and attention maps."""

    def __init__(self, own: int, other: int) -> None:
        super().__init__()
        self.own, self.other = own, other

    def forward(self, student: HookedOutputs, teacher: HookedOutputs, *_: object) -> Tensor:
        """Hidden states and maps together."""
        mask = student[PIECES]["input"] != 0
        hidden = shared_torch.hidden_state(_hidden(student, self.own), _hidden(teacher, self.other), mask)
        return hidden + shared_torch.attention(_maps(student, self.own), _maps(teacher, self.other), mask)


def _hidden(outputs: HookedOutputs, layer: int) -> Tensor:
    output = outputs[_layer(layer)]["output"]
    state: Tensor = output[0] if isinstance(output, tuple) else output
    return state


def _maps(outputs: HookedOutputs, layer: int) -> Tensor:
    maps: Tensor = outputs[_attention(layer)]["output"][1]
    return maps


def _layer(number: int) -> str:
    return f"bert.encoder.layer.{number}"


def _attention(number: int) -> str:
    return f"{_layer(number)}.attention.self"


def distil(job: Job, clock: Clock) -> str:
    """Train on the job's rows."""
    declared = declare_image_operators()
    accelerate: Any = import_module("accelerate")
    import_module("torchdistill.datasets.registry").register_collate_func(shared_torch.collate)
    import_module("torchdistill.optim.registry").register_scheduler(get_linear_schedule_with_warmup)
    import_module("torchdistill.losses.registry").register_mid_level_loss(FollowLayer)
    torch.manual_seed(job.seed)
    teacher, student = shared_torch.models(job)
    accelerator = accelerate.Accelerator(cpu=True)
    accelerator.state.use_fp16 = False  # torchdistill reads it; Accelerate no longer has it
    get_box = import_module("torchdistill.core.distillation").get_distillation_box
    rows = {"train": shared_torch.examples(job)}
    box = get_box(teacher, student, rows, configuration(job), torch.device("cpu"), None, False, 1, accelerator)
    for epoch in range(box.num_epochs):
        box.pre_epoch_process(epoch=epoch)
        for batch in box.train_data_loader:
            loss = box.forward_process(batch, targets=None, supp_dict=None)
            box.post_forward_process(loss=loss)
            loss.item()  # its example logs every loss
            clock.step(len(batch["labels"]))
        box.post_epoch_process()
    shared_torch.save_student(accelerator.unwrap_model(student), job)
    del declared  # operators are declared as long as it exists
    return "fp32"


def configuration(job: Job) -> dict[str, Any]:
    """The content of the example's YAML file, for this job."""
    return {
        "num_epochs": job.epochs,
        "train_data_loader": {
            "dataset_id": "train",
            "sampler": {"class_or_func": torch.utils.data.RandomSampler},
            "collate_fn": "collate",
            "requires_supp": False,
            "kwargs": {"batch_size": job.batch, "num_workers": 0},
        },
        "teacher": {**_model([other for _, other in job.pairs]), "requires_grad": False},
        "student": {**_model([own for own, _ in job.pairs]), "requires_grad": True},
        "optimizer": {
            "key": "AdamW",
            "kwargs": {"lr": job.rate, "weight_decay": 0.0},
            "filters_params": True,
            "max_grad_norm": 1.0,
            "grad_accum_step": 1,
        },
        "scheduler": {
            "key": "get_linear_schedule_with_warmup",
            "kwargs": {"num_warmup_steps": 0, "num_training_steps": job.updates},
            "scheduling_step": 1,
        },
        "criterion": {"key": "WeightedSumLoss", "kwargs": {"sub_terms": _losses(job)}},
    }


def _model(layers: list[int]) -> dict[str, Any]:
    outputs = [LOGITS, *map(_layer, layers), *map(_attention, layers)]
    return {
        "forward_proc": "forward_batch_only_as_kwargs",
        "sequential": [],
        "wrapper": None,
        "frozen_modules": [],
        "forward_hook": {"input": [PIECES], "output": outputs},
    }


def _losses(job: Job) -> dict[str, Any]:
    soft_labels = {
        "student_module_path": LOGITS,
        "student_module_io": "output",
        "teacher_module_path": LOGITS,
        "teacher_module_io": "output",
        "temperature": job.temperature,
        "alpha": 0.0,  # true labels have no weight
        "reduction": "batchmean",
    }
    terms = {"kd": {"criterion": {"key": "KDLoss", "kwargs": soft_labels}, "weight": job.temperature**2}}
    for own, other in job.pairs:
        follow = {"key": "FollowLayer", "kwargs": {"own": own, "other": other}}
        terms[f"layer{own}"] = {"criterion": follow, "weight": 1.0 / len(job.pairs)}
    return terms


def declare_image_operators() -> list[Any]:
    """Let torchvision be imported where its compiled operators cannot be loaded; torchdistill imports it for images.

    PyPI has torchvision for Linux with CUDA alone, which finds no libraries to load with a CPU build of torch and
    then misses its own operators at import. Declared, they satisfy it; nothing here calls them.
    """
    try:
        import_module("torchvision")
    except RuntimeError:
        from torch import library as operators

        library: Any = operators.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
        import_module("torchvision")
        return [library]
    return []


if __name__ == "__main__":
    run_contestant(distil)
