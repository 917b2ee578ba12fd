"""``python -m heaveto``: the headless verbs, also where Textual is not installed."""

from __future__ import annotations

import sys

from heaveto.cli import main

if __name__ == "__main__":
    sys.exit(main())
