"""A tokenizer for tests without files: each letter is a token."""

from compress.tasks import Encoding


def encode_letters(text, pair, max_tokens):
    """Encode a text, cut to ``max_tokens``, and a pair."""
    ids = [ord(letter) for letter in text][:max_tokens]
    more = [ord(letter) for letter in pair or ""]
    return Encoding(ids + more, [0] * len(ids) + [1] * len(more), truncated=len(text) > max_tokens)
