"""Documents of a corpus, streamed: each a list of sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from compress.data.loading.hub_datasets import hub_rows
from compress.data.loading.raw_rows import file_rows
from compress.data.loading.text_decoding import text_lines
from compress.errors import DataError, nearest
from compress.recipe.pretrain_schema import Text
from compress.recipe.task_schema import Data
from compress.tasks import RawRow

Document = list[str]
"""The sentences of one document, in order."""

SENTENCE_END = re.compile(r"(?:(?<=[.!?…。！？])|(?<=[.!?…。！？][\"'”’)\]]))\s+(?=[^a-z\s])")
"""Where a sentence ends: an ending mark, maybe a quote, white space, and no lower-case letter after it. Abbreviations
end some too early, which matters little here: sentences are what sequences are packed from."""

FORMATS = ("txt", "jsonl", "parquet")
LONGEST_DOCUMENT = 100_000
"""Characters after which a document of a txt file ends with its line, and a longer line is cut: a file without empty
lines is not held whole in memory."""
EXTENSIONS = {"txt": "txt", "text": "txt", "jsonl": "jsonl", "ndjson": "jsonl", "parquet": "parquet"}


def documents(text: Text) -> Iterator[Document]:
    """Yield the documents of a corpus that have any text, at most `text.limit`."""
    rows = chain.from_iterable(_file_documents(Path(file), text) for file in text.files or ())
    found = _hub_documents(text) if text.hub else rows
    yield from islice((document for document in found if document), text.limit)


def sentences_of(text: str) -> Document:
    """Return the sentences of a text; a line break ends one too."""
    pieces = chain.from_iterable(SENTENCE_END.split(line) for line in text.splitlines())
    return [sentence for piece in pieces if (sentence := piece.strip())]


def empty_corpus() -> DataError:
    """Return the error for a corpus without any text."""
    return DataError("the corpus is empty: it has no text.", hint="text.files and text.column name the texts")


def format_of(path: Path) -> str:
    """Return the format by a file's name, without `.gz`."""
    extension = (path.with_suffix("") if path.suffix == ".gz" else path).suffix.removeprefix(".")
    if extension not in EXTENSIONS:
        known = ", ".join(f".{known}" for known in EXTENSIONS)
        raise DataError(
            f"{path}: unknown file name extension (known: {known}, each also with .gz).",
            hint=f"set text.format: {', '.join(FORMATS)}",
        )
    return EXTENSIONS[extension]


def _file_documents(path: Path, text: Text) -> Iterator[Document]:
    form = text.format or format_of(path)
    if form == "txt":
        return _plain_documents(path, text.encoding)
    data = Data(format="jsonl" if form == "jsonl" else "parquet", encoding=text.encoding)
    return (_read_row(row, text.column) for row in file_rows(path, data, "unlabelled"))


def _plain_documents(path: Path, encoding: str) -> Iterator[Document]:
    """Yield the documents of a text file: they end at an empty line, or after `LONGEST_DOCUMENT` characters."""
    document, characters = Document(), 0
    for line in text_lines(path, encoding, newline="\n", longest=LONGEST_DOCUMENT):
        document += sentences_of(line)
        characters += len(line)
        if document and (not line.strip() or characters >= LONGEST_DOCUMENT):
            yield document
            document, characters = [], 0
    yield document


def _hub_documents(text: Text) -> Iterator[Document]:
    data = Data(hub=text.hub, revision=text.revision)
    return (_read_row(row, text.column) for row in hub_rows(data, text.split, names=False))


def _read_row(row: RawRow, column: str) -> Document:
    """Return the sentences of a row; its text may be a list of them."""
    if column not in row.values:
        raise DataError(
            f"{row.where} has no column '{column}'{nearest(column, list(row.values))}.",
            hint="text.column names the column of texts",
        )
    value = row.values[column]
    if value is None:
        return []
    if isinstance(value, list) and all(isinstance(sentence, str) for sentence in value):
        return list(chain.from_iterable(map(sentences_of, value)))
    if not isinstance(value, str):
        raise DataError(f"{row.where}: '{column}' should be a text, got {str(value)[:40]}.")
    return sentences_of(value)
