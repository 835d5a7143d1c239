"""New pieces for a tokenizer.json: frequent words that it cuts into several pieces become one piece each.

Everything else is cut as before. How this is possible depends on the kind of tokenizer:

- WordPiece takes the longest piece that fits, so a word in its table would also begin longer words. New words are
  therefore *added tokens* that match whole words only, looked up before the table.
- BPE takes a word that its table has as a whole, without merges, where `ignore_merges` is set. Merges do not change.
  A tokenizer is refused whose table has pieces that its merges do not make: they would be cut differently.
- Unigram takes the pieces with the largest sum of scores. A new word gets as much as the pieces it replaces, and a
  trifle more. A longer word that begins with the same pieces would be cut differently; where such a word occurs in the
  corpus, the shorter one does not become a piece.
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tokenizers import Tokenizer

from compress.data.tokenizer import whole_texts
from compress.errors import ModelError

Content = Mapping[str, Any]
"""A parsed tokenizer.json."""
LEAST_COUNT = 2
"""A word that occurs once is not worth a vector."""
TRIFLE = 1e-3
"""How much more likely (in log) a Unigram piece is than the pieces it replaces."""
WITHOUT = "leave vocabulary.add out, or go on from a checkpoint with a WordPiece or byte-level BPE tokenizer"


@dataclass(frozen=True)
class AddedPieces:
    """A tokenizer with new pieces."""

    content: dict[str, Any]
    """The parsed tokenizer.json."""
    parts: dict[int, tuple[int, ...]]
    """By id of each new piece the ids of the pieces that the word was cut into."""
    words: tuple[str, ...]
    """The new pieces' words, most frequent first; their ids ascend in this order."""
    left_out: tuple[str, ...]
    """Frequent words that did not become pieces, because longer words of the corpus would be cut differently."""


def add_pieces(content: Content, counts: Mapping[str, int], number: int) -> AddedPieces:
    """Return a tokenizer in which the ``number`` most frequent words that it cuts into pieces are one piece each.

    Args:
        content: the parsed tokenizer.json.
        counts: how often each word occurs, as `count_words` returns it.
        number: of new pieces; there are fewer where the corpus has fewer such words.
    """
    extend, before = _extender(content), whole_texts(content)
    cuts = {word: tuple(ids) for word, ids in zip(counts, _cut(before, counts), strict=True)}
    candidates, first = iter(_cut_words(content, counts, cuts)), _next_id(content)
    chosen, left_out = list(islice(candidates, number)), list[str]()
    while True:
        extended = extend(content, [(word, cuts[word]) for word in chosen])
        owners = dict(enumerate(chosen, start=first))
        culprits = _culprits(cuts, whole_texts(extended), owners)
        if not culprits:
            break
        left_out += sorted(culprits)
        chosen = [word for word in chosen if word not in culprits] + list(islice(candidates, len(culprits)))
    return AddedPieces(extended, {index: cuts[word] for index, word in owners.items()}, tuple(chosen), tuple(left_out))


def _cut(tokenizer: Tokenizer, words: Iterable[str]) -> list[list[int]]:
    return [encoding.ids for encoding in tokenizer.encode_batch_fast(list(words), add_special_tokens=False)]


def _cut_words(content: Content, counts: Mapping[str, int], cuts: Mapping[str, Sequence[int]]) -> list[str]:
    """Return the words of letters and digits that are cut into known pieces, most frequent first."""
    unknown = _unknown_id(content["model"])
    words = [
        word
        for word, ids in cuts.items()
        if len(ids) > 1 and counts[word] >= LEAST_COUNT and unknown not in ids and _is_word(word.strip())
    ]
    return sorted(words, key=lambda word: (-counts[word], word))


def _is_word(text: str) -> bool:
    return text.isalnum() and not text.isdigit()


def _culprits(cuts: Mapping[str, tuple[int, ...]], after: Tokenizer, owners: Mapping[int, str]) -> set[str]:
    """Return the new words that occur as a piece of other words, or that are not cut into themselves."""
    culprits = set[str]()
    ids = {word: index for index, word in owners.items()}
    for (word, old), new in zip(cuts.items(), _cut(after, cuts), strict=True):
        if new != ([ids[word]] if word in ids else list(old)):
            found = {owners[index] for index in new if index in owners} or {word} & ids.keys()
            if not found:
                raise ModelError(f"new pieces would change how '{word.strip()}' is cut.", hint=WITHOUT)
            culprits |= found
    return culprits


def _next_id(content: Content) -> int:
    """Return the first id that no piece and no added token has."""
    vocabulary = content["model"]["vocab"]
    own = vocabulary.values() if isinstance(vocabulary, Mapping) else range(len(vocabulary))
    highest: int = max([*own, *(token["id"] for token in content["added_tokens"])])
    return highest + 1


def _unknown_id(model: Mapping[str, Any]) -> int | None:
    is_unigram = model["type"] == "Unigram"
    unknown: int | None = model["unk_id"] if is_unigram else model["vocab"].get(model.get("unk_token"))
    return unknown


Words = Sequence[tuple[str, tuple[int, ...]]]
"""Words with the ids of the pieces they are cut into."""


def _whole_words(content: Content, words: Words) -> dict[str, Any]:
    """Return a WordPiece tokenizer with further added tokens, which match whole words of the normalized text."""
    extended, first = copy.deepcopy(dict(content)), _next_id(content)
    flags = {"single_word": True, "lstrip": False, "rstrip": False, "normalized": True, "special": False}
    extended["added_tokens"] += [
        {"id": index, "content": word, **flags} for index, (word, _) in enumerate(words, start=first)
    ]
    return extended


def _without_merges(content: Content, words: Words) -> dict[str, Any]:
    """Return a BPE tokenizer whose table has further words, which are looked up before any merge."""
    if content["model"].get("end_of_word_suffix"):
        raise ModelError("pieces cannot be added to a BPE tokenizer that marks the end of words.", hint=WITHOUT)
    extended, before = copy.deepcopy(dict(content)), whole_texts(content)
    extended["model"]["ignore_merges"] = True
    first, table = _next_id(content), extended["model"]["vocab"]
    _check_merges(before, whole_texts(extended), table.values())
    for index, (word, _) in enumerate(words, start=first):
        table[before.pre_tokenizer.pre_tokenize_str(word)[0][0]] = index
    return extended


def _check_merges(before: Tokenizer, after: Tokenizer, ids: Iterable[int]) -> None:
    """Refuse a table with pieces that texts can name and merges do not make."""
    texts = before.decode_batch([[index] for index in ids], skip_special_tokens=False)
    for text, old, new in zip(texts, _cut(before, texts), _cut(after, texts), strict=True):
        if old != new:
            raise ModelError(
                f"pieces cannot be added to this BPE tokenizer: its table has '{text}', which its merges do not make.",
                hint=WITHOUT,
            )


def _scored(content: Content, words: Words) -> dict[str, Any]:
    """Return a Unigram tokenizer whose table has further words, a trifle more likely than the pieces they replace."""
    extended, before = copy.deepcopy(dict(content)), whole_texts(content)
    table = extended["model"]["vocab"]
    if _next_id(content) != len(table):
        raise ModelError(
            "pieces cannot be added to this Unigram tokenizer: its added tokens have the ids after its table.",
            hint=WITHOUT,
        )
    least = min(score for _, score in table)  # on which the score of an unknown character depends
    for word, ids in words:
        score = max(sum(table[index][1] for index in ids) + TRIFLE, least)
        table.append([before.pre_tokenizer.pre_tokenize_str(word)[0][0], score])
    return extended


EXTENDERS: Mapping[str, Callable[[Content, Words], dict[str, Any]]] = {
    "WordPiece": _whole_words,
    "BPE": _without_merges,
    "Unigram": _scored,
}
"""By the type of a tokenizer.json's model."""


def _extender(content: Content) -> Callable[[Content, Words], dict[str, Any]]:
    kind = content["model"].get("type")
    if kind not in EXTENDERS:
        raise ModelError(
            f"pieces cannot be added to a {kind} tokenizer; possible are {', '.join(EXTENDERS)}.", hint=WITHOUT
        )
    if content.get("pre_tokenizer") is None:
        raise ModelError("pieces cannot be added to a tokenizer that does not split texts into words.", hint=WITHOUT)
    return EXTENDERS[kind]
