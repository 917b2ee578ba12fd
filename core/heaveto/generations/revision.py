"""The revision of the code that writes a generation."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

__all__ = ["UNKNOWN_REVISION", "get_git_revision"]

UNKNOWN_REVISION = "unknown"
_HERE = Path(__file__).resolve().parent
_SECONDS = 2.0


@cache
def get_git_revision(directory: Path = _HERE) -> str:
    """Return the revision of the repository that a directory lies in (SPEC J-46).

    Args:
        directory: The package's own folder by default, so the caller's working
            directory and its ``GIT_DIR`` have no influence.

    Returns:
        Twelve hex digits, or ``unknown`` where there is no repository or no git, or
        git does not answer within two seconds. Cached for the process.
    """
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("GIT_")
    }
    command = ["git", "-C", str(directory), "rev-parse", "--short=12", "HEAD"]
    try:
        answer = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN_REVISION
    return answer.stdout.decode("ascii", "replace").strip() or UNKNOWN_REVISION
