"""Builds variants in tests."""

from compress.export import BuildContext
from compress.variants import VARIANTS


def build(name, source, work, **context):
    """Build the variant ``name`` from ``source`` into ``work``; returns its FolderInfo."""
    variant = VARIANTS[name]
    return variant.make(BuildContext(variant.info, source, work, **context))
