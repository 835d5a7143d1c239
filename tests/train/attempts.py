"""A program for the tests: trains once without interruption, and again with kills, each attempt in its own process.

    python attempts.py STEP TEACHER DATA FOLDER KILLS

The results are FOLDER/whole and FOLDER/killed. STEP is finetune, probe (fine-tuning of an encoder without a head),
open (until select stops improving), grid (of settings and seeds), unfreeze, distill, recover, own (distillation of
FOLDER/start, whose vocabulary is a part of the teacher's), qat (quantization-aware training of the teacher) or light
(distillation of a student without attention), shared (distillation of a student with its parts) or part (of a
shared student). KILLS
are points at which an attempt is killed, one each: `update:7` (in the middle of an update), `tensors:1` (while the
first checkpoint is written), `named:1` (before the first checkpoint replaces older ones), `best:2` (after the second
best weights), `saved:1` (after the model folder is written, before checkpoints are removed), `fit:2` (before the
second probe is fitted), `probe:1` (after the first probe is written, before it is renamed), `start:1` (after the
vectors are written that such a student starts with).
"""

import os
import signal
import sys
from pathlib import Path

import compress.storage.atomic_write as store
import compress.train.distillation.light_start as light_start
import compress.train.last_layer_fit as probes
import compress.train.save_trained as made
from compress.models.load_save import load_model
from compress.quantize.quantization_aware import quantization_aware
from compress.recipe.distill_schema import Distill, LightDistill, QuantizationAware, SharedDistill
from compress.recipe.student_schema import LightStudent, Part, Student
from compress.recipe.training_schema import Checkpoints, EpochBounds, Finetune
from compress.train.core.checkpoints import CheckpointStore
from compress.train.core.optimizer import ModelAndOptimizer
from compress.train.distill import distill
from compress.train.finetune import finetune
from compress.train.light_student import distill_light
from compress.train.shared_student import distill_part, train_shared

COMMON = {"epochs": 3, "batch_size": 8, "learning_rate": 3e-3, "precision": "bf16", "evaluations": 2}


def dies(owner, name, at, before):
    """Make the ``at``-th call of a function the last action of this process."""
    function, calls = getattr(owner, name), iter(range(1, 1000))

    def dying(*args, **options):
        last = next(calls) == at
        if last and before:
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*args, **options)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, dying)


def arm(point):
    what, at = point.split(":")
    owner, name, before = {
        "update": (ModelAndOptimizer, "step", True),
        "tensors": (store, "atomic_replace_folder", True),
        "named": (CheckpointStore, "_drop_best", True),
        "best": (CheckpointStore, "save_best", False),
        "saved": (made, "save_model", False),
        "fit": (probes, "fit_last_layer", True),
        "probe": (probes, "atomic_write", False),
        "start": (light_start, "atomic_write", False),
    }[what]
    dies(owner, name, int(at), before)


def attempt(step, teacher, data, work):
    work.mkdir(exist_ok=True)
    checkpoint = Checkpoints(minutes=None, steps=4)
    if step == "finetune":
        finetune(str(teacher), data, Finetune(**COMMON, checkpoint=checkpoint, reuse=False, restarts=2), 5, work)
    elif step == "open":
        bounds = {**COMMON, "epochs": EpochBounds(least=1, most=4), "evaluations": 1}
        finetune(str(teacher), data, Finetune(**bounds, patience=1, checkpoint=checkpoint, reuse=False), 5, work)
    elif step == "grid":
        grid = {"batch_size": (8, 16), "epochs": (1.0, 2.0)}
        own = {key: value for key, value in COMMON.items() if key not in grid}
        finetune(str(teacher), data, Finetune(**own, grid=grid, checkpoint=checkpoint, seeds=2, reuse=False), 5, work)
    elif step == "unfreeze":
        finetune(str(teacher), data, Finetune(**COMMON, checkpoint=checkpoint, reuse=False, unfreeze=0.5), 5, work)
    elif step == "probe":
        finetune(str(teacher), data, Finetune(**COMMON, checkpoint=checkpoint, restarts=2), 5, work)
    elif step == "qat":
        quantization_aware(teacher, data, QuantizationAware(**COMMON, checkpoint=checkpoint), 5, work)
    elif step == "light":
        student = LightStudent(kind="conv", hidden=8, head_width=8)
        settings = LightDistill(**COMMON | {"precision": "fp32"}, checkpoint=checkpoint)
        distill_light(teacher, student, data, settings, 5, work)
    elif step == "shared":
        settings = SharedDistill(**COMMON | {"precision": "fp32"}, checkpoint=checkpoint)
        train_shared(teacher, teacher, data, settings, 5, work)
    elif step == "part":
        settings = Distill(**COMMON, checkpoint=checkpoint)
        distill_part(teacher, teacher, Part(layers=1, heads=2, ffn=16), data, settings, 5, work, step="part")
    else:
        spec = {
            "distill": {"layers": 1, "hidden": 16},
            "recover": {"source": str(teacher)},
            "own": {"source": str(work.parent / "start")},
        }[step]
        distill(teacher, Student(**spec), data, Distill(**COMMON, checkpoint=checkpoint), 5, work)
    load_model(work)


def in_child(point, *arguments):
    """One attempt in a process that starts with everything imported and nothing done."""
    child = os.fork()
    if child == 0:
        if point:
            arm(point)
        attempt(*arguments)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    expected = signal.SIGKILL if point else 0
    assert status == expected, f"{point}: ended with {status}, expected {expected}"


def main(step, teacher, data, folder, *kills):
    folder = Path(folder)
    in_child(None, step, Path(teacher), Path(data), folder / "whole")
    for point in (*kills, None):
        in_child(point, step, Path(teacher), Path(data), folder / "killed")


if __name__ == "__main__":
    main(*sys.argv[1:])
