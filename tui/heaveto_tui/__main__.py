"""The console entry point: parse first, load Textual only when something is drawn."""

from __future__ import annotations

import sys

from heaveto import cli

__all__ = ["main"]


def main() -> int:
    """Run the command line of this process with the console and the drawing."""
    return cli.main(
        console="heaveto_tui.app:run_console", dag="heaveto_tui.dag_layout:draw"
    )


if __name__ == "__main__":
    sys.exit(main())
