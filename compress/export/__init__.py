"""Converts model folders into other formats, one format a file; each export is compared with the model it came from.

The formats and their builders are listed in `compress.formats.FORMATS`.
"""

from compress.export.build_context import BuildContext

__all__ = ["BuildContext"]
