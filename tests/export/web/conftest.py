"""Web folders of tiny models, with the npm packages from the user's cache or the registry."""

import pytest

from compress.model_folder.model_info import FolderInfo, TaskInfo
from tests.conftest import make_tiny
from tests.variant_builder import build

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,!?'-é日本"
PIECES = (
    "good",
    "bad",
    "film",
    "plot",
    "the",
    "great",
    "fun",
    "##s",
    "##ing",
    "##ed",
    "slow",
    "##er",
    "second",
    "##ly",
)
WORDS = tuple(dict.fromkeys((*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS), *PIECES)))
SOURCES = {None: (), "onnx-fp32": ("onnx-fp32",), "onnx-int8": ("onnx-fp32", "onnx-int8")}


def wordpiece():
    """A tokenizer of letters and a few pieces, in BERT's manner."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    model = models.WordPiece({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]")
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


@pytest.fixture(scope="session")
def web_source(tmp_path_factory):
    """Makes the folder of a variant of a tiny model, or of the model: ``web_source(task, variant="onnx-fp32")``."""

    def make(task, variant="onnx-int8", tokenizer=None, names=SPECIAL, family="bert", **changes):
        from transformers import PreTrainedTokenizerFast

        from compress.models import save_model

        tokenizer = tokenizer or wordpiece()
        tokens = dict(zip(("pad", "unk", "cls", "sep", "mask"), names, strict=True))
        fast = PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, **{f"{name}_token": token for name, token in tokens.items()}
        )
        fast.add_special_tokens({f"{name}_token": token for name, token in tokens.items()})
        folder = tmp_path_factory.mktemp("web-source")
        model = make_tiny(family, vocab_size=tokenizer.get_vocab_size(), **changes)
        save_model(model, fast, folder, FolderInfo(step="finetune", made_by="tests", task=task))
        for name in SOURCES[variant]:
            folder, source = tmp_path_factory.mktemp(name), folder
            build(name, source, folder)
        return folder

    return make


@pytest.fixture(scope="session")
def film_task():
    """A task of single texts."""
    return TaskInfo(
        name="films", kind="classification", text=("text",), labels=("bad", "good"), metric="accuracy", max_length=32
    )


@pytest.fixture(scope="session")
def web_folder(assets, web_source, film_task, tmp_path_factory):
    """The web folder of a tiny INT8 model."""
    work = tmp_path_factory.mktemp("web")
    build("web-int8", web_source(film_task), work)
    return work
