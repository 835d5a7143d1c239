"""The key of a service: read from its environment variable, and removed from whatever is shown or stored."""

from __future__ import annotations

import os

from compress.errors import UsageError
from compress.recipe.label_schema import LabelRecipe

SHOWN_CHARS = 200
"""How much of a service's message is shown."""
NO_KEY_HAS = set(" \t\"'\\")
"""With these a service that repeats the key would write it in another way, which could not be found."""


def read_key(recipe: LabelRecipe) -> str | None:
    """Return the key from its environment variable; None for a service without one."""
    variable = recipe.endpoint.key
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UsageError(f"endpoint.key: the environment variable {variable} is not set.", f"export {variable}=…")
    if not key.isascii() or not key.isprintable() or NO_KEY_HAS.intersection(key):
        raise UsageError(f"endpoint.key: the environment variable {variable} holds characters that no key has.")
    return key


def hide_key(text: str, key: str | None) -> str:
    """Return a text without the key."""
    return text.replace(key, "***") if key else text


def shown(text: str, key: str | None) -> str:
    """Return the beginning of a service's message in one line, without the key and the full stop."""
    return " ".join(hide_key(text, key).split())[:SHOWN_CHARS].rstrip(".")
