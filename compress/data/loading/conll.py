"""Sentences from CoNLL files: a word and its tags per line, and an empty line after each sentence."""

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
"""Names of the first and the last column, besides their numbers, where no header names them."""
NEW_DOCUMENT = "-DOCSTART-"
SPACES = re.compile(r" +")


class WordLine(NamedTuple):
    """A line that holds a word."""

    number: int
    """Line in the file, from 1."""
    fields: Sequence[str]


def sentence_rows(path: Path, encoding: str, header: Header, tagged: bool = True) -> Iterator[RawRow]:
    """Yield a row per sentence, a list per column. Columns are `tokens` (first), `tags` (last), and 0, 1, 2 and so on.

    Without ``tagged``, lines may hold a word alone.
    """
    columns = 0
    for number, sentence in enumerate(_sentences(path, encoding), 1):
        columns = columns or len(sentence[0].fields)
        for word in sentence:
            _check(word, columns, header, path, least=2 if tagged else 1)
        lists = list(zip(*(word.fields for word in sentence), strict=True))
        yield RawRow(f"{path}, row {number} (line {sentence[0].number})", _named(lists, header))


def _sentences(path: Path, encoding: str) -> Iterator[list[WordLine]]:
    """Yield the words of each sentence; a document separator ends a sentence and belongs to none."""
    sentence: list[WordLine] = []
    for number, line in enumerate(text_lines(path, encoding, newline="\n"), 1):
        fields = _fields(line)
        if fields and fields[0] != NEW_DOCUMENT:
            sentence.append(WordLine(number, fields))
        elif sentence:
            yield sentence
            sentence = []
    if sentence:
        yield sentence


def _fields(line: str) -> list[str]:
    """Return the columns of a line, separated by tabs where it has any, else by spaces; none for an empty line."""
    text = line.rstrip("\r\n")
    if not text.strip():
        return []
    return text.split("\t") if "\t" in text else SPACES.split(text.strip(" "))


def _check(word: WordLine, columns: int, header: Header, path: Path, least: int) -> None:
    where, count = f"{path}, line {word.number}", len(word.fields)
    if columns < least:
        raise DataError(f"{where} has 1 column where a word and its tag are expected, with a tab or spaces between.")
    if count != columns:
        raise DataError(
            f"{where} has {pluralize(count, 'column')} where the lines before have {columns}.",
            hint=_hint(count, columns),
        )
    if isinstance(header, tuple) and len(header) != columns:
        raise DataError(f"{where} has {columns} columns where task.data.header names {len(header)}.")


def _hint(count: int, columns: int) -> str:
    fewer = "a word has lost its tag, or the file is cut off"
    return fewer if count < columns else "words cannot contain white space"


def _named(lists: Sequence[Sequence[str]], header: Header) -> Mapping[str, list[str]]:
    if isinstance(header, tuple):
        return {name: list(values) for name, values in zip(header, lists, strict=True)}
    numbered = {str(index): list(values) for index, values in enumerate(lists)}
    return {WORDS: list(lists[0]), TAGS: list(lists[-1]), **numbered}
