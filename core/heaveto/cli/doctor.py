"""``doctor``: what is wrong here and what to do about it; it changes nothing."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import click

from heaveto.cli.exits import Exit
from heaveto.cli.scope import Scope, common_options
from heaveto.errors import HeavetoError, HomeError, StateDBError
from heaveto.model import RunState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heaveto.config import Config
    from heaveto.runs import Home

__all__ = ["doctor"]

_LOW_SPACE = 512 << 20
_LOW_WATCHES = 8192
_CLOCK_SLACK_S = 120.0
_RESET_FIXED = ((3, 51, 3), (3, 50, 7), (3, 44, 6))


class Finding(NamedTuple):
    """One thing that a person should know."""

    code: str
    level: Literal["error", "warning", "note"]
    text: str
    what_to_do: str
    path: str | None = None


@click.command()
@common_options
@click.pass_obj
def doctor(scope: Scope) -> int:
    """Check the surroundings and the open homes.

    Exit 1: there is an error or a warning; notes alone are no fault.
    """
    findings = list(_all(scope))
    if scope.output.json:
        scope.output.answer({"findings": [one._asdict() for one in findings]})
    else:
        for one in findings:
            where = f" ({one.path})" if one.path else ""
            scope.output.line(f"{one.level}: {one.code}: {one.text}{where}")
            if one.what_to_do:
                scope.output.line(f"  {one.what_to_do}")
        if not findings:
            scope.output.line("Nothing is wrong here.")
    serious = any(one.level != "note" for one in findings)
    return Exit.FAILED if serious else Exit.OK


def _all(scope: Scope) -> Iterator[Finding]:
    """Yield every finding: the machine, the settings, each home, its runs."""
    yield from _sqlite(sqlite3.sqlite_version_info)
    yield from _watches(Path("/proc/sys/fs/inotify"))
    yield from _locale()
    config: Config | None = None
    try:
        config = scope.config()
    except HomeError as error:
        yield Finding(error.code, "error", error.message, "Correct the file.")
    from heaveto.homes import home_paths, open_home

    for path in home_paths(
        scope.given_homes, config=config, lionagi=scope.lionagi is not False
    ):
        try:
            home = open_home(path)
        except HomeError as error:
            what = "Move what is there away, or name another home."
            yield Finding(error.code, "error", error.message, what, str(path))
            continue
        yield from _home(home)
        yield from _runs(home)


def _sqlite(version: tuple[int, ...]) -> Iterator[Finding]:
    """Yield the note on SQLite's WAL-reset race."""
    fixed = version >= _RESET_FIXED[0] or any(
        version[:2] == one[:2] and version >= one for one in _RESET_FIXED
    )
    if not fixed:
        found = ".".join(map(str, version))
        yield Finding(
            "sqlite_wal_reset",
            "note",
            f"SQLite {found} has a rare race when a log is reset while others write.",
            "Python with SQLite 3.51.3, 3.50.7 or 3.44.6 does not have it.",
        )


def _watches(folder: Path) -> Iterator[Finding]:
    """Yield a warning when the system allows few file watches."""
    try:
        limit = int((folder / "max_user_watches").read_text())
    except (OSError, ValueError):
        return
    if limit < _LOW_WATCHES:
        yield Finding(
            "watch_limit",
            "warning",
            f"Only {limit} file watches are allowed; beyond them files are polled.",
            "Raise fs.inotify.max_user_watches.",
        )


def _locale() -> Iterator[Finding]:
    """Yield a note when text of other scripts cannot be printed."""
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    if encoding != "utf8":
        yield Finding(
            "locale_not_utf8",
            "note",
            f"The locale's encoding is {encoding}; other characters are spelled out.",
            "Set LANG to a UTF-8 locale.",
        )


def _home(home: Home) -> Iterator[Finding]:
    """Yield what is wrong with a home as a place."""
    from heaveto.runs import file_system, is_remote

    path = str(home.path)
    kind = file_system(home.path)
    if is_remote(kind):
        yield Finding(
            "home_remote",
            "error" if home.source == "heaveto" else "note",
            f"The home is on a network file system ({kind}): runs are refused.",
            "Use a home on a local disk.",
            path,
        )
    if not home.path.exists():
        yield Finding("home_absent", "note", "The home does not exist yet.", "", path)
        return
    free = shutil.disk_usage(home.path).free
    if free < _LOW_SPACE:
        yield Finding(
            "space_low",
            "warning",
            f"Only {free >> 20} MiB are free.",
            "Make room; heaveto prune removes old runs.",
            path,
        )
    if home.source == "heaveto":
        yield from _modes(home)
    yield from _clock(home)


def _modes(home: Home) -> Iterator[Finding]:
    """Yield paths of a home that others can read or write."""
    for path in (home.path, home.runs, home.state_db):
        try:
            found = path.stat()
        except OSError:
            continue
        mode = stat.S_IMODE(found.st_mode)
        if found.st_uid != os.geteuid() or mode & 0o022:
            yield Finding(
                "foreign_owner",
                "error",
                "Another user owns it, or others may write to it: runs are refused.",
                "Check owner and mode (0700 for folders, 0600 for files).",
                str(path),
            )
        elif mode & 0o077:
            yield Finding(
                "mode_open",
                "warning",
                f"Others may read it (mode {mode:04o}).",
                "Set 0700 for folders, 0600 for files.",
                str(path),
            )


def _clock(home: Home) -> Iterator[Finding]:
    """Yield a warning when the database was changed in the future."""
    try:
        changed = home.state_db.stat().st_mtime
    except (OSError, StateDBError):
        return
    if changed > time.time() + _CLOCK_SLACK_S:
        yield Finding(
            "clock_behind",
            "warning",
            "The database was changed in the future: the clock was set back.",
            "Check the system's clock.",
            str(home.state_db),
        )


def _runs(home: Home) -> Iterator[Finding]:
    """Yield what is wrong with the runs of a home, from their own warnings."""
    from heaveto.observe import Observer

    try:
        with Observer((home,)) as observer:
            runs = observer.list_runs()
            problems = [view.problem for view in observer.health() if view.problem]
    except HeavetoError as error:
        yield Finding(
            error.code, "error", error.message, "See heaveto explain.", str(home.path)
        )
        return
    for problem in problems:
        yield Finding(
            problem.code, "error", problem.text, problem.what_to_do, str(home.path)
        )
    for run in runs:
        if run.state == RunState.DEAD and run.superseded_by is None:
            yield Finding(
                "dead",
                "warning",
                f"{run.session_id[:8]}: the row says running and its process is gone.",
                "heaveto close ends the row; lionagi's rows are lionagi's to end.",
                str(home.runs / run.run_id) if run.run_id else None,
            )
        for warning in run.warnings:
            yield Finding(
                warning.code,
                "warning",
                f"{run.session_id[:8] or run.run_id}: {warning.text}",
                warning.what_to_do,
                str(home.runs / run.run_id) if run.run_id else None,
            )
