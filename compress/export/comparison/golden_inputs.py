"""Golden inputs: texts on which every export must repeat the outputs of its model, as rows of the model's own task.

They are short, or longer than the model reads, or full of what tokenizers and graphs stumble over. Each row runs alone
and, with others of its group, in a padded batch. They go through the tokenizer and the task kind, as texts do that are
given to `predict`; a text that the kind refuses (an empty sentence has no words to tag) is left out.

golden.safetensors holds them with PyTorch's outputs, so that a runner in any language checks itself: one padded batch a
group, named `<group>/inputs/<array>` and `<group>/outputs/<array>`; values of outputs at padding mean nothing. The file
is read without torch.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from compress.data.tokenizer import TextTokenizer
from compress.environment import require
from compress.errors import ModelError, UsageError
from compress.export.build_context import Batches
from compress.model_folder.model_info import GOLDEN_FILE, TaskInfo
from compress.runtime.predictor import Predictor
from compress.storage.safetensors_file import read_arrays
from compress.tasks import kind_of
from compress.tasks.base import Arrays, Example, TaskInput

SENTENCE = "The second half of the film is slower than the first, and yet nobody left before the end. "

GOLDEN_TEXTS: Mapping[str, tuple[str, ...]] = {
    "sentences": (
        SENTENCE,
        "It was a good plot, but the film is so very dull.",
        "Where did she leave her keys on Tuesday?",
        "Return the largest number of a list, or None if the list is empty.",
        "not bad",
        "Great fun for the whole family, great actors, great music and one of the worst endings in years!",
    ),
    "short": ("", " ", "a", "7", "?", "No.", "\u00e9"),
    "unusual characters": (
        "\U0001f600 \U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f3f3\ufe0f\u200d\U0001f308",
        "Z\u0351\u036b\u0343a\u032a\u0302\u036bl\u033d\u034fg\u0334\u0319o\u0324 cafe\u0301 nai\u0308ve",
        "\u4eca\u65e5\u306f\u6620\u753b\u3092\u898b\u307e\u3057\u305f\u3002 \u8fd9\u90e8\u7535\u5f71\u5f88\u597d\u3002",
        "\u0647\u0630\u0627 \u0627\u0644\u0641\u064a\u0644\u0645 \u062c\u064a\u062f \u062c\u062f\u0627\u064b",
        "\u092f\u0939 \u092b\u093f\u0932\u094d\u092e \u0905\u091a\u094d\u091b\u0940 \u0939\u0948",
        "one\ttwo\r\nthree\x00four\x07five\x1b[0m\u2028six",
        "zero\u200bwidth\u200djoined\u2060\ufeff \u200f \u00ad",
        "\u200b",
        "?!... --- ;;; ((([[[{{{ ''' \"\"\" @#$%^&*_+=|\\~`",
        "[CLS] [SEP] [MASK] [PAD] [UNK] <s> </s> <pad> <mask>",
        "<b>bold</b> &amp; https://example.org/?q=a%20b&n=1#end",
        "x" * 120,
        "3.14159 \u2212 40 \u00b0C 1,000,000 \u00bd \u2167 \uff11\uff12\uff13",
    ),
}
"""By group. Long texts depend on the model and are made by `golden_inputs`."""

LONG = "long"
MAX_LENGTH = 512
"""Tokens of the longest row, also of models that read more: attention at 8,192 tokens takes gigabytes."""
MAX_WINDOWS = 2
"""Windows of a long text, of models that read it in windows."""

GoldenBatches = Mapping[str, Mapping[int, Batches]]
"""By group and by batch size (1, and all of the group together): padded batches."""


def golden_batches(folder: Path, task: TaskInfo | None) -> GoldenBatches:
    """Return the golden inputs of a model folder or an exported one, encoded by its tokenizer.

    Args:
        folder: with the tokenizer and config.json.
        task: the model's task; without one it is given single texts.
    """
    tokens = TextTokenizer.load(folder)
    return golden_batches_from_tokenizer(tokens, task)


def golden_batches_from_tokenizer(tokens: TextTokenizer, task: TaskInfo | None) -> GoldenBatches:
    """Return the golden inputs of a model with this tokenizer."""
    task = bounded(task or single_texts(), tokens.longest)
    kind, batches = kind_of(task), dict[str, Mapping[int, Batches]]()
    for group, inputs in golden_inputs(task).items():
        examples = [each for given in inputs for each in examples_of(given, task, tokens)]
        if examples:
            alone = [kind.collate([example], tokens.pad_id) for example in examples]
            batches[group] = {1: alone, len(examples): [kind.collate(examples, tokens.pad_id)]}
    return batches


def golden_inputs(task: TaskInfo) -> Mapping[str, Sequence[TaskInput]]:
    """Return what `predict` would be given, by group; where a task reads several texts, neighbours of a group."""
    long = SENTENCE * (1 + task.max_length * task.max_windows // len(SENTENCE.split()))
    groups = {**GOLDEN_TEXTS, LONG: (long, "a")}
    count = 3 if kind_of(task).is_variadic else len(task.text)
    if count == 1:
        return groups
    return {
        group: [tuple(texts[(first + other) % len(texts)] for other in range(count)) for first in range(len(texts))]
        for group, texts in groups.items()
    }


def examples_of(given: TaskInput, task: TaskInfo, tokens: TextTokenizer) -> Iterator[Example]:
    """Yield the examples of one input, without those that have no token; none where the kind refuses the input."""
    kind = kind_of(task)
    try:
        row = kind.from_input(given, task)
    except UsageError:
        return
    yield from (example for example in kind.examples(row, task, tokens) if len(example["input_ids"]))


def bounded(task: TaskInfo, positions: int | None) -> TaskInfo:
    """Return the task with rows of at most `MAX_LENGTH` tokens, and fewer where the model has fewer positions."""
    length = min(task.max_length, MAX_LENGTH, MAX_LENGTH if positions is None else positions)
    return task.model_copy(update={"max_length": length, "max_windows": min(task.max_windows, MAX_WINDOWS)})


def single_texts() -> TaskInfo:
    """Return the task of models that do not state theirs."""
    return TaskInfo(name="texts", kind="classification", text=("text",), metric="accuracy", max_length=MAX_LENGTH)


LARGEST = 512 * 1024
"""Bytes of all arrays: a group that would exceed them is left out (long texts of models with an output per token)."""


@dataclass(frozen=True)
class GoldenBatch:
    """The padded batch of one group."""

    inputs: Arrays = field(default_factory=dict)
    outputs: Arrays = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of its arrays."""
        return sum(array.nbytes for arrays in (self.inputs, self.outputs) for array in arrays.values())


def golden_outputs(groups: GoldenBatches, reference: Predictor) -> dict[str, GoldenBatch]:
    """Return the padded batch of each group with what ``reference`` makes of it, of the groups that are stored."""
    found, size = dict[str, GoldenBatch](), 0
    for group, sizes in groups.items():
        (together,) = sizes[max(sizes)]
        inputs = {name: together[name] for name in reference.inputs}
        batch = GoldenBatch(inputs, reference.predict(inputs))
        if size + batch.size <= LARGEST:
            size += batch.size
            found[group.replace(" ", "_")] = batch
    return found


def write_golden(folder: Path, groups: GoldenBatches, reference: Predictor) -> None:
    """Write golden.safetensors into ``folder``, with what ``reference`` (a model in PyTorch) makes of the inputs."""
    arrays = Arrays()
    for key, batch in golden_outputs(groups, reference).items():
        arrays |= {f"{key}/inputs/{name}": array for name, array in batch.inputs.items()}
        arrays |= {f"{key}/outputs/{name}": array for name, array in batch.outputs.items()}
    about = reference.describe()
    made_by = {"outputs_of": f"{about['runtime']} {about['version']}, {about['precision']}"}
    (folder / GOLDEN_FILE).write_bytes(require("safetensors.numpy", "train").save(arrays, metadata=made_by))


def read_golden(folder: Path) -> Mapping[str, GoldenBatch]:
    """Return the batches of ``folder``'s golden.safetensors by group."""
    path = folder / GOLDEN_FILE
    if not path.is_file():
        raise ModelError(f"{folder} has no {GOLDEN_FILE}.", hint="exports of earlier versions have none: export again")
    groups: dict[str, GoldenBatch] = {}
    try:
        for name, array in read_arrays(path).items():
            group, side, key = name.split("/")
            getattr(groups.setdefault(group, GoldenBatch()), side)[key] = array
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, MemoryError) as error:
        raise ModelError(f"{path} cannot be read: it is empty, truncated, or damaged.") from error
    return groups
