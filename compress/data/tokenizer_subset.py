"""Rewrites a tokenizer.json for some of its pieces: WordPiece, BPE, Unigram, whole words."""

from __future__ import annotations

import copy
import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from compress.data.tokenizer import TOKENIZER_FILE, read_tokenizer
from compress.errors import ModelError
from compress.recipe.student_schema import Vocabulary

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


MODELS = ("WordPiece", "BPE", "Unigram", "WordLevel")
BYTE = re.compile("<0x[0-9A-F]{2}>")
"""A piece that is one byte of an unknown character."""
RESERVED = re.compile(r"\[unused\d+\]")


class PieceTable:
    """The pieces of a tokenizer.json by id, and what each of them needs."""

    def __init__(self, content: Mapping[str, Any], source: str = "this model") -> None:
        """``content`` is the parsed file and ``source`` the model's name in error messages."""
        self.content, self._model = content, content["model"]
        if self._model.get("type") not in MODELS:
            raise ModelError(
                f"the tokenizer of {source} is a {self._model.get('type')}, whose vocabulary cannot be pruned; possible"
                f" are {', '.join(MODELS)}."
            )
        vocabulary = self._model["vocab"]
        if isinstance(vocabulary, Mapping):
            self.ids: dict[str, int] = dict(vocabulary)
        else:
            self.ids = {piece: index for index, (piece, _) in enumerate(vocabulary)}
        self._added = {token["content"]: int(token["id"]) for token in content["added_tokens"]}
        self._makers = defaultdict[int, list[tuple[int, int]]](list)
        for first, second, made in self._merges():
            self._makers[self.ids[made]].append((self.ids[first], self.ids[second]))

    @property
    def every(self) -> set[int]:
        """The ids of all pieces and added tokens."""
        return {*self.ids.values(), *self._added.values()}

    def required(self) -> set[int]:
        """Return the ids that no text decides about.

        These are added tokens, the unknown piece and those of the template around texts, and every single character or
        byte, with and without the mark of a word's start or end, so that any text can still be tokenized.
        """
        model, required = self._model, {*self._added.values(), *_template_ids(self.content.get("post_processor"))}
        if self.content.get("padding"):
            required.add(self.content["padding"]["pad_id"])
        required |= {self.ids[name] for name in (model.get("unk_token"),) if name in self.ids}
        required |= {index for piece, index in self.ids.items() if self._is_single(piece)}
        if model["type"] == "Unigram":
            scores = [score for _, score in model["vocab"]]
            required.add(scores.index(min(scores)))
            required |= {model["unk_id"]} - {None}
        return {part for index in required for part in self.with_parts(index)}

    def reserved(self) -> set[int]:
        """Return the ids of BERT's placeholders (`[unused7]`), which stand for no text."""
        return {index for piece, index in self.ids.items() if RESERVED.fullmatch(piece)}

    def with_parts(self, index: int) -> set[int]:
        """Return a piece and all pieces that the merges need which make it."""
        parts, waiting = set[int](), [index]
        while waiting:
            piece = waiting.pop()
            if piece not in parts:
                parts.add(piece)
                waiting += [part for pair in self._makers.get(piece, ()) for part in pair]
        return parts

    def ordered(self, kept: Collection[int]) -> list[int]:
        """Return kept ids in the order of their new ids: as before, added tokens outside the table last."""
        own = set(self.ids.values())
        return sorted(kept, key=lambda index: (index not in own, index))

    def subset(self, kept: Collection[int]) -> dict[str, Any]:
        """Return the content of the tokenizer.json of these pieces, which have what `with_parts` returns of each."""
        new = {old: index for index, old in enumerate(self.ordered(kept))}
        content = copy.deepcopy(dict(self.content))
        model = content["model"]
        if isinstance(model["vocab"], Mapping):
            pieces = [(piece, new[old]) for piece, old in self.ids.items() if old in new]
            model["vocab"] = dict(sorted(pieces, key=lambda entry: entry[1]))
        else:
            model["vocab"] = [entry for index, entry in enumerate(model["vocab"]) if index in new]
            model["unk_id"] = new.get(model["unk_id"])
        if "merges" in model:
            triples = zip(model["merges"], self._merges(), strict=True)
            model["merges"] = [merge for merge, pieces in triples if all(self.ids[piece] in new for piece in pieces)]
        content["added_tokens"] = sorted(
            ({**token, "id": new[token["id"]]} for token in content["added_tokens"]), key=lambda token: token["id"]
        )
        if content.get("padding"):
            content["padding"]["pad_id"] = new[content["padding"]["pad_id"]]
        _renumber_template(content.get("post_processor"), new)
        return content

    def _merges(self) -> Iterator[tuple[str, str, str]]:
        """Yield both parts of every merge, and what they make."""
        continued = len(self._model.get("continuing_subword_prefix") or "")
        for merge in self._model.get("merges", ()):
            first, second = merge.split(" ") if isinstance(merge, str) else merge
            yield first, second, first + second[continued:]

    def _is_single(self, piece: str) -> bool:
        """Return whether a piece is one character or byte, apart from the mark of its position in a word."""
        core = piece.removeprefix(self._model.get("continuing_subword_prefix") or "")
        core = core.removesuffix(self._model.get("end_of_word_suffix") or "")
        return len(core) == 1 or BYTE.fullmatch(piece) is not None


def select_pieces(table: PieceTable, counts: NDArray[np.int64], rule: Vocabulary, special: set[int]) -> set[int]:
    """Return the ids that stay: ``special`` ones, those that every text may need, and those of the rule by count.

    Of pieces that occur equally often, those with lower ids are kept first: in general text they are more frequent.
    """
    kept = {part for index in special for part in table.with_parts(index)} | table.required()
    if rule == "seen" or rule.keep is None:
        least = 1 if rule == "seen" else rule.min_count or 1
        return kept.union(*(table.with_parts(int(index)) for index in np.flatnonzero(counts >= least)))
    _check_keep(table, rule, kept)
    for index in sorted(table.every - table.reserved(), key=lambda index: (-counts[index], index)):
        more = table.with_parts(index) - kept
        if len(kept) + len(more) <= rule.keep:
            kept |= more
    return kept


def check_rule(tokenizer: PreTrainedTokenizerBase, rule: Vocabulary | None, source: str = "this model") -> PieceTable:
    """Return the pieces of a tokenizer, or raise a `ModelError` if they cannot be pruned by the rule."""
    if not tokenizer.is_fast:
        raise ModelError(
            f"the vocabulary of {source} cannot be pruned: its tokenizer has no tokenizer.json.",
            hint="leave vocabulary out, or use a checkpoint with a fast tokenizer",
        )
    return check_file(tokenizer.backend_tokenizer.to_str(), rule, source)


def check_file(content: str, rule: Vocabulary | None, source: str = "this model") -> PieceTable:
    """Return the pieces of a tokenizer.json, or raise a `ModelError` if they cannot be pruned by the rule."""
    table = PieceTable(json.loads(content), source)
    _check_keep(table, rule, table.required())
    return table


class PieceBounds(NamedTuple):
    """How many pieces a tokenizer has, and the fewest and the most of them that it can keep."""

    all: int
    least: int
    most: int


def keepable_pieces(folder: Path) -> PieceBounds | None:
    """Return how many pieces the tokenizer of a folder can keep; None where its files say it to transformers alone.

    Raises:
        ModelError: none of its pieces can be removed.
    """
    if not (folder / TOKENIZER_FILE).is_file():
        return None
    table = PieceTable(json.loads(read_tokenizer(folder).to_str()))
    return _bounds(table, table.required())


def _bounds(table: PieceTable, required: set[int]) -> PieceBounds:
    every = table.every
    return PieceBounds(len(every), len(required), len((every - table.reserved()) | required))


def _check_keep(table: PieceTable, rule: Vocabulary | None, required: set[int]) -> None:
    """Refuse to keep more pieces than can be, or fewer than every text may need."""
    if rule is None or rule == "seen" or rule.keep is None:
        return
    _, least, most = _bounds(table, required)
    if not least <= rule.keep <= most:
        placeholders = " apart from placeholders ([unused1])" if most < len(table.every) else ""
        raise ModelError(
            f"vocabulary: {rule.keep:,} pieces cannot be kept: the tokenizer has {most:,}{placeholders}, of which"
            f" {least:,} are single characters or special and always stay.",
            hint=f"keep: a number from {least} to {most}, or vocabulary: seen",
        )


def rule_text(rule: Vocabulary) -> str:
    """Return `seen`, `keep 8000` or `min_count 2`."""
    return rule if rule == "seen" else " ".join(f"{key} {value}" for key, value in rule if value is not None)


def _template_ids(processor: Mapping[str, Any] | None) -> set[int]:
    """Return the ids that a post-processor puts around texts."""
    ids = set[int]()
    for part in _processors(processor):
        ids |= {index for token in part.get("special_tokens", {}).values() for index in token["ids"]}
        ids |= {part[name][1] for name in ("sep", "cls") if name in part}
    return ids


def _renumber_template(processor: dict[str, Any] | None, new: Mapping[int, int]) -> None:
    for part in _processors(processor):
        for token in part.get("special_tokens", {}).values():
            token["ids"] = [new[index] for index in token["ids"]]
        for name in ("sep", "cls"):
            if name in part:
                part[name] = [part[name][0], new[part[name][1]]]


def _processors(processor: Any) -> Iterator[dict[str, Any]]:
    """Yield a post-processor, or each of a sequence of them."""
    if processor is not None:
        yield processor
        for part in processor.get("processors", ()):
            yield from _processors(part)
