"""Rows of a file that is one JSON document: SQuAD's articles, ReQA's questions and candidates, lists and columns.

Unlike every other format a document is read into memory at once, at several times the size of the unpacked file. Larger
data belongs in a jsonl or parquet file.
"""

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

TYPE_NAMES = {dict: "object", list: "list", str: "text", bool: "boolean", type(None): "null"}
"""JSON's names of Python's types; all others are numbers."""


def document_rows(path: Path, encoding: str, role: str) -> Iterator[RawRow]:
    """Return the rows of one document; of shared candidates, `corpus` gets the candidates, others the questions."""
    document = read_document(path, encoding)
    if isinstance(document, list):
        return (RawRow(where, row) for where, row in _objects(document, str(path), "row"))
    if "data" in _checked(document, dict, str(path)):
        return _article_rows(path, document)
    columns = {name: _field(document, name, list, str(path)) for name in document}
    if all(name in columns for name in REQA_KEYS):
        if role != "corpus":
            return _question_rows(path, columns)
        candidates = enumerate(columns["candidates"], 1)
        return (RawRow(f"{path}, candidate {number}", {"text": text}) for number, text in candidates)
    return _column_rows(path, columns)


def read_document(path: Path, encoding: str) -> Any:
    """Return the document, or raise a DataError that says where it stops being JSON."""
    text = "".join(text_lines(path, encoding, newline="\n"))
    if not text.strip():
        raise DataError(f"{path} is empty.")
    try:
        return json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not a JSON document: {error}; it may be cut off.", hint=SHAPES) from error


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of these pairs; a duplicate key would lose a value, so it is an error."""
    values = dict(pairs)
    if len(values) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} occurs twice")
    return values


def _article_rows(path: Path, document: Mapping[str, Any]) -> Iterator[RawRow]:
    """Yield one row per question, with its paragraph."""
    for in_article, article in _objects(_field(document, "data", list, str(path)), str(path), "article"):
        shared = {"title": article.get("title", ""), "is_impossible": False}
        for in_paragraph, part in _objects(_field(article, "paragraphs", list, in_article), in_article, "paragraph"):
            context = _field(part, "context", object, in_paragraph)
            for where, question in _objects(_field(part, "qas", list, in_paragraph), in_paragraph, "question"):
                yield RawRow(where, {**shared, **question, "context": context})


def _column_rows(path: Path, columns: Mapping[str, list[Any]]) -> Iterator[RawRow]:
    _same_length(columns, path)
    for number, values in enumerate(zip(*columns.values(), strict=True), 1):
        yield RawRow(f"{path}, row {number}", dict(zip(columns, values, strict=True)))


def _question_rows(path: Path, columns: Mapping[str, list[Any]]) -> Iterator[RawRow]:
    """Yield each question with the texts of the candidates that answer it."""
    questions, candidates, truths = (columns[name] for name in REQA_KEYS)
    _same_length({"questions": questions, "ground_truths": truths}, path)
    for number, (question, indices) in enumerate(zip(questions, truths, strict=True), 1):
        where = f"{path}, question {number}"
        numbers = _checked(indices, list, f"{where}: its ground truth")
        wrong = [index for index in numbers if type(index) is not int or not 0 <= index < len(candidates)]
        if wrong:
            raise DataError(
                f"{where}: its ground truth {str(wrong[0])[:40]!r} is none of {len(candidates)} candidates."
            )
        yield RawRow(where, {"question": question, "answers": [candidates[index] for index in numbers]})


def _same_length(columns: Mapping[str, Sequence[Any]], path: Path) -> None:
    if len({len(column) for column in columns.values()}) > 1:
        lengths = ", ".join(f"{name} {len(column):,}" for name, column in columns.items())
        raise DataError(f"{path}: its lists have different lengths ({lengths}), so they are no columns of one table.")


def _objects(entries: Sequence[Any], where: str, item: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects in a list, each with its location: ``where`` and the number of the ``item``."""
    for number, entry in enumerate(entries, 1):
        location = f"{where}, {item} {number}"
        yield location, _checked(entry, dict, location)


def _field(values: Mapping[str, Any], name: str, kind: type, where: str) -> Any:
    if name not in values:
        raise DataError(f"{where} has no '{name}'; it has {', '.join(map(repr, values)) or 'nothing'}.", hint=SHAPES)
    return _checked(values[name], kind, f"{where}: '{name}'")


def _checked(value: Any, kind: type, where: str) -> Any:
    if not isinstance(value, kind):
        given = TYPE_NAMES.get(type(value), "number")
        raise DataError(f"{where} is a JSON {given} where a JSON {TYPE_NAMES[kind]} is expected.", hint=SHAPES)
    return value
