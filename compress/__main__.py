"""``python -m compress``: the form that no other program called ``compress`` can take."""

from __future__ import annotations

import sys

from compress.cli import main

if __name__ == "__main__":
    sys.exit(main())
