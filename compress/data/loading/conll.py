"""Sentences from files of columns: a word a line with its tags beside it, and an empty line behind each sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from compress.data.loading.text_decoding import text_lines
from compress.errors import DataError, pluralize
from compress.recipe.field_types import Header
from compress.tasks.base import RawRow

WORDS, TAGS = "tokens", "tags"
"""What the first column and the last are called, besides their numbers, where no header names them."""
NEW_DOCUMENT = "-DOCSTART-"
SPACES = re.compile(r" +")


class Word(NamedTuple):
    """A line that holds a word."""

    number: int
    """Line in the file, from 1."""
    fields: Sequence[str]


def sentence_rows(path: Path, encoding: str, header: Header, tagged: bool = True) -> Iterator[RawRow]:
    """A row a sentence: a list a column. Columns are called `tokens` (first), `tags` (last), and 0, 1, 2 … each.

    Words that are not ``tagged`` may stand alone.
    """
    columns = 0
    for number, sentence in enumerate(_sentences(path, encoding), 1):
        columns = columns or len(sentence[0].fields)
        for word in sentence:
            _check(word, columns, header, path, least=2 if tagged else 1)
        lists = list(zip(*(word.fields for word in sentence), strict=True))
        yield RawRow(f"{path}, row {number} (line {sentence[0].number})", _named(lists, header))


def _sentences(path: Path, encoding: str) -> Iterator[list[Word]]:
    """The words of each sentence; marks of a new document end one and belong to none."""
    sentence: list[Word] = []
    for number, line in enumerate(text_lines(path, encoding, newline="\n"), 1):
        fields = _fields(line)
        if fields and fields[0] != NEW_DOCUMENT:
            sentence.append(Word(number, fields))
        elif sentence:
            yield sentence
            sentence = []
    if sentence:
        yield sentence


def _fields(line: str) -> list[str]:
    """The columns of a line, between tabs where it has any, else between spaces; none of an empty line."""
    text = line.rstrip("\r\n")
    if not text.strip():
        return []
    return text.split("\t") if "\t" in text else SPACES.split(text.strip(" "))


def _check(word: Word, columns: int, header: Header, path: Path, least: int) -> None:
    where, found = f"{path}, line {word.number}", len(word.fields)
    if columns < least:
        raise DataError(f"{where} has 1 column where a word and its tag are expected, with a tab or spaces between.")
    if found != columns:
        raise DataError(
            f"{where} has {pluralize(found, 'column')} where the lines before have {columns}.",
            hint=_hint(found, columns),
        )
    if isinstance(header, tuple) and len(header) != columns:
        raise DataError(f"{where} has {columns} columns where task.data.header names {len(header)}.")


def _hint(found: int, columns: int) -> str:
    fewer = "a word has lost its tag, or the file is cut off"
    return fewer if found < columns else "a word may not have white space in it"


def _named(lists: Sequence[Sequence[str]], header: Header) -> Mapping[str, list[str]]:
    if isinstance(header, tuple):
        return {name: list(values) for name, values in zip(header, lists, strict=True)}
    numbered = {str(index): list(values) for index, values in enumerate(lists)}
    return {WORDS: list(lists[0]), TAGS: list(lists[-1]), **numbered}
