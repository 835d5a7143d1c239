"""A corpus as pieces in memory-mapped files: documents are streamed once, and then read a batch at a time."""

import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from compress.data.loading.hub_datasets import hub_rows
from compress.data.loading.raw_rows import file_rows
from compress.data.loading.text_decoding import text_lines
from compress.errors import DataError, nearest, pluralize
from compress.pretrain.pretrain_schema import Text
from compress.recipe.task_schema import Data
from compress.storage.mapped_arrays import ArrayWriter, MappedArray
from compress.tasks import RawRow
from compress.tasks.parsing.columns import column_names

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
            f"{path}: unknown file name extension (known: {known}, all but parquet also with .gz).",
            hint=f"set text.format: {', '.join(FORMATS)}",
        )
    return EXTENSIONS[extension]


def _file_documents(path: Path, text: Text) -> Iterator[Document]:
    form = text.format or format_of(path)
    if form == "txt":
        return _plain_documents(path, text.encoding)
    data = Data(format="jsonl" if form == "jsonl" else "parquet", encoding=text.encoding)
    return (_read_row(row, text.column) for row in file_rows(path, data, "unlabelled", [text.column]))


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
    return (_read_row(row, text.column) for row in hub_rows(data, text.split, names=False, columns=[text.column]))


def _read_row(row: RawRow, column: str) -> Document:
    """Return the sentences of a row; its text may be a list of them."""
    if row.fault is not None:
        raise row.fault
    if column not in row.values:
        raise DataError(
            f"{row.where} has no column '{column}'{nearest(column, column_names(row.values))}.",
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


CorpusPart = Literal["train", "select", "held_out"]
"""`select` chooses the best weights of a training, and `held_out` is what these are reported by."""
SCORED_PARTS: tuple[CorpusPart, ...] = ("select", "held_out")
PARTS: tuple[CorpusPart, ...] = ("train", *SCORED_PARTS)

PIECES, WORD_STARTS, SENTENCES, DOCUMENTS = "pieces", "word_starts", "sentences", "documents"
COLUMNS: Mapping[str, int] = {PIECES: 1, WORD_STARTS: 1, SENTENCES: 2, DOCUMENTS: 2}
"""The fields of a part: a file each, with this many numbers in an entry. Sentences: their first piece and the one after
their last. Documents: the number of sentences up to their end, and their number in the corpus."""
CORPUS_FILE = "corpus.json"
CHARACTERS_AT_ONCE = 1_000_000
"""Documents are tokenized together until they have so many characters."""


class Corpus:
    """One part of a corpus that `write_corpus` wrote."""

    def __init__(self, folder: Path, part: CorpusPart) -> None:
        self.info: dict[str, Any] = json.loads((folder / CORPUS_FILE).read_bytes())
        dtypes: dict[str, str] = self.info["dtypes"]
        fields = {name: MappedArray(_path(folder, part, name), dtypes[name], COLUMNS[name]) for name in COLUMNS}
        self.pieces, self.word_starts = fields[PIECES], fields[WORD_STARTS]
        self.sentences, self.documents = fields[SENTENCES], fields[DOCUMENTS]
        self._fields = fields

    def document_of(self, pieces: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number in the corpus of the documents that these pieces belong to."""
        sentences = np.searchsorted(self.sentences.values[:, 0], pieces, side="right") - 1
        found = np.searchsorted(self.documents.values[:, 0], sentences, side="right")
        numbers: NDArray[np.int64] = self.documents.values[found, 1]
        return numbers

    def digest(self) -> str:
        """Return a digest of everything in this part."""
        digest = hashlib.sha256()
        for field in self._fields.values():
            for block in field.blocks():
                digest.update(np.ascontiguousarray(block).data)
        return digest.hexdigest()

    def release(self) -> None:
        """Release the pages that were read."""
        for field in self._fields.values():
            field.release()


def write_corpus(
    documents: Iterable[Document], tokenizer: Tokenizer, separator: int, held_out: float, seed: int, folder: Path
) -> dict[str, Any]:
    """Tokenize documents into ``folder``; a hash of each one's text decides which part it belongs to.

    ``held_out`` is the share of `select` and `held_out` together.

    Returns what corpus.json holds: the numbers of documents, sentences and pieces of each part.
    """
    vocabulary = tokenizer.get_vocab_size()
    dtypes = {PIECES: "<u2" if vocabulary <= 1 << 16 else "<i4", WORD_STARTS: "u1", SENTENCES: "<i8", DOCUMENTS: "<i8"}
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as files:
        writers = {part: _PartWriter(folder, part, dtypes, separator, files) for part in PARTS}
        for group in _groups(documents):
            encoded = iter(tokenizer.encode_batch(list(_texts(group)), add_special_tokens=False))
            for number, document in group:
                writers[part_of(document, held_out, seed)].add(number, [next(encoded) for _ in document])
    info = {"schema_version": 1, "vocabulary": vocabulary, "dtypes": dtypes}
    info |= {part: writer.counts for part, writer in writers.items()}
    _check(info)
    (folder / CORPUS_FILE).write_text(json.dumps(info, indent=1) + "\n", encoding="utf-8")
    return info


def part_of(document: Document, held_out: float, seed: int) -> CorpusPart:
    """Return the part that a document belongs to: always the same one for the same text, so copies stay together."""
    code = seed
    for sentence in document:
        code = zlib.crc32(sentence.encode(errors="surrogatepass"), code)
    place = zlib.crc32(code.to_bytes(4, "little")) / 2**32
    if place >= held_out:
        return "train"
    return "select" if place < held_out / 2 else "held_out"


def _groups(documents: Iterable[Document]) -> Iterator[list[tuple[int, Document]]]:
    """Yield numbered documents in groups that are tokenized together."""
    group, characters = list[tuple[int, Document]](), 0
    for number, document in enumerate(documents):
        group.append((number, document))
        characters += sum(map(len, document))
        if characters >= CHARACTERS_AT_ONCE:
            yield group
            group, characters = [], 0
    yield group


def _texts(group: Iterable[tuple[int, Document]]) -> Iterator[str]:
    """Yield the sentences as they are in a running text: with a space before all but the first of a document."""
    return chain.from_iterable((document[0], *(f" {rest}" for rest in document[1:])) for _, document in group)


def _check(info: Mapping[str, Any]) -> None:
    """Refuse a corpus without documents in one of its parts."""
    empty = [part for part in PARTS if not info[part]["documents"]]
    if len(empty) == len(PARTS):
        raise empty_corpus()
    if empty:
        total = sum(info[part]["documents"] for part in PARTS)
        uses = ("to train on", "to choose the best weights by", "to report them by")
        missing = " and ".join(use for part, use in zip(PARTS, uses, strict=True) if part in empty)
        raise DataError(
            f"of {pluralize(total, 'document')} none is left {missing}.",
            hint=f"a {'smaller' if 'train' in empty else 'larger'} text.held_out, of which one half of the documents"
            " chooses and the other reports; or more documents (in a txt file an empty line ends one)",
        )


def _path(folder: Path, part: CorpusPart, field: str) -> Path:
    return folder / f"{part}-{field}.bin"


class _PartWriter:
    """Writes the fields of one part."""

    def __init__(
        self, folder: Path, part: CorpusPart, dtypes: Mapping[str, str], separator: int, files: ExitStack
    ) -> None:
        writers = ((name, ArrayWriter(_path(folder, part, name), dtypes[name])) for name in COLUMNS)
        self._fields = {name: files.enter_context(writer) for name, writer in writers}
        self._separator = separator
        self.counts = {"documents": 0, "sentences": 0, "pieces": 0}

    def add(self, number: int, sentences: Iterable[Any]) -> None:
        """Append a document; sentences without a piece (odd characters alone) are left out."""
        pieces, starts, places = list[int](), list[int](), list[int]()
        first = self.counts["pieces"]
        for sentence in sentences:
            if not sentence.ids:
                continue
            places += first + len(pieces), first + len(pieces) + len(sentence.ids)
            pieces += sentence.ids
            words = sentence.word_ids
            starts += [1, *(int(word != before) for before, word in pairwise(words))]
        if not pieces:
            return
        pieces.append(self._separator)
        starts.append(1)
        self.counts["documents"] += 1
        self.counts["sentences"] += len(places) // 2
        self.counts["pieces"] += len(pieces)
        row = {PIECES: pieces, WORD_STARTS: starts, SENTENCES: places, DOCUMENTS: [self.counts["sentences"], number]}
        for name, values in row.items():
            self._fields[name].extend(values)
