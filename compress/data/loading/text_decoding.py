"""Bytes to lines: gzip, encodings and byte order marks, with errors that name the file and the line."""

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from compress.errors import DataError

OF_RECIPES, IN_INIT = "task.data.encoding", ", in compress init --encoding"
"""Where an encoding is named, unless a command has an option of its own."""

GZIP_MAGIC = b"\x1f\x8b"

UNDECODED = re.compile("[\udc80-\udcff]")
"""How Python marks bytes that are invalid in the given encoding (PEP 383)."""

CHUNK = 1 << 20
"""Bytes that are decoded at once where lines do not matter."""

BINARY_FORMATS = {
    b"PK\x03\x04": "a zip archive",
    b"PAR1": "a parquet file",
    b"\xfd7zXZ": "an xz archive",
    b"BZh": "a bzip2 archive",
    b"\x28\xb5\x2f\xfd": "a zstd archive",
    b"%PDF": "a PDF document",
}
"""First bytes of files that are not text, regardless of their names."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors of reading the bytes of ``path`` into a DataError."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is broken gzip: {error}", hint="it may be cut off; fetch it again") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error


def check_text(path: Path, encoding: str) -> None:
    """Read a whole text file, and refuse bytes that are not in its encoding as ``text_lines`` does, with their line."""
    decoder = codecs.getincrementaldecoder(_codec(encoding))()
    with reading(path), opened(path) as stream:
        try:
            while chunk := stream.read(CHUNK):
                if "\0" in decoder.decode(chunk):
                    break
            else:
                decoder.decode(b"", final=True)
                return
        except UnicodeError:
            pass
    for _ in text_lines(path, encoding, newline="\n", longest=CHUNK):
        pass


def text_lines(
    path: Path, encoding: str, newline: str, longest: int = -1, *, option: str = OF_RECIPES, mark_invalid: bool = False
) -> Generator[str]:
    """Yield the lines of a text file with their ends, gzip or not; invalid bytes are an error that names their line.

    Args:
        path: of the file.
        encoding: of its text.
        newline: what ends a line, as in ``open``: a lone carriage return within a text must not.
        longest: a line of more characters is yielded in parts, so that none is held whole in memory; -1 for no limit.
        option: where another encoding can be named.
        mark_invalid: invalid bytes are no error but marked (`invalid_byte`).
    """
    codec = _codec(encoding, option)
    with reading(path), opened(path) as stream:
        text = io.TextIOWrapper(stream, encoding=codec, errors="surrogateescape", newline=newline)
        number, begins = 0, True
        try:
            for line in iter(partial(text.readline, longest), ""):
                number, begins = number + begins, line.endswith(("\n", "\r"))
                if not mark_invalid and (invalid := invalid_byte(line)):
                    hint = _encoding_hint(path, option)
                    raise DataError(f"{path}, line {number}: {invalid} is not {encoding}.", hint=hint)
                if "\0" in line:
                    raise DataError(
                        f"{path}, line {number} holds a NUL byte: it is damaged, or no text file.",
                        hint=_encoding_hint(path, option),
                    )
                yield line
        except UnicodeError as error:
            message = f"{path}: the text after line {number} is not {encoding}: {error}."
            raise DataError(message, hint=_encoding_hint(path, option)) from error


INVALID = "byte 0x"
"""How messages about a byte that could not be decoded begin."""


def invalid_byte(text: str) -> str | None:
    """Name the first byte that could not be decoded: `byte 0xe9 at character 12`; None where there is none."""
    invalid = None if text.isascii() else UNDECODED.search(text)
    return invalid and f"{INVALID}{ord(invalid[0]) - 0xDC00:02x} at character {invalid.start() + 1}"


def without_invalid(text: str) -> str:
    """Return text with the replacement character where a byte could not be decoded."""
    return UNDECODED.sub("\ufffd", text)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open the bytes of a text file, unpacked where they are gzip; other binary formats are an error."""
    with path.open("rb") as raw:
        head = raw.peek(8)[:8]
        for magic, name in BINARY_FORMATS.items():
            if head.startswith(magic):
                raise DataError(f"{path} is {name} where a text file is expected.", hint="unpack or convert it first")
        is_gzip = head.startswith(GZIP_MAGIC)
        if path.suffix == ".gz" and head and not is_gzip:
            raise DataError(f"{path} is called .gz but is not gzip.")
        if not is_gzip:
            yield raw
            return
        with gzip.GzipFile(fileobj=raw) as unpacked:
            yield cast(BinaryIO, unpacked)


def _encoding_hint(path: Path, option: str) -> str:
    """Return the option with which the file may be read; UTF-16 is recognised by the first bytes."""
    with opened(path) as stream:
        head = stream.read(4)
    is_utf16 = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in head
    named = "utf-16, as its first bytes look" if is_utf16 else "cp1252 (Windows), latin-1 or utf-16"
    return f"{option} names another encoding{IN_INIT if option == OF_RECIPES else ''}: {named}"


def _codec(encoding: str, option: str = OF_RECIPES) -> str:
    """Return the codec; for UTF-8 the variant that skips a byte order mark."""
    try:
        codec = codecs.lookup(encoding)
        "".encode(encoding)
    except (LookupError, ValueError) as error:
        raise DataError(f"{option}: no text encoding is called {encoding!r}.") from error
    return "utf-8-sig" if codec.name == "utf-8" else codec.name
