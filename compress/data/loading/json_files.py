"""Rows of a file that is one JSON document: SQuAD's articles, ReQA's questions and candidates, lists and columns.

Unlike every other format a document is read into memory at once, at several times the size of the unpacked file. Larger
data belongs in a jsonl or parquet file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from compress.data.loading.text_decoding import text_lines
from compress.errors import DataError
from compress.tasks.base import RawRow

REQA_KEYS = ("questions", "candidates", "ground_truths")
"""The keys of a document of questions that share their candidates."""

SHAPES = (
    "known: a list of objects, an object of lists of equal length (a column each), SQuAD's articles ({'data': "
    f"[{{'paragraphs': …}}]}}), and questions that share candidates ({', '.join(REQA_KEYS)}); a file with one object a "
    "line is task.data.format: jsonl"
)


def document_rows(path: Path, encoding: str, role: str) -> Iterator[RawRow]:
    """Return the rows of one document; of shared candidates, `corpus` gets the candidates, others the questions."""
    document = read_document(path, encoding)
    if isinstance(document, list):
        return _list_rows(path, document)
    if not isinstance(document, dict):
        raise DataError(f"{path} holds a JSON {_type(document)} where rows are expected.", hint=SHAPES)
    if "data" in document:
        return _article_rows(path, document)
    if all(name in document for name in REQA_KEYS):
        return _candidate_rows(path, document) if role == "corpus" else _question_rows(path, document)
    return _column_rows(path, document)


def read_document(path: Path, encoding: str) -> Any:
    """Return the document, or raise a DataError that says where it stops being JSON."""
    text = "".join(text_lines(path, encoding, newline="\n"))
    if not text.strip():
        raise DataError(f"{path} is empty.")
    try:
        return json.loads(text, object_pairs_hook=unique_keys)
    except json.JSONDecodeError as error:
        ended = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
        if ended:
            raise DataError(
                f"{path} ends in the middle of its JSON document (line {error.lineno}, column {error.colno}).",
                hint="it may be cut off; fetch it again",
            ) from error
        raise DataError(f"{path} is not a JSON document: {error}.", hint=SHAPES) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not a JSON document: {error}.", hint=SHAPES) from error


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of these pairs; a duplicate key would lose a value, so it is an error."""
    values = dict(pairs)
    if len(values) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} occurs twice")
    return values


def _list_rows(path: Path, document: Sequence[Any]) -> Iterator[RawRow]:
    for number, values in enumerate(document, 1):
        where = f"{path}, row {number}"
        yield RawRow(where, _object(values, where))


def _article_rows(path: Path, document: Mapping[str, Any]) -> Iterator[RawRow]:
    """Yield one row per question, with its paragraph."""
    for article, entry in enumerate(_list(document, "data", str(path)), 1):
        in_article = f"{path}, article {article}"
        title = _object(entry, in_article).get("title", "")
        for paragraph, part in enumerate(_list(entry, "paragraphs", in_article), 1):
            in_paragraph = f"{in_article}, paragraph {paragraph}"
            context = _value(_object(part, in_paragraph), "context", in_paragraph)
            for number, question in enumerate(_list(part, "qas", in_paragraph), 1):
                where = f"{in_paragraph}, question {number}"
                row = {"title": title, "is_impossible": False, **_object(question, where), "context": context}
                yield RawRow(where, row)


def _column_rows(path: Path, document: Mapping[str, Any]) -> Iterator[RawRow]:
    columns = {name: _list(document, name, str(path)) for name in document}
    _same_length(columns, path)
    for number, values in enumerate(zip(*columns.values(), strict=True), 1):
        yield RawRow(f"{path}, row {number}", dict(zip(columns, values, strict=True)))


def _question_rows(path: Path, document: Mapping[str, Any]) -> Iterator[RawRow]:
    """Yield each question with the texts of the candidates that answer it."""
    questions, candidates, truths = (_list(document, name, str(path)) for name in REQA_KEYS)
    _same_length({"questions": questions, "ground_truths": truths}, path)
    for number, (question, indices) in enumerate(zip(questions, truths, strict=True), 1):
        where = f"{path}, question {number}"
        if not isinstance(indices, list):
            raise DataError(
                f"{where}: its ground truth is a JSON {_type(indices)} where a list of numbers is expected."
            )
        answers = [_candidate(candidates, index, where) for index in indices]
        yield RawRow(where, {"question": question, "answers": answers})


def _candidate(candidates: Sequence[Any], index: Any, where: str) -> Any:
    if type(index) is not int or not 0 <= index < len(candidates):
        raise DataError(
            f"{where}: its ground truth {str(index)[:40]!r} is none of {len(candidates)} candidates, counted from 0."
        )
    return candidates[index]


def _candidate_rows(path: Path, document: Mapping[str, Any]) -> Iterator[RawRow]:
    for number, text in enumerate(_list(document, "candidates", str(path)), 1):
        yield RawRow(f"{path}, candidate {number}", {"text": text})


def _same_length(columns: Mapping[str, Sequence[Any]], path: Path) -> None:
    if len({len(column) for column in columns.values()}) > 1:
        lengths = ", ".join(f"{name} {len(column):,}" for name, column in columns.items())
        raise DataError(f"{path}: its lists have different lengths ({lengths}), so they are no columns of one table.")


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{where} is a JSON {_type(value)} where an object is expected.", hint=SHAPES)
    return value


def _list(values: Any, name: str, where: str) -> list[Any]:
    value = _value(_object(values, where), name, where)
    if not isinstance(value, list):
        raise DataError(f"{where}: '{name}' is a JSON {_type(value)} where a list is expected.", hint=SHAPES)
    return value


def _value(values: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in values:
        raise DataError(f"{where} has no '{name}'; it has {', '.join(map(repr, values)) or 'nothing'}.", hint=SHAPES)
    return values[name]


def _type(value: Any) -> str:
    names = {dict: "object", list: "list", str: "text", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")
