"""The recipe schema: one frozen model a section, unknown keys refused, every default explicit.

A recipe is written in short forms (``task: sst2``, ``quantize: int8``) and parsed into these long ones; ``compress
plan`` prints them. Names owned by other packages (task kinds, cards, formats, methods) are checked against the tables
that the caller passes as validation context, so that adding a method never edits this file.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    field_validator,
    model_validator,
)

from compress.errors import nearest
from compress.recipe.distill_schema import Distill, QuantizationAware
from compress.recipe.field_types import (
    TASK,
    Bytes,
    Flag,
    Frozen,
    Milliseconds,
    PathText,
    PositiveFloat,
    RecipeFile,
    ShortForm,
    Weight,
    as_list,
    name_in,
    switched,
)
from compress.recipe.measure_schema import Measure, Target
from compress.recipe.prune_schema import Prune
from compress.recipe.student_schema import AnyStudent, Cascade, LightStudent, Part, Shared, Student
from compress.recipe.task_schema import Task
from compress.recipe.training_schema import Finetune
from compress.runtimes import check_runs_in
from compress.storage.file_names import FileName

LEAST_SIZE = 1000
"""Bytes; whoever writes fewer has left the unit out."""
LEAST_TIME = 0.005
"""Milliseconds that no call is shorter than."""


class Teacher(ShortForm):
    """The model to learn from: a card, a local folder or a hub id (`owner/name@revision`)."""

    short_key = "source"
    """`teacher: minilm-l6`"""
    source: PathText
    revision: PathText | None = None


class Quantize(ShortForm):
    """INT8 variants, and the quality they may lose against their own unquantized model."""

    short_key = "methods"
    """`quantize: int8`"""
    methods: Annotated[tuple[Annotated[str, name_in("quantizers")], ...], as_list] = Field(("int8",), min_length=1)
    """How models are quantized: every model by the first method, the final one by all of them. `int8` means those
    that are worth trying."""
    max_drop: Weight = 0.005
    training: Annotated[QuantizationAware | Literal[False], switched] = False
    """Train the last model once more while it computes as in INT8; the model before it is its teacher."""


class Export(ShortForm):
    """A format, for all models or for winners only."""

    short_key = "format"
    """`export: [onnx, web]`"""
    format: Annotated[str, name_in("formats")]
    """`all`: every format that can be built here."""
    compete: Flag | None = None
    """Whether it is built for every model and competes on the targets; otherwise it is built for winners, after they
    are selected. By default what is usual for the format."""


class Gate(Frozen):
    """The quality the winner may lose against the teacher, absolute and in the primary metric (0.01 is one point).

    A loss within one standard error of what is allowed is undecided: such a variant wins only where none passes.
    """

    max_drop: Weight = 0.01
    strict: Flag = False
    """Require the whole 95 % interval of the difference to be within; nothing is undecided then."""
    max_class_drop: Weight | None = None
    """Also the largest loss of recall of any class with 50 rows or more."""


class Budget(Frozen):
    """What the winner may take and weigh: rows that exceed it are ruled out, with the reason in the report."""

    target: str | None = None
    """The title of the target at which it holds; by default at all."""
    p50: Milliseconds | None = None
    """The median of the model alone (`0.5ms`)."""
    p95: Milliseconds | None = None
    end_to_end: Milliseconds | None = None
    """The median from text to answer, with the tokenizer."""
    memory: Bytes | None = None
    """The most that a process which serves it, one by one, holds at any time, everything in it included (`200MB`)."""
    size: Bytes | None = None
    """All files that predicting needs (`5MB`)."""
    speedup: PositiveFloat | None = None
    """How many times faster than the teacher in PyTorch it is at least."""
    smaller: PositiveFloat | None = None
    """How many times smaller than it."""

    @field_validator("size", "memory")
    @classmethod
    def _check_unit(cls, given: int | None, field: ValidationInfo) -> int | None:
        """Refuse `size: 5`, which means five bytes."""
        if given is not None and given < LEAST_SIZE:
            raise ValueError(f"{given} bytes are less than any model; give the unit: {field.field_name}: {given}MB")
        return given

    @field_validator("p50", "p95", "end_to_end")
    @classmethod
    def _check_time(cls, given: float | None, field: ValidationInfo) -> float | None:
        """Refuse `p50: 0.5us`: the fastest student without attention takes 0.016 ms a call."""
        if given is not None and given < LEAST_TIME:
            example = f"{field.field_name}: 0.5ms is half a millisecond"
            raise ValueError(f"no model answers in {given:g} ms; the fastest take 0.015 ms ({example})")
        return given

    @model_validator(mode="after")
    def _check_limits(self) -> Budget:
        if all(value is None for name, value in self if name != "target"):
            raise ValueError("give at least one limit: p50: 0.5ms, p95: 1ms, size: 5MB, speedup: 12, smaller: 20")
        return self


class Publish(ShortForm):
    """The zoo that winners go to: a folder, or a place that fsspec reaches (`s3://bucket/zoo`)."""

    short_key = "to"
    """`publish: zoo/`"""
    to: PathText
    name: FileName | None = None
    """By default the recipe's name."""
    license: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")] | None = None
    """The identifier of the licence of your model for its card (`mit`, `other`); none is stated unless given."""
    language: Annotated[tuple[Annotated[str, Field(pattern=r"^[a-z]{2,3}$")], ...], as_list] = ()
    """The codes of the texts' languages for the card (`en`)."""


def _as_written(students: tuple[AnyStudent, ...]) -> Any:
    """Return a student alone as its section, several as a list."""
    dumped = [student.model_dump(mode="json") for student in students]
    return dumped if len(dumped) > 1 else dumped[0] if dumped else None


class Recipe(RecipeFile):
    """A complete pipeline. Every section except task and teacher is optional."""

    model_config = ConfigDict(serialize_by_alias=True)
    recipe_kind = TASK
    minimum: ClassVar = {"task": "sst2", "teacher": "minilm-l6"}
    version: Literal[1] = 1
    name: FileName = "run"
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**31)] = 0
    task: Task
    teacher: Teacher
    finetune: Annotated[Finetune | Literal[False], switched] = Finetune()
    students: Annotated[
        tuple[AnyStudent, ...],
        as_list,
        BeforeValidator(lambda value: () if value is None else value),
        PlainSerializer(_as_written),
    ] = Field((), alias="student")
    """What learns from the teacher: a student of the transformer's kind, after which pruning goes on, and any number
    of others (`static`, `conv`, and `part` of the shared student)."""
    shared: Shared = Shared()
    """The student that all students of the kind `part` are parts of."""
    distill: Annotated[Distill | Literal[False], switched] = Distill()
    prune: Prune | None = None
    quantize: Quantize | None = None
    export: Annotated[tuple[Export, ...], as_list] = (Export(format="onnx"),)
    variants: Annotated[tuple[Annotated[str, name_in("variants")], ...], as_list] = ()
    """Variants that compete in addition to those of the devices, `export` and `quantize`: `torch-compiled`."""
    cascade: Literal["auto"] | Annotated[tuple[Cascade, ...], as_list] = ()
    """Cascades of two models of the run; `auto`: of each student without attention and the transformers it learns
    beside."""
    gate: Gate = Gate()
    targets: Annotated[tuple[Target, ...], as_list] = Field((Target(device="cpu"),), min_length=1)
    budget: Annotated[tuple[Budget, ...], as_list] = ()
    rank_by: Literal["p50", "p95", "p99", "size", "end_to_end", "score"] = "p50"
    """What the winner has least of, among those that pass the gate within the budget; with `score`, the best on select
    wins. `end_to_end`: the median time from text to answer, tokenizing included, which is most of a small model's."""
    runs_in: Annotated[tuple[Annotated[str, AfterValidator(check_runs_in)], ...], as_list] = ()
    """Where else the winner must run: `web` (transformers.js in browsers), `onnxruntime-1.20` or any other release."""
    measure: Measure = Measure()
    publish: Publish | None = None
    probe: Flag = False
    """Also probe the encoder and every model: what their layers know of the task, what heads attend to, and what each
    step changed. It is a page of its own, beside the report."""
    service: PathText | None = None
    """The service.json of `compress label`: the report then compares with the service whose answers are learned."""
    track: Annotated[str, name_in("trackers")] | None = None
    """An experiment tracker supported by Accelerate (`tensorboard`, `wandb`, `mlflow` …)."""

    @property
    def student(self) -> Student | None:
        """The student that is a transformer."""
        return next((each for each in self.students if isinstance(each, Student)), None)

    @property
    def light_students(self) -> dict[str, LightStudent]:
        """The students without attention, by the names of their models: `static`, `static-2`, `conv`."""
        named: dict[str, LightStudent] = {}
        for each in (each for each in self.students if isinstance(each, LightStudent)):
            number = 1 + sum(other.kind == each.kind for other in named.values())
            named[each.kind if number == 1 else f"{each.kind}-{number}"] = each
        return named

    @property
    def parts(self) -> dict[str, Part]:
        """The parts of the shared student, by the names of their models: `part-3x6x768`."""
        return {each.name: each for each in self.students if isinstance(each, Part)}

    def with_student(self, student: Student | None) -> Recipe:
        """Return the recipe with another student of the transformer's kind, or without one."""
        others = tuple(each for each in self.students if not isinstance(each, Student))
        return self.model_copy(update={"students": (*([student] if student else []), *others)})

    @model_validator(mode="after")
    def _check_distinct_targets(self) -> Recipe:
        titles = [target.title for target in self.targets]
        if len(set(titles)) < len(titles):
            raise ValueError(f"targets: two of {', '.join(titles)} are called the same; give them names")
        for budget in self.budget:
            if budget.target is not None and budget.target not in titles:
                raise ValueError(f"budget: no target is called '{budget.target}'{nearest(budget.target, titles)}")
        return self

    @field_validator("export")
    @classmethod
    def _check_distinct_formats(cls, export: tuple[Export, ...]) -> tuple[Export, ...]:
        formats = [each.format for each in export]
        if repeated := next((name for name in formats if formats.count(name) > 1), None):
            raise ValueError(f"{repeated} is named twice")
        return export

    @property
    def task_title(self) -> str:
        """What reports and published models call the task: by its own name, else by the recipe's."""
        return self.task.name or self.name
