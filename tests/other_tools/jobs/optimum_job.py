"""Runs exports in optimum's classes: `python optimum_job.py CASES.json ANSWERS.json`.

`opens` is a class of `optimum.onnxruntime` or `optimum.intel`, given the options that our READMEs name.
"""

import importlib

from case_files import groups, pack, run
from transformers import AutoTokenizer

PACKAGES = {"ORT": "optimum.onnxruntime", "OV": "optimum.intel"}
OPTIONS = {"ORT": {}, "OV": {"ov_config": {"INFERENCE_PRECISION_HINT": "f32"}}}


def answer(case):
    """Return what the class computes for each row."""
    prefix = next(prefix for prefix in PACKAGES if case["opens"].startswith(prefix))
    tokenizer = AutoTokenizer.from_pretrained(case["folder"])
    opened = getattr(importlib.import_module(PACKAGES[prefix]), case["opens"])
    model = opened.from_pretrained(case["folder"], **OPTIONS[prefix])
    # Of a question and its text the text is cut, as transformers' documentation does.
    cut = "only_second" if case["opens"].endswith("QuestionAnswering") else True

    def outputs_of(*texts):
        encoded = tokenizer(*texts, padding=True, truncation=cut, return_tensors="pt")
        outputs = {name: values.numpy() for name, values in model(**encoded).items() if values is not None}
        for index, mask in enumerate(encoded["attention_mask"].bool().numpy()):
            own = {name: values[index] for name, values in outputs.items()}
            # Outputs of tokens have the length of the batch; those of its padding mean nothing.
            cut_to_row = {name: value[mask] if value.shape[:1] == mask.shape else value for name, value in own.items()}
            yield pack(encoded["input_ids"][index].numpy()[mask], cut_to_row)

    # As lists: of a pair that is no list transformers takes an empty second text for none.
    alone = [next(outputs_of(*([text] for text in row))) for row in case["rows"]]
    batched = (
        [each for texts in groups(case["rows"], case["batch"]) for each in outputs_of(*texts)] if case["batch"] else []
    )
    return {"alone": alone, "batched": batched}


if __name__ == "__main__":
    run(answer)
