"""``python -m compress``: the form that no other program called ``compress`` can take."""

import sys

from compress.cli import main

if __name__ == "__main__":
    sys.exit(main())
