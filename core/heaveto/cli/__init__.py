"""The command line: one module per verb group, one printer, one table of exit codes.

:func:`main` parses, runs one verb and returns its exit code. What needs the console or
the drawing is named by the caller as an import string and loaded on use, so that a
headless verb never loads a terminal library and this package never imports one.
"""

from __future__ import annotations

from heaveto.cli.app import main

__all__ = ["main"]
