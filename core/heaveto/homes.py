"""Which homes are open, and what kind each is (PRODUCT 1).

Given homes are the only ones; else the own home, those of the settings and lionagi's.
Looking at a home never changes it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from heaveto.config import Config
from heaveto.errors import HomeError, StateDBError
from heaveto.runs import RUN_JSON_LIMIT, Home, run_names
from heaveto.statedb import peek

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "default_home",
    "home_kind",
    "home_paths",
    "lionagi_store",
    "open_home",
    "resolve_homes",
    "writing_home",
]

_OWN_NAMES = frozenset(
    {"state.db", "state.db-wal", "state.db-shm", "state.db-journal", "runs", "logs"}
)
_BUSY = 0.5
"""Seconds that a look at a locked database may take."""
_LOOKED_AT = 1000
"""Run directories that are looked at for the kind of a home without a database."""


def default_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the own home: ``$HEAVETO_HOME`` or platformdirs' user data folder."""
    given = environ.get("HEAVETO_HOME")
    if given:
        return Path(given).expanduser()
    import platformdirs  # not needed where the home is named

    return Path(platformdirs.user_data_path("heaveto"))


def resolve_homes(
    given: Sequence[Path] = (),
    *,
    config: Config | None = None,
    lionagi: bool = True,
    environ: Mapping[str, str] = os.environ,
) -> tuple[Home, ...]:
    """Return the homes to open, each once, the own one first.

    Args:
        given: ``--home``: exactly these.
        config: The settings.
        lionagi: False leaves lionagi's home out.
        environ: The environment.

    Raises:
        HomeError: One of them is no home.
    """
    paths = home_paths(given, config=config, lionagi=lionagi, environ=environ)
    return tuple(open_home(path, environ) for path in paths)


def home_paths(
    given: Sequence[Path] = (),
    *,
    config: Config | None = None,
    lionagi: bool = True,
    environ: Mapping[str, str] = os.environ,
) -> tuple[Path, ...]:
    """Return the folders of :func:`resolve_homes` without looking into them."""
    settings = config or Config()
    paths = list(given)
    if not paths:
        paths = [default_home(environ), *settings.homes]
        if lionagi and settings.lionagi and (other := _lionagi(environ)):
            paths.append(other)
    unique: dict[str, Path] = {}
    for path in paths:
        unique.setdefault(os.path.realpath(path), path)
    return tuple(unique.values())


def _lionagi(environ: Mapping[str, str]) -> Path | None:
    """Return lionagi's home where there is one."""
    path = _lionagi_path(environ)
    store = lionagi_store(environ)
    there = (path / "state.db").exists() or (path / "runs").is_dir()
    elsewhere = isinstance(store, str) or (store is not None and store.exists())
    return path if there or elsewhere else None


def _lionagi_path(environ: Mapping[str, str]) -> Path:
    given = environ.get("LIONAGI_HOME")
    return Path(given).expanduser() if given else _user_home(environ) / ".lionagi"


def lionagi_store(environ: Mapping[str, str] = os.environ) -> Path | str | None:
    """Return where lionagi keeps its database when ``LIONAGI_STATE_DB_URL`` says so.

    Returns:
        A file; a word for what is none (it never quotes the setting, which may hold a
        password); None: in its home.
    """
    given = environ.get("LIONAGI_STATE_DB_URL", "")
    if not given:
        return None
    scheme, separator, rest = given.partition("://")
    if not separator:
        # So lionagi reads it; what it refuses is no file that is there.
        return "memory" if given == ":memory:" else Path(os.path.abspath(given))
    if scheme not in ("sqlite", "sqlite+aiosqlite"):
        kind = scheme.partition("+")[0].lower()
        return "PostgreSQL" if kind in ("postgres", "postgresql") else "another server"
    name = rest.partition("?")[0].partition("/")[2]
    if not name or name == ":memory:":
        return "memory"
    return Path(os.path.abspath(name))


def _user_home(environ: Mapping[str, str]) -> Path:
    """Return the user's folder."""
    given = environ.get("HOME")
    return Path(given) if given else Path.home()


def writing_home(homes: Sequence[Home]) -> Home:
    """Return the first home that heaveto writes runs into.

    Raises:
        HomeError: All are lionagi's.
    """
    for home in homes:
        if home.source == "heaveto":
            return home
    raise HomeError("no heaveto home is open: runs cannot be written into lionagi's")


def open_home(path: Path, environ: Mapping[str, str] = os.environ) -> Home:
    """Return a home with its kind; see :func:`home_kind`.

    The one home that the environment gives to lionagi may have its database elsewhere.
    """
    absolute = Path(os.path.abspath(path))
    try:
        str(absolute).encode()
    except UnicodeEncodeError:  # it stands in rows and in JSON
        raise HomeError(f"the path of a home must be UTF-8: {absolute}") from None
    store = _store_of(absolute, environ)
    if store is None:
        return Home(absolute, home_kind(absolute))
    if isinstance(store, str):
        return Home(absolute, "lionagi", server=store)
    if store.exists() and _kind_of_database(store, absolute) == "heaveto":
        raise HomeError(f"LIONAGI_STATE_DB_URL names a database of heaveto: {store}")
    return Home(absolute, "lionagi", store=store)


def _store_of(path: Path, environ: Mapping[str, str]) -> Path | str | None:
    """Return where the database of a home is, if not in it."""
    store = lionagi_store(environ)
    real = os.path.realpath
    if store is None or real(path) != real(_lionagi_path(environ)):
        return None
    same = isinstance(store, Path) and real(store) == real(path / "state.db")
    return None if same else store


def home_kind(path: Path) -> str:
    """Tell what kind of home a folder is: ``heaveto``, ``lionagi`` or ``new``.

    Raises:
        HomeError: It is none, it cannot be read, or its database cannot.
    """
    try:
        names = set(os.listdir(path))
    except FileNotFoundError:
        return "new"
    except OSError as error:
        raise HomeError(f"the home cannot be read: {path} ({error.strerror})") from None
    if "state.db" in names and (kind := _kind_of_database(path / "state.db", path)):
        return kind
    if kind := _kind_of_runs(Home(path)):
        return kind
    strange = sorted(name for name in names - _OWN_NAMES if not name.startswith("."))
    if strange:
        raise HomeError(f"this is no home of heaveto or lionagi: {path}")
    return "new"


def _kind_of_database(path: Path, home: Path) -> str | None:
    """Return the lineage of a home's database; None when it has no tables."""
    try:
        schema = peek(path, busy=_BUSY)
    except StateDBError as error:
        if error.code == "db_busy":  # what it is does not hang on who holds it now
            return _kind_of_runs(Home(home)) or "heaveto"
        raise HomeError(error.message, code=error.code) from None
    if schema.lineage in ("heaveto", "lionagi"):
        return schema.lineage
    if schema.tables:
        # Old databases of lionagi do not say what they are; their runs do.
        if _kind_of_runs(Home(home)) == "lionagi":
            return "lionagi"
        raise HomeError(f"the database is neither heaveto's nor lionagi's: {path}")
    return None


def _kind_of_runs(home: Home) -> str | None:
    """Return the kind by what the records of runs hold."""
    for name in run_names(home)[-_LOOKED_AT:]:
        try:
            with open(home.runs / name / "run.json", "rb") as stream:
                found = json.loads(stream.read(RUN_JSON_LIMIT))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(found, dict) and "branch_id" in found:
            return "lionagi"
        if isinstance(found, dict) and "checkpoint_format" in found:
            return "heaveto"
    return None
