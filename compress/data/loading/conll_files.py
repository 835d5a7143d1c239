"""Rows of CoNLL files: a word and its tags per line, and an empty line after each sentence, which is a row."""

from collections.abc import Iterator
from pathlib import Path

from compress.data.loading.text_decoding import text_lines
from compress.errors import DataError, pluralize
from compress.recipe.field_types import Header
from compress.tasks.base import RawRow

WORDS, TAGS = "tokens", "tags"
"""Names of the first and the last column, besides their numbers, where no header names them."""
NEW_DOCUMENT = "-DOCSTART-"

Sentence = dict[int, list[str]]
"""The columns of each word by its line in the file."""


def sentence_rows(path: Path, encoding: str, header: Header, tagged: bool = True) -> Iterator[RawRow]:
    """Yield a row per sentence, a list per column. Columns are `tokens` (first), `tags` (last), and 0, 1, 2 and so on.

    Without ``tagged``, lines may hold a word alone.
    """
    columns = 0
    for number, sentence in enumerate(_sentences(path, encoding), 1):
        for line, fields in sentence.items():
            columns = columns or len(fields)
            _check_columns(len(fields), columns, header, f"{path}, line {line}", least=2 if tagged else 1)
        lists = list(map(list, zip(*sentence.values(), strict=True)))
        names = header if isinstance(header, tuple) else map(str, range(columns))
        ends = {} if isinstance(header, tuple) else {WORDS: lists[0], TAGS: lists[-1]}
        yield RawRow(f"{path}, row {number} (line {min(sentence)})", {**ends, **dict(zip(names, lists, strict=True))})


def _sentences(path: Path, encoding: str) -> Iterator[Sentence]:
    """Yield the words of each sentence; a document separator ends a sentence and belongs to none."""
    sentence: Sentence = {}
    for number, line in enumerate(text_lines(path, encoding, newline="\n"), 1):
        text = line.rstrip("\r\n")
        fields = text.split("\t") if "\t" in text else [field for field in text.split(" ") if field]
        if text.strip() and fields[0] != NEW_DOCUMENT:
            sentence[number] = fields
        elif sentence:
            yield sentence
            sentence = {}
    if sentence:
        yield sentence


def _check_columns(count: int, columns: int, header: Header, where: str, least: int) -> None:
    if columns < least:
        raise DataError(f"{where} has 1 column where a word and its tag are expected, with a tab or spaces between.")
    if count != columns:
        hint = "a word has lost its tag, or has white space in it"
        raise DataError(f"{where} has {pluralize(count, 'column')} where the lines before have {columns}.", hint=hint)
    if isinstance(header, tuple) and len(header) != columns:
        raise DataError(f"{where} has {columns} columns where task.data.header names {len(header)}.")
