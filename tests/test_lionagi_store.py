"""lionagi's database is not always in its home: LIONAGI_STATE_DB_URL."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from harness.lionagi import build, make
from heaveto.controls import enqueue
from heaveto.errors import HomeError, StateDBError
from heaveto.homes import lionagi_store, open_home
from heaveto.observe import Observer

if TYPE_CHECKING:
    from pathlib import Path

    from heaveto.runs import Home


def _environ(home: Home, url: str) -> dict[str, str]:
    return {"LIONAGI_HOME": str(home.path), "LIONAGI_STATE_DB_URL": url}


@pytest.mark.parametrize("form", ["{}", "sqlite:///{}", "sqlite+aiosqlite:///{}?x=1"])
def test_the_database_that_lionagi_was_told_of_is_read(
    tmp_path: Path, form: str
) -> None:
    home = make("normal", tmp_path / "home")
    other = tmp_path / "store" / "li.db"
    other.parent.mkdir()
    home.state_db.rename(other)
    build(home.state_db, "CREATE TABLE sessions(id TEXT PRIMARY KEY);")  # an old one
    found = open_home(home.path, _environ(home, form.format(other)))
    assert (found.kind, found.state_db) == ("lionagi", other)
    with Observer([found]) as observer:
        [run] = observer.list_runs()
        assert (run.state, run.nodes["total"]) == ("completed", 7)
        assert observer.read_run(run.session_id).run.run_id == run.run_id
    # It is the database of that home, and of no other.
    elsewhere = make("failed", tmp_path / "elsewhere")
    again = open_home(elsewhere.path, _environ(home, str(other)))
    assert again.state_db == elsewhere.state_db


def test_a_database_that_is_no_file_is_said_and_no_old_one_shown(
    tmp_path: Path,
) -> None:
    home = make("failed", tmp_path / "home")
    for folder in home.runs.iterdir():
        os.utime(folder, (1.0, 1.0))
    url = "postgresql+asyncpg://joe:secret@db.example/state"
    found = open_home(home.path, _environ(home, url))
    with Observer([found]) as observer:
        [run] = observer.list_runs()
        [view] = observer.health()
        assert run.session_id == ""
        assert "row_missing" in [one.code for one in run.warnings]
        assert view.problem is not None
        assert view.problem.code == "db_elsewhere"
        assert "PostgreSQL" in view.problem.text
        assert "secret" not in repr(view)
        assert observer.read_run(run.run_id).run.run_id == run.run_id
    with pytest.raises(StateDBError, match="PostgreSQL"):
        enqueue(found, "x", "pause")


def test_what_lionagi_is_told_of_need_not_be_there(tmp_path: Path) -> None:
    home = make("failed", tmp_path / "home")
    names = {
        ":memory:": "memory",
        "sqlite://": "memory",
        "mysql://h/db": "another server",
    }
    for url, word in names.items():
        assert lionagi_store({"LIONAGI_STATE_DB_URL": url}) == word
    assert lionagi_store({"LIONAGI_STATE_DB_URL": ""}) is None
    gone = open_home(home.path, _environ(home, str(tmp_path / "gone.db")))
    with Observer([gone]) as observer:
        observer.list_runs()
        assert all(not run.session_id for run in observer.listed())
    environ = {"HOME": str(tmp_path), **_environ(home, str(home.state_db))}
    assert open_home(home.path, environ) == home
    own = tmp_path / "own.db"
    build(
        own,
        "CREATE TABLE schema_meta(key, value);"
        " INSERT INTO schema_meta VALUES ('lineage', 'heaveto');",
    )
    with pytest.raises(HomeError, match="of heaveto"):
        open_home(home.path, _environ(home, str(own)))
