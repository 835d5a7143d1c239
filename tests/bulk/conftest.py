"""Tiny exported models of every task kind."""

from tests.exported_models import exported, model  # noqa: F401  fixtures
