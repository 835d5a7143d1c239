"""The files of a recipe's data, and a digest of their contents for fingerprints."""

import hashlib
from collections.abc import Collection, Iterator
from pathlib import Path

from compress.console import Console
from compress.data.loading.quickstart_dataset import builtin_file
from compress.data.loading.raw_rows import format_of
from compress.data.loading.text_decoding import check_text
from compress.errors import DataError, Problem, nearest_file
from compress.recipe.field_types import Part, Role
from compress.recipe.task_schema import Data
from compress.storage.file_digests import file_digest
from compress.storage.file_names import expanded_user

ROLES: tuple[Role, ...] = ("train", "select", "test")
PARTS: tuple[Part, ...] = (*ROLES, "corpus", "unlabelled")
"""Keys of task.data that name files or splits."""

STEP_PARTS: tuple[Part, ...] = (*ROLES, "corpus")
"""Parts that the data step reads: unlabelled texts are read separately, for distillation alone."""


def source_entries(data: Data, part: Part) -> tuple[str, ...]:
    """Return what the recipe gives for a role, the corpus or as unlabelled: files, or splits of a hub set."""
    given: str | tuple[str, ...] | None = getattr(data, part)
    return () if given is None else (given,) if isinstance(given, str) else given


def describe_source(data: Data, part: Part) -> str:
    """Return `test (dev.tsv)`: a role, the corpus or the unlabelled texts, with what the recipe gives for it."""
    given = source_entries(data, part)
    return f"{part} ({', '.join(given)})" if given else part


def part_files(data: Data, part: Part) -> tuple[Path, ...]:
    """Return the files of one part, none for a hub set; for a missing one the error names the most similar file."""
    entries = () if data.hub is not None else source_entries(data, part)
    return tuple(_existing(expanded_user(entry), part) for entry in entries)


def file_problems(data: Data) -> Iterator[Problem]:
    """Yield each part of the data that names a file which does not exist."""
    for part in PARTS:
        try:
            part_files(data, part)
        except DataError as error:
            yield Problem(("task", "data", part), error.message.removeprefix(f"task.data.{part}: "))


def find_files(data: Data) -> dict[Role, tuple[Path, ...]]:
    """Return the files of each role that has any."""
    return {role: files for role in ROLES if (files := part_files(data, role))}


def contents_digest(data: Data, parts: Collection[Part] = STEP_PARTS) -> str:
    """Return one digest of everything that the rows of ``parts`` are read from: contents of files, never their paths.

    Text files are checked for bytes that are not in the recipe's encoding, since all of them are read here. A hub set
    is identified by its id, revision and splits.
    """
    digest = hashlib.sha256()
    for line in _identity(data, parts):
        digest.update(f"{line}\n".encode())
    return digest.hexdigest()


def _identity(data: Data, parts: Collection[Part]) -> list[str]:
    given = [part for part in PARTS if part in parts]
    if data.hub is not None:
        splits = [f"{part} {entry}" for part in given for entry in source_entries(data, part)]
        return [f"hub {data.hub} {data.revision or 'main'}", *splits]
    lines = []
    if data.builtin is not None:
        lines = [f"builtin {data.builtin} {file_digest(builtin_file(data.builtin, Console('quiet')))}"]
    files = [(part, path) for part in given for path in part_files(data, part)]
    for _, path in files:
        check_encoding(path, data)
    return lines + [f"{part} {data.format or ''.join(path.suffixes)} {file_digest(path)}" for part, path in files]


def check_encoding(path: Path, data: Data) -> None:
    """Refuse a text file that holds bytes which are not in the encoding that the recipe names."""
    if (data.format or format_of(path)) != "parquet":
        check_text(path, data.encoding)


def _existing(path: Path, part: Part) -> Path:
    try:
        if path.is_file():
            return path
        if path.is_dir():
            problem = f"{path} is a folder where a file is expected"
        elif not path.parent.is_dir():
            problem = f"there is no file {path}, and no folder {path.parent} either"
        else:
            problem = f"there is no file {path}{nearest_file(path, [entry.name for entry in path.parent.iterdir()])}"
    except (OSError, ValueError) as error:  # a name that is too long, or no name at all
        problem = f"{str(path)[:80]} cannot be opened: {error}"
    raise DataError(f"task.data.{part}: {problem}.")
