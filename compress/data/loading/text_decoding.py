"""Bytes to lines: gzip, encodings and byte order marks, with errors that name the file and the line."""

from __future__ import annotations

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from compress.errors import DataError

GZIP_MAGIC = b"\x1f\x8b"

UNDECODED = re.compile("[\udc80-\udcff]")
"""How Python marks bytes that are no text in the given encoding (PEP 383)."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what can go wrong with the bytes of ``path`` into a DataError."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is broken gzip: {error}", hint="it may be cut off; fetch it again") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error


def text_lines(path: Path, encoding: str, newline: str) -> Iterator[str]:
    """The lines of a text file with their ends, gzip or not; bytes that are no text are an error at their line.

    ``newline`` says what ends a line, as in ``open``: a lone carriage return within a text must not.
    """
    codec = _codec(encoding)
    with reading(path), _opened(path) as stream:
        text = io.TextIOWrapper(stream, encoding=codec, errors="surrogateescape", newline=newline)
        number = 0
        try:
            for number, line in enumerate(text, 1):
                if not line.isascii() and UNDECODED.search(line):
                    raise _undecodable(path, number, line, encoding)
                yield line
        except UnicodeError as error:
            raise DataError(f"{path}: what follows line {number} is not {encoding}: {error}.") from error


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    with path.open("rb") as raw:
        head = raw.read(len(GZIP_MAGIC))
        raw.seek(0)
        if path.suffix == ".gz" and head and head != GZIP_MAGIC:
            raise DataError(f"{path} is called .gz but is not gzip.")
        if head != GZIP_MAGIC:
            yield raw
            return
        with gzip.GzipFile(fileobj=raw) as unpacked:
            yield cast(BinaryIO, unpacked)


def _codec(encoding: str) -> str:
    """The codec; UTF-8 is read in its form that skips a byte order mark."""
    try:
        found = codecs.lookup(encoding)
        "".encode(encoding)
    except LookupError as error:
        raise DataError(f"task.data.encoding: no text encoding is called '{encoding}'.") from error
    return "utf-8-sig" if found.name == "utf-8" else found.name


def _undecodable(path: Path, number: int, line: str, encoding: str) -> DataError:
    column = next(iter(UNDECODED.finditer(line))).start()
    byte = ord(line[column]) - 0xDC00
    return DataError(
        f"{path}, line {number}: byte 0x{byte:02x} at character {column + 1} is not {encoding}.",
        hint="task.data.encoding names another, such as latin-1, cp1252 or utf-16",
    )
