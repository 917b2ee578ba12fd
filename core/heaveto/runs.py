"""Run ids, run directories, ``run.json``, ``.lock``: what a home holds of a run.

A run id is ``YYYYMMDDTHHMMSS-`` and six hexadecimal digits. A name that comes from
outside (a command line, a database, a folder listing) becomes a path only through
:func:`check_name`, the one path check (SPEC G-08): no separator, no ``..``, no leading
dot or dash, no control character, bounded length.

Blocking; safe in any thread.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heaveto.errors import (
    FileMissingError,
    FileTypeError,
    HomeError,
    LockHeldError,
    RunError,
    StateDBError,
)
from heaveto.files import (
    Directory,
    check_owner,
    hold_file,
    make_directories,
    replace_file,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from heaveto.files import OwnedFile

__all__ = [
    "RUN_JSON_LIMIT",
    "Home",
    "RunDir",
    "RunRecord",
    "check_file_system",
    "check_name",
    "file_system",
    "is_remote",
    "is_run_id",
    "new_run_id",
    "read_run_json",
    "run_names",
    "write_run_json",
]

RUN_JSON_LIMIT = 1 << 20
"""Bytes of a ``run.json`` that are read."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
_RUN_ID = re.compile(r"\d{8}T\d{6}-[0-9a-f]{6}", re.ASCII)
_REMOTE = ("nfs", "cifs", "smb", "9p", "afpfs", "webdav", "sshfs")


def new_run_id(
    now: float | None = None, random: Callable[[], str] = lambda: secrets.token_hex(3)
) -> str:
    """Return a fresh run id.

    Args:
        now: Epoch seconds; None is the present.
        random: Six hexadecimal digits.
    """
    moment = time.gmtime(time.time() if now is None else now)
    return f"{time.strftime('%Y%m%dT%H%M%S', moment)}-{random()}"


def is_run_id(text: str) -> bool:
    """Tell whether a text has the form of a run id."""
    return _RUN_ID.fullmatch(text) is not None


def check_name(name: str) -> str:
    """Return a name that may become one path component.

    Raises:
        RunError: ``run_name``: it may not.
    """
    if _NAME.fullmatch(name) is None:
        raise RunError("this is no name of a run or operation", code="run_name")
    return name


@dataclass(frozen=True, slots=True)
class Home:
    """Where state is kept: a database and a folder of runs.

    ``kind`` is ``heaveto``, ``lionagi`` or ``new`` (a heaveto home without content).
    lionagi may keep its database elsewhere: ``store`` is that file, ``server`` the kind
    of server that takes the place of a file.
    """

    path: Path
    kind: str = "heaveto"
    store: Path | None = None
    server: str | None = None

    @property
    def state_db(self) -> Path:
        """The state database.

        Raises:
            StateDBError: ``db_elsewhere``: it is no file.
        """
        if self.server is not None:
            raise StateDBError(
                f"lionagi keeps its state in {self.server} (LIONAGI_STATE_DB_URL),"
                f" which heaveto cannot read: {self.path}",
                code="db_elsewhere",
            )
        return self.store or self.path / "state.db"

    @property
    def runs(self) -> Path:
        """The folder of run directories."""
        return self.path / "runs"

    @property
    def source(self) -> str:
        """The world it belongs to: heaveto or lionagi."""
        return "lionagi" if self.kind == "lionagi" else "heaveto"

    def run(self, run_id: str) -> RunDir:
        """Return a run's directory, which may not exist.

        Raises:
            RunError: ``run_name``: the id can be no path component.
        """
        return RunDir(self.runs / check_name(run_id))

    def check_writable(self) -> None:
        """Refuse to write into what is not ours alone (PRODUCT 6.9).

        Raises:
            ForeignOwnerError: The home, its runs or its database.
        """
        for path in (self.path, self.runs, self.state_db):
            check_owner(path)

    def make(self) -> None:
        """Make the home and its ``runs`` folder with mode 0700 where absent.

        Raises:
            HomeError: Something else is there, or no permission.
            ForeignOwnerError: It is not ours alone.
        """
        check_owner(self.path)
        try:
            make_directories(self.runs)
        except (FileTypeError, OSError) as error:
            raise HomeError(f"the home cannot be made: {self.path} ({error})") from None
        self.check_writable()


@dataclass(frozen=True, slots=True)
class RunDir:
    """A run's directory and the names in it."""

    path: Path

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.path.name

    @property
    def checkpoint(self) -> Path:
        """The base of its checkpoint; the journal is beside it."""
        return self.path / "checkpoint.json"

    @property
    def journal(self) -> Path:
        """The journal of its checkpoint."""
        return self.path / "checkpoint.json.journal"

    @property
    def run_json(self) -> Path:
        """The record of what it is."""
        return self.path / "run.json"

    @property
    def lock(self) -> Path:
        """The lock that its runner holds."""
        return self.path / ".lock"

    @property
    def runner_log(self) -> Path:
        """What a detached runner printed."""
        return self.path / "runner.log"

    @property
    def artifacts_root(self) -> Path:
        """Where artifacts go unless the run was told otherwise."""
        return self.path / "artifacts"

    @property
    def conversations(self) -> Path:
        """Conversations of workers that converse."""
        return self.path / "conversations"

    @property
    def engine_state(self) -> Path:
        """The generation store of the run."""
        return self.path / "engine_state"

    def artifacts(self, operation: str) -> Path:
        """Return the artifact folder of an operation, by its name."""
        return self.artifacts_root / check_name(operation)

    def operation(self, operation: str) -> Path:
        """Return the folder of an operation's logs, by its name."""
        return self.path / "operations" / check_name(operation)

    @classmethod
    def create(cls, home: Home, run_id: str) -> RunDir:
        """Make a run's directory, which must not exist.

        Raises:
            RunError: ``run_exists`` (also where names differ only in case and the file
                system does not tell them apart), ``run_name``.
            ForeignOwnerError: The home is not ours alone.
        """
        run = home.run(run_id)
        home.make()
        with Directory.open(home.runs) as runs:
            try:
                runs.make(run_id).close()
            except FileExistsError:
                raise RunError(
                    f"there is a run with this id: {run_id}", code="run_exists"
                ) from None
            runs.sync()
        return run

    def hold(self) -> OwnedFile:
        """Take the run's lock; it is held until the returned file is closed.

        Raises:
            RunError: ``run_live``: a runner has it. ``run_missing``: no such run.
            ForeignOwnerError: The directory is not ours alone.
        """
        check_owner(self.path)
        try:
            with Directory.open(self.path) as directory:
                return hold_file(directory, ".lock")
        except (FileMissingError, FileNotFoundError):
            raise RunError(f"no such run: {self.run_id}", code="run_missing") from None
        except LockHeldError as held:
            who = f" by process {held.pid}" if held.pid else ""
            raise RunError(
                f"the run is alive: its lock is held{who}", code="run_live"
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """``run.json`` (FORMATS 9). Absent members are None; unknown ones are kept."""

    run_id: str
    state_root: str | None = None
    artifact_root: str | None = None
    cwd: str | None = None
    status: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    session_id: str | None = None
    resumed_from: str | None = None
    checkpoint_format: int | None = None
    extra: Mapping[str, object] = field(default_factory=dict)
    """Members that this version does not know."""

    def as_dict(self) -> dict[str, object]:
        """Return the JSON object."""
        return {**{name: getattr(self, name) for name in _RECORD}, **self.extra}


_RECORD: dict[str, tuple[type, ...]] = {
    "run_id": (str,),
    "state_root": (str,),
    "artifact_root": (str,),
    "cwd": (str,),
    "status": (str,),
    "started_at": (int, float),
    "ended_at": (int, float),
    "session_id": (str,),
    "resumed_from": (str,),
    "checkpoint_format": (int,),
}


def read_run_json(run: RunDir) -> RunRecord:
    """Read a run's record; members that are missing or of another type are None.

    Raises:
        RunError: ``run_missing``: no such file. ``run_damaged``: too large, no regular
            file, or no JSON object.
    """
    try:
        with Directory.open(run.path) as directory:
            data = directory.read("run.json", limit=RUN_JSON_LIMIT + 1)
    except (FileMissingError, FileNotFoundError, NotADirectoryError):
        raise RunError(f"no run.json in {run.path}", code="run_missing") from None
    except (FileTypeError, OSError):
        raise _damaged(run, "it cannot be read") from None
    if len(data) > RUN_JSON_LIMIT:
        raise _damaged(run, "it is too large")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise _damaged(run, "it is no JSON") from None
    if not isinstance(found, dict):
        raise _damaged(run, "it is no JSON object")
    return _record(run.run_id, found)


def _record(run_id: str, found: dict[str, Any]) -> RunRecord:
    """Keep the members that have their type; the id is the directory's name."""
    known = {
        name: found[name]
        for name, types in _RECORD.items()
        if isinstance(found.get(name), types) and _plain(found[name])
    }
    known["run_id"] = run_id
    extra = {name: value for name, value in found.items() if name not in _RECORD}
    return RunRecord(**known, extra=extra)


def _plain(value: object) -> bool:
    """Tell whether a member is no truth value and, as a number, finite."""
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, bool)


def _damaged(run: RunDir, why: str) -> RunError:
    """Return the error for a record that cannot be used."""
    return RunError(f"run.json of {run.run_id} is damaged: {why}", code="run_damaged")


def write_run_json(run: RunDir, record: RunRecord) -> None:
    """Replace a run's record whole.

    Raises:
        OSError: As the system says; the old record is then still there.
    """
    data = json.dumps(record.as_dict(), allow_nan=False, indent=1).encode() + b"\n"
    with Directory.open(run.path) as directory:
        replace_file(directory, "run.json", data)


def run_names(home: Home) -> list[str]:
    """Return the names of run directories, sorted; links and files do not count."""
    try:
        with os.scandir(home.runs) as entries:
            found = [
                entry.name
                for entry in entries
                if _NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            ]
    except OSError:
        return []
    return sorted(found)


def file_system(
    path: Path,
    mounts: Callable[[], Iterable[tuple[str, str]]] | None = None,
) -> str | None:
    """Return the type of the file system that a path is on, None when unknown.

    Args:
        path: It need not exist; its nearest existing parent counts.
        mounts: Mount points and types; the system's by default.
    """
    real = os.path.realpath(path)
    best, kind = "", None
    for point, name in (mounts or _mounts)():
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, name
    return kind


def _mounts() -> list[tuple[str, str]]:
    """Ask the system for its mounts."""
    import psutil  # only who starts a run or looks for faults pays for it

    try:
        return [
            (part.mountpoint, part.fstype) for part in psutil.disk_partitions(all=True)
        ]
    except (OSError, psutil.Error):
        return []


def is_remote(kind: str | None) -> bool:
    """Tell whether a file system type is one on which locks and WAL do not hold."""
    return kind is not None and any(word in kind.lower() for word in _REMOTE)


def check_file_system(
    path: Path,
    mounts: Callable[[], Iterable[tuple[str, str]]] | None = None,
) -> None:
    """Refuse to run on a network file system (PRODUCT 1).

    Raises:
        HomeError: ``home_remote``.
    """
    kind = file_system(path, mounts)
    if is_remote(kind):
        raise HomeError(
            f"{path} is on a network file system ({kind}): a run needs a local disk",
            code="home_remote",
        )
