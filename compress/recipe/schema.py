"""The recipe: one frozen model a stage, unknown keys refused, every default in sight.

A recipe is written in short forms (``task: sst2``, ``quantize: int8``) and read into these long ones; ``compress plan``
prints them. Names that other parts own (task kinds, losses, cards, formats, methods) are checked against the tables
that the caller passes as validation context, so that adding a method never edits this file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from compress.errors import nearest

Share = Annotated[float, Field(ge=0.0, lt=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
Count = Annotated[int, Field(ge=1)]
FILE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
"""What becomes a folder's name."""
Header = bool | tuple[str, ...]
Role = Literal["train", "select", "test"]


def named(table: str) -> AfterValidator:
    """A name that must stand in ``table`` of the validation context (anything goes where no context is given)."""

    def check(value: str, info: ValidationInfo) -> str:
        known: Collection[str] | None = (info.context or {}).get(table)
        if known is not None and value not in known:
            one = table.removesuffix("es") if table.endswith("sses") else table.removesuffix("s")
            raise ValueError(f"no {one} is called '{value}'{nearest(value, known)}")
        return value

    return AfterValidator(check)


def _in_a_list(value: Any) -> Any:
    return [value] if isinstance(value, (str, Mapping)) else value


listed = BeforeValidator(_in_a_list)
"""A list of one may be written without its brackets: `text: sentence`, `targets: cpu`."""


class Frozen(BaseModel):
    """Values, not objects: equal when their fields are, never changed in place."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ShortForm(Frozen):
    """A section that may also be written as one scalar, which then stands for the key named here."""

    @classmethod
    def short_key(cls) -> str:
        """The key that a bare scalar stands for."""
        raise NotImplementedError

    @model_validator(mode="before")
    @classmethod
    def _read_short_form(cls, value: Any) -> Any:
        return (
            {cls.short_key(): value} if isinstance(value, (str, int, float)) and not isinstance(value, bool) else value
        )


class Data(Frozen):
    """Where rows come from: files (`train: FILE`), a hub set (`hub: nyu-mll/glue/sst2`) or a set made here."""

    hub: str | None = None
    """`owner/name` or `owner/name/configuration` of a hub data set; then train, select and test name its splits."""
    revision: str | None = None
    builtin: str | None = None
    """A set that is made from what is installed; `docstrings` is the quickstart's."""
    train: str | tuple[str, ...] | None = None
    select: str | tuple[str, ...] | None = None
    test: str | tuple[str, ...] | None = None
    format: Literal["csv", "tsv", "jsonl", "parquet"] | None = None
    """By default the file's extension says (`.gz` aside)."""
    quoting: bool | None = None
    """Whether quotes enclose fields: by default yes in csv, no in tsv."""
    header: Header | Mapping[Role, Header] = True
    """False: the first row is data and columns are called 0, 1, 2 …; a list names the columns of a file without header,
    and may end in `...` where rows go on past the columns that matter. Roles whose files differ are told apart:
    `{test: [label, title, text]}`; those not named have a header."""
    encoding: str = "utf-8"
    select_share: Share = 0.05
    """How much of train is held back as select where none is given."""
    test_share: Share = 0.0
    """How much of train is held back as test where none is given."""
    limit: Count | None = None
    """Take at most so many rows of each role."""


class Task(ShortForm):
    """What the model answers: a named task (`sst2`), or a kind with its columns."""

    name: str = "task"
    kind: Annotated[str, named("task kinds")]
    data: Data
    text: Annotated[tuple[str, ...], listed] = Field(("text",), min_length=1, max_length=2)
    """One column, or the two of a sentence pair."""
    label: str | tuple[str, ...] = "label"
    """The answer's column; for multi_label one column of lists, or several of 0 and 1."""
    labels: tuple[str, ...] | None = None
    """Names of the classes in order; a row may hold the name or its index. By default the sorted values of train."""
    first_label: int = Field(0, ge=0)
    """The number of the first of `labels` where rows hold numbers (AG News' own files count from 1)."""
    aliases: Mapping[str, Annotated[tuple[str, ...], listed]] = {}
    """Other headers under which a column may stand (GLUE's files and its hub sets differ)."""
    metric: str | None = None
    """The primary metric; by default the kind's first."""
    max_length: int = Field(128, ge=4)
    """Word pieces kept of each text; the share of truncated rows is told."""

    @classmethod
    def short_key(cls) -> str:
        """`task: sst2`."""
        return "name"


class Teacher(ShortForm):
    """The model to learn from: a card, a local folder or a hub id (`owner/name@revision`)."""

    source: str
    revision: str | None = None

    @classmethod
    def short_key(cls) -> str:
        """`teacher: minilm-l6`."""
        return "source"


class Checkpoints(Frozen):
    """How often training saves what it needs to go on; never part of a fingerprint."""

    minutes: Positive | None = 5.0
    steps: Count | None = None


class Training(Frozen):
    """One training: the same keys for finetune, distill and the recovery after pruning."""

    epochs: Positive = 3.0
    max_steps: Count | None = None
    batch_size: Count = 32
    accumulate: Count = 1
    learning_rate: Positive = 5e-5
    warmup: Share = 0.1
    """Share of all steps in which the rate rises from zero."""
    decay: Literal["linear", "cosine", "constant"] = "linear"
    weight_decay: float = Field(0.01, ge=0.0)
    clip: Positive | None = 1.0
    """Largest norm of the gradient."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """`auto` takes bf16 autocast where the device has instructions for it."""
    evaluations: Count = 1
    """Evaluations on select in each epoch; the best one's weights are kept."""
    patience: Count | None = None
    """Stop after so many evaluations without a better one."""
    restarts: Count = 1
    """Trainings from different seeds, of which the best on select is kept."""
    freeze: int | Literal["embeddings"] | None = Field(None)
    """`embeddings`, or a number: the embeddings and so many lowest layers keep their weights."""
    layer_decay: float = Field(1.0, gt=0.0, le=1.0)
    """Each lower layer learns at this times the rate of the one above it."""
    checkpoint: Checkpoints = Checkpoints()


class Finetune(Training):
    """Fine-tuning of the teacher. `reuse: false` trains even a teacher that already has a head for this task."""

    reuse: bool = True


class Student(ShortForm):
    """The smaller model: a card, a folder or hub id to start from, or a shape."""

    source: str | None = None
    revision: str | None = None
    layers: float | tuple[int, ...] | None = None
    """A number of layers, a share of the teacher's (0.5), or which of the teacher's layers to take ([1, 3, 5])."""
    hidden: Count | None = None
    heads: Count | None = None
    ffn: Count | None = None
    start: Literal["teacher", "random"] | None = None
    """Weights copied from the teacher's layers (the default where the width is the same), or fresh ones."""

    @classmethod
    def short_key(cls) -> str:
        """`student: half-depth`."""
        return "source"

    @field_validator("layers")
    @classmethod
    def _layers_can_be_counted(cls, layers: float | tuple[int, ...] | None) -> float | tuple[int, ...] | None:
        if isinstance(layers, float) and (layers <= 0 or (layers >= 1 and layers != int(layers))):
            raise ValueError(f"expected a number of layers or a share between 0 and 1, got {layers:g}")
        return layers

    @model_validator(mode="after")
    def _some_shape(self) -> Student:
        if self.source is None and self.layers is None:
            raise ValueError("name a student card or folder, or give its number of layers")
        return self


def _collect_losses(value: Any, info: ValidationInfo) -> Any:
    """`{soft_label: 1.0}` is short for `{losses: {soft_label: 1.0}}`: a known loss may stand beside the settings."""
    known = (info.context or {}).get("losses")
    if not isinstance(value, Mapping) or known is None:
        return value
    loose = {key: weight for key, weight in value.items() if key in known}
    if not loose:
        return value
    rest = {key: entry for key, entry in value.items() if key not in known}
    return {**rest, "losses": {**(rest.get("losses") or {}), **loose}}


class Distill(Training):
    """Training of the student on the teacher's answers and inner states."""

    epochs: Positive = 3.0
    losses: Mapping[Annotated[str, named("losses")], float] = {"soft_label": 1.0, "hidden_state": 1.0, "attention": 1.0}
    """The weight of each distillation loss."""
    hard_label: float = Field(0.5, ge=0.0)
    """The weight of the task's own loss on the true labels."""
    temperature: Positive = 4.0
    layer_map: Literal["uniform", "last", "first"] | tuple[tuple[int, int], ...] = "uniform"
    """Which teacher layer each student layer follows, or pairs [student, teacher] counted from 0."""

    _losses = model_validator(mode="before")(_collect_losses)

    @field_validator("losses")
    @classmethod
    def _weights_are_useful(cls, losses: Mapping[str, float]) -> Mapping[str, float]:
        if any(weight < 0 for weight in losses.values()):
            raise ValueError("a loss cannot weigh less than zero")
        return losses


class Recover(Distill):
    """The distillation that follows pruning."""

    epochs: Positive = 2.0
    losses: Mapping[Annotated[str, named("losses")], float] = {"soft_label": 1.0, "hidden_state": 1.0}


class PruneTo(Frozen):
    """What is left after pruning, instead of what is removed."""

    parameters: float = Field(gt=0.0, lt=1.0)
    """Share of the encoder layers' parameters (without embeddings) that stays."""


class Prune(Frozen):
    """Removal of heads and FFN neurons by first-order Taylor importance, uneven across layers."""

    heads: Share = 0.0
    ffn: Share = 0.0
    to: PruneTo | None = None
    batches: Count = 64
    """Batches of train over which importance is summed."""
    round_to: Count = 16
    """FFN widths are multiples of this: kernels like them."""
    even: bool = False
    """The same share from every layer."""
    recover: Recover | Literal[False] = Recover()

    @model_validator(mode="after")
    def _something_to_prune(self) -> Prune:
        if self.to is None and not (self.heads or self.ffn):
            raise ValueError("say how much: heads: 0.25, ffn: 0.5, or to: {parameters: 0.3}")
        if self.to is not None and (self.heads or self.ffn):
            raise ValueError("give either the shares removed (heads, ffn) or the share left (to)")
        return self


class Quantize(ShortForm):
    """INT8 variants and what they may lose against their own unquantized model."""

    method: Annotated[str, named("quantizers")] = "int8"
    max_drop: float = Field(0.005, ge=0.0)

    @classmethod
    def short_key(cls) -> str:
        """`quantize: int8`."""
        return "method"


class Gate(Frozen):
    """What the winner may lose against the teacher, absolute and in the primary metric (0.01 is one point)."""

    max_drop: float = Field(0.01, ge=0.0)
    strict: bool = False
    """Ask the whole 95 % interval of the difference to pass, not the point estimate alone."""
    max_class_drop: float | None = Field(None, ge=0.0)
    """Also the most that the recall of any class with 50 rows or more may lose."""


class Target(ShortForm):
    """A place of use; every variant that runs there competes."""

    name: str | None = Field(None, pattern=FILE_NAME)
    device: Literal["cpu", "cuda"]
    threads: Count = 1
    batch: Count = 1
    length: Count | Literal["data"] = "data"
    """Word pieces of every input, or `data`: the lengths of the test set as they are."""

    @classmethod
    def short_key(cls) -> str:
        """`targets: [cpu]`."""
        return "device"

    @property
    def title(self) -> str:
        """The name given, or one made of what differs from the default."""
        marks = [f"t{self.threads}" if self.threads != 1 else "", f"b{self.batch}" if self.batch != 1 else ""]
        marks.append("" if self.length == "data" else f"l{self.length}")
        return self.name or "-".join([self.device, *filter(None, marks)])


class Measure(Frozen):
    """How long the measuring session may look at each variant."""

    rounds: int = Field(10, ge=3)
    """Turns that every variant gets; they interleave."""
    seconds: Positive = 0.5
    """Length of a turn."""
    bootstrap: int = Field(1000, ge=100)
    """Resamples behind each interval."""


class Publish(ShortForm):
    """The zoo that winners go to: a local folder."""

    to: str
    name: str | None = Field(None, pattern=FILE_NAME)
    """By default the recipe's name."""

    @classmethod
    def short_key(cls) -> str:
        """`publish: zoo/`."""
        return "to"


class Recipe(Frozen):
    """The whole pipeline. Every part but task and teacher can be left out."""

    version: Literal[1] = 1
    name: str = Field("run", pattern=FILE_NAME)
    seed: int = Field(0, ge=0, lt=2**31)
    task: Task
    teacher: Teacher
    finetune: Finetune | Literal[False] = Finetune()
    student: Student | None = None
    distill: Distill | Literal[False] = Distill()
    prune: Prune | None = None
    quantize: Quantize | None = None
    export: Annotated[tuple[Annotated[str, named("formats")], ...], listed] = ("onnx",)
    gate: Gate = Gate()
    targets: Annotated[tuple[Target, ...], listed] = Field((Target(device="cpu"),), min_length=1)
    rank_by: Literal["p50", "p95", "p99"] = "p50"
    measure: Measure = Measure()
    publish: Publish | None = None
    track: Annotated[str, named("trackers")] | None = None
    """An experiment tracker that Accelerate knows (`tensorboard`, `wandb`, `mlflow` …)."""

    @model_validator(mode="after")
    def _distinct_targets(self) -> Recipe:
        titles = [target.title for target in self.targets]
        twice = sorted({title for title in titles if titles.count(title) > 1})
        if twice:
            raise ValueError(f"targets: two are called {', '.join(twice)}; give them names")
        return self
