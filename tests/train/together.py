"""The same trainings on one process (called) or on several (by torchrun); the main one writes the results.

torchrun --nproc-per-node 2 together.py TEACHER DATA FOLDER
"""

import json
import os
import sys
from pathlib import Path

import torch

from compress.console import Console
from compress.data.splits.prepare_splits import load_prepared
from compress.measure.predict_rows import predict_encoded
from compress.models.load_save import load_model, load_tokenizer
from compress.recipe.distill_schema import Distill
from compress.recipe.student_schema import Student
from compress.recipe.training_schema import Checkpoints, Finetune
from compress.train.core import training_data as materials
from compress.train.core.training_data import predict_function
from compress.train.distill import distill
from compress.train.finetune import finetune
from compress.train.loop import train
from compress.train.objective import TaskObjective
from compress.train.precision import always_tried
from tests.train.recording_examples import RecordingExamples

# Batches of 7 split into 4 and 3; the last one of an epoch holds one row, and leaves the second process none.
SETTINGS = {"epochs": 4, "batch_size": 7, "learning_rate": 3e-3, "precision": "fp32"}
RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class StopsAt(TaskObjective):
    def __init__(self, call, task):
        super().__init__(task)
        self.left = call

    def __call__(self, model, batch):
        self.left -= 1
        if self.left == 0:
            raise InterruptedError
        return super().__call__(model, batch)


def one(teacher, material, work, objective=None, examples=None, **changes):
    model = load_model(teacher, material.task)
    result = train(
        model,
        objective or TaskObjective(material.task),
        examples or material.train,
        Finetune(**{**SETTINGS, **changes}),
        seed=1,
        work=work,
        evaluate=material.evaluate,
    )
    return model, result


def main(teacher, data, folder):
    torch.set_num_threads(1)
    teacher, data, folder = Path(teacher), Path(data), Path(folder)
    config = load_model(teacher).config
    tokens, roles = materials.fast_tokenizer(config, load_tokenizer(teacher)), load_prepared(data)
    rows, task = roles.rows("train"), roles.info.task_info
    material = materials.from_rows(rows, roles.rows("select"), task, tokens, Console("quiet"))

    def answers_of(model):
        return predict_encoded(predict_function(model), material.train, rows, material.task, 64)

    examples = RecordingExamples(material.train)
    model, result = one(teacher, material, folder / "plain", examples=examples)
    output = {"score": result.score, "logits": answers_of(model).tolist()}

    checkpoint = Checkpoints(minutes=None, steps=3)
    try:
        one(teacher, material, folder / "halted", StopsAt(9, material.task), checkpoint=checkpoint)
    except InterruptedError:
        again, _ = one(teacher, material, folder / "halted", checkpoint=checkpoint)
        output["goes_on"] = answers_of(again).tolist()

    with always_tried():  # one process tries both precisions, and all take its choice
        model, result = one(teacher, material, folder / "auto", precision="auto")
    output["auto"] = result.score
    chosen = {"precision": result.precision, "logits": answers_of(model).tolist()}
    (folder / f"chosen-{RANK}.json").write_text(json.dumps(chosen))

    finetune(str(teacher), data, Finetune(**SETTINGS, reuse=False), 1, folder / "teacher")
    Path(folder / f"done-{RANK}").touch()
    while not all((folder / f"done-{rank}").exists() for rank in range(WORLD)):
        pass  # the other ranks read the teacher that the main one wrote
    made = distill(folder / "teacher", Student(layers=1, hidden=16), data, Distill(**SETTINGS), 1, folder / "student")
    output["student"] = made.result.score
    (folder / f"seen-{RANK}.json").write_text(json.dumps(examples.seen))
    if RANK == 0:
        (folder / "found.json").write_text(json.dumps(output))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
