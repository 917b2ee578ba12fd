"""The state database: schema, one write path, cancellation, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import sqlite3
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.steering import (
    add_control,
    add_session,
    child,
    fingerprint,
    make_home,
    run_child,
    run_children,
    sql,
)
from heaveto.errors import StateDBError
from heaveto.model import TERMINAL_RUN, RunStatus, Signal, SignalKind
from heaveto.statedb import ReadDB, busy_timeout, peek, prepare, writing
from heaveto.statedb.opening import mapped
from heaveto.statedb.statements import LOG_LENGTH
from heaveto.statedb.store import StateDB

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from heaveto.runs import Home

SID = "ab" * 16

LOCK = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
db.execute("ROLLBACK")
print("free", flush=True)
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return make_home(tmp_path / "home")


@pytest.fixture
async def db(home: Home) -> AsyncIterator[StateDB]:
    async with await StateDB.open(home.state_db) as opened:
        await opened.create_session(
            session_id=SID, run_id="20261129T101500-a1b2c3", name="x", metadata={}
        )
        yield opened


# --- schema


def test_controls_table_is_the_one_of_the_contract(home: Home) -> None:
    columns = {
        name: (kind, not_null, key)
        for _, name, kind, not_null, _, key in sql(
            home, "PRAGMA table_info(session_controls)"
        )
    }
    assert columns == {
        "id": ("TEXT", 1, 1),
        "session_id": ("TEXT", 1, 0),
        "verb": ("TEXT", 1, 0),
        "payload": ("JSON", 0, 0),
        "created_at": ("REAL", 1, 0),
        "claimed_at": ("REAL", 0, 0),
        "applied_at": ("REAL", 0, 0),
        "result": ("TEXT", 0, 0),
        "by": ("TEXT", 0, 0),
        "host": ("TEXT", 0, 0),
    }
    [key] = sql(home, "PRAGMA foreign_key_list(session_controls)")
    assert key[2:7] == ("sessions", "session_id", "id", "NO ACTION", "CASCADE")
    [(index,)] = sql(
        home,
        "SELECT sql FROM sqlite_master WHERE name = 'idx_session_controls_pending'",
    )
    assert index.endswith("(session_id, applied_at) WHERE applied_at IS NULL")


def test_sessions_table_has_every_column_of_the_contract(home: Home) -> None:
    columns = {row[1] for row in sql(home, "PRAGMA table_info(sessions)")}
    wanted = (
        "id run_id status invocation_kind invocation_id node_metadata current_phase"
        " artifact_contract_json artifact_verification_json project created_at"
        " updated_at started_at ended_at status_reason_code"
    )
    assert columns >= set(wanted.split())


def test_verbs_are_closed_at_schema_level(home: Home) -> None:
    add_session(home, SID)
    for number, verb in enumerate(("pause", "resume", "message", "stop")):
        add_control(home, f"{number:032x}", SID, verb)
    with pytest.raises(StateDBError):
        add_control(home, "f" * 32, SID, "kill")


@pytest.mark.parametrize("kind", [None, "agent", "play", "flow", "fanout", "engine"])
def test_session_kinds_are_closed_at_schema_level(home: Home, kind: str | None) -> None:
    add_session(home, SID, kind=kind)
    with pytest.raises(StateDBError):
        sql(home, "UPDATE sessions SET invocation_kind = 'workflow'")


def test_controls_go_with_their_session(home: Home) -> None:
    add_session(home, SID)
    add_control(home, "c" * 32, SID)
    sql(home, "DELETE FROM sessions")
    assert sql(home, "SELECT count(*) FROM session_controls") == [(0,)]


@pytest.mark.parametrize("mask", [0, 0o022, 0o077])
def test_files_are_ours_alone_from_the_first_moment(tmp_path: Path, mask: int) -> None:
    said = run_child(
        "import os, sys, asyncio; from pathlib import Path\n"
        "from heaveto.runs import Home\n"
        "from heaveto.statedb.store import StateDB\n"
        "os.umask(int(sys.argv[2]))\n"
        "home = Home(Path(sys.argv[1])); home.make()\n"
        "async def main():\n"
        "    async with await StateDB.open(home.state_db) as db:\n"
        "        await db.create_session(session_id='s', run_id='r', name=None,"
        " metadata={})\n"
        "        for path in [home.path, *sorted(home.path.iterdir())]:\n"
        "            print(path.name, oct(path.stat().st_mode & 0o777))\n"
        "asyncio.run(main())\n",
        tmp_path / "home",
        mask,
    )
    wanted = (
        "home 0o700 runs 0o700 state.db 0o600 state.db-shm 0o600 state.db-wal 0o600"
    )
    assert said.split() == wanted.split()


OPEN = """
import asyncio, sys
from pathlib import Path
from heaveto.statedb.store import StateDB
async def main():
    for number in range(int(sys.argv[2])):
        path = Path(sys.argv[1]) / str(number) / "state.db"
        async with await StateDB.open(path) as db:
            await db.create_session(session_id=sys.argv[3], run_id="r", name=None,
                                    metadata={})
asyncio.run(main())
"""


def open_together(folder: Path, processes: int, rounds: int) -> None:
    """Open fresh paths from several processes at once; each writes a row."""
    for number in range(rounds):
        (folder / str(number)).mkdir()
    run_children([(OPEN, (folder, rounds, f"s{n}")) for n in range(processes)])
    for number in range(rounds):
        with ReadDB.open(folder / str(number) / "state.db") as database:
            assert len(database.sessions()) == processes
            assert database.schema.version == 1


def test_first_opening_by_several_processes_applies_the_schema_once(
    tmp_path: Path,
) -> None:
    open_together(tmp_path, 4, 10)


@pytest.mark.slow
def test_first_opening_by_many_processes(tmp_path: Path) -> None:
    open_together(tmp_path, 10, 50)


# --- versions


def set_version(home: Home, version: str) -> None:
    sql(home, "UPDATE schema_meta SET value = ? WHERE key = 'version'", (version,))


@pytest.mark.parametrize("log", [False, True])
async def test_newer_file_is_refused_and_not_touched(home: Home, log: bool) -> None:
    add_session(home, SID)
    set_version(home, "99")
    if log:
        run_child(
            "import os, sqlite3, sys\n"
            "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
            "db.execute(\"UPDATE sessions SET name = 'in the log'\")\n"
            "os._exit(0)\n",
            home.state_db,
        )
    before = fingerprint(home.path)
    with pytest.raises(StateDBError) as caught:
        await StateDB.open(home.state_db)
    assert caught.value.code == "db_newer"
    assert "99" in str(caught.value)
    assert "1" in str(caught.value)
    assert fingerprint(home.path) == before


@pytest.mark.parametrize("version", ["", "two", "1.5", "-1"])
async def test_version_that_is_none_is_refused(home: Home, version: str) -> None:
    set_version(home, version)
    with pytest.raises(StateDBError):
        await StateDB.open(home.state_db)


async def test_file_of_another_program_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with contextlib.closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE notes (text TEXT)")
    before = fingerprint(tmp_path)
    with pytest.raises(StateDBError):
        await StateDB.open(path)
    assert fingerprint(tmp_path) == before


async def test_older_file_gets_what_it_lacks_and_keeps_its_rows(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state.db"
    with contextlib.closing(sqlite3.connect(path)) as made:
        made.executescript(
            """
            CREATE TABLE schema_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
            INSERT INTO schema_meta VALUES ('lineage', 'heaveto'), ('version', '0');
            CREATE TABLE sessions (id TEXT PRIMARY KEY, status TEXT, updated_at REAL,
                                   created_at REAL, invocation_id TEXT);
            INSERT INTO sessions VALUES ('old', 'completed', 1, 1, NULL);
            CREATE TABLE session_controls (id TEXT PRIMARY KEY, session_id TEXT,
                verb TEXT, payload JSON, created_at REAL, applied_at REAL, result TEXT);
            INSERT INTO session_controls VALUES ('c', 'old', 'stop', NULL, 1, 2, 'x');
            """
        )
    async with await StateDB.open(path) as opened:
        await opened.create_session(
            session_id="new", run_id="r", name=None, metadata={}
        )
    schema = peek(path)
    assert (schema.lineage, schema.version) == ("heaveto", 1)
    with ReadDB.open(path) as database:
        assert {row.id for row in database.sessions()} == {"old", "new"}
        [control] = database.controls("old")
        assert (control.result, control.by, control.claimed_at) == ("x", None, None)


# --- connection rules


async def test_rules_of_the_connection(home: Home) -> None:
    async with await StateDB.open(home.state_db, busy=1.25) as opened:
        found = {
            rule: (await opened._read(f"PRAGMA {rule}", ()))[0][0]
            for rule in ("journal_mode", "foreign_keys", "busy_timeout")
        }
    assert found == {"journal_mode": "wal", "foreign_keys": 1, "busy_timeout": 1250}


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("", 5.0), ("250", 0.25), (" 1e3 ", 1.0), ("0", 0.0)],
)
def test_busy_timeout_is_read_from_the_environment(given: str, seconds: float) -> None:
    assert busy_timeout({"HEAVETO_BUSY_TIMEOUT_MS": given}) == seconds


@pytest.mark.parametrize("given", ["soon", "-1", "nan", "inf", "1e300"])
def test_busy_timeout_that_is_none_falls_back_with_one_notice(
    given: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert busy_timeout({"HEAVETO_BUSY_TIMEOUT_MS": given}) == 5.0
    assert len(caplog.records) == 1


async def test_absent_file_is_not_made_unless_asked(tmp_path: Path) -> None:
    with pytest.raises(StateDBError) as caught:
        await StateDB.open(tmp_path / "state.db", create=False)
    assert caught.value.code == "db_missing"
    with pytest.raises(StateDBError):
        prepare(tmp_path / "state.db", create=False, busy=0)
    assert list(tmp_path.iterdir()) == []


async def test_busy_database_is_a_typed_error(home: Home) -> None:
    with child(LOCK, home.state_db) as other:
        other.expect("locked")
        with pytest.raises(StateDBError) as caught:
            async with await StateDB.open(home.state_db, busy=0.05) as opened:
                await opened.set_phase(SID, "executing")
        assert caught.value.code == "db_busy"


async def test_full_disk_is_a_typed_error_and_passes(db: StateDB) -> None:
    [(pages,)] = await db._read("PRAGMA page_count", ())
    await db._read(f"PRAGMA max_page_count = {pages}", ())
    with pytest.raises(StateDBError) as caught:
        await db.merge_metadata(SID, {"much": "x" * 100_000})
    assert caught.value.code == "db_full"
    await db._read("PRAGMA max_page_count = 1000000", ())
    await db.merge_metadata(SID, {"much": "x" * 100_000})


def test_errors_of_the_system_keep_their_meaning(tmp_path: Path) -> None:
    for number, code in ((28, "db_full"), (30, "db_readonly"), (5, "db_error")):
        with pytest.raises(StateDBError) as caught, mapped(tmp_path):
            raise OSError(number, os.strerror(number))
        assert caught.value.code == code


async def test_replaced_file_is_an_alarm(db: StateDB, tmp_path: Path) -> None:
    await db.verify()
    other = make_home(tmp_path / "other")
    os.replace(other.state_db, db.path)
    with pytest.raises(StateDBError) as caught:
        await db.set_status(SID, RunStatus.COMPLETED, reason_code="run.completed")
    assert caught.value.code == "db_replaced"


# --- the one write path of a status


@pytest.mark.parametrize("status", sorted(TERMINAL_RUN))
async def test_every_terminal_status_is_written_once_and_audited(
    db: StateDB, status: RunStatus
) -> None:
    await db.set_phase(SID, "executing")
    assert await db.set_status(SID, status, reason_code="why", actor="test")
    assert not await db.set_status(SID, "failed", reason_code="late")
    with ReadDB.open(db.path) as database:
        session = database.session(SID)
        assert session is not None
        assert (session.status, session.status_reason_code) == (status, "why")
        assert session.ended_at is not None
        assert session.current_phase is None
        begun, ended = database.transitions(SID)
    assert (begun.previous_status, begun.status) == (None, "running")
    assert (ended.previous_status, ended.status) == ("running", status)
    assert (ended.reason_code, ended.actor) == ("why", "test")


@pytest.mark.parametrize("status", ["done", "running", "", "COMPLETED"])
async def test_word_that_ends_no_run_is_refused(db: StateDB, status: str) -> None:
    with pytest.raises(StateDBError) as caught:
        await db.set_status(SID, status, reason_code="x")
    assert caught.value.code == "status_unknown"
    assert (await db.session(SID)).status == "running"  # type: ignore[union-attr]


async def test_phase_of_an_ended_run_stays_empty(db: StateDB) -> None:
    await db.set_status(SID, "failed", reason_code="x")
    await db.set_phase(SID, "executing")
    found = await db.session(SID)
    assert found is not None
    assert found.current_phase is None


async def test_two_judges_of_one_run_write_one_end(home: Home, db: StateDB) -> None:
    async with await StateDB.open(home.state_db) as other:
        written = await asyncio.gather(
            db.set_status(SID, "completed", reason_code="a"),
            other.set_status(SID, "failed", reason_code="b"),
        )
    assert sorted(written) == [False, True]
    with ReadDB.open(home.state_db) as database:
        assert len(database.transitions(SID)) == 2


# --- metadata


async def test_two_writers_lose_nothing_of_each_other(home: Home, db: StateDB) -> None:
    async with await StateDB.open(home.state_db) as other:

        async def write(one: StateDB, letter: str) -> None:
            for number in range(200):
                await one.merge_metadata(SID, {f"{letter}{number}": number})

        await asyncio.gather(write(db, "a"), write(other, "b"))
    found = await db.session(SID)
    assert found is not None
    names = {f"{letter}{number}" for letter in "ab" for number in range(200)}
    assert names <= set(found.node_metadata)


async def test_a_member_is_replaced_whole_and_null_is_kept(db: StateDB) -> None:
    await db.merge_metadata(SID, {"deep": {"a": 1, "b": 2}, "gone": 5})
    await db.merge_metadata(SID, {"deep": {"c": 3}, "gone": None, "text": "ü\0'\""})
    found = await db.session(SID)
    assert found is not None
    assert found.node_metadata["deep"] == {"c": 3}
    assert found.node_metadata["gone"] is None
    assert found.node_metadata["text"] == "ü\0'\""
    assert found.poller == "pending"


@pytest.mark.parametrize("name", ["a.b", 'a"', "", "a b", "$"])
async def test_member_name_that_could_be_a_path_is_refused(
    db: StateDB, name: str
) -> None:
    with pytest.raises(ValueError, match="plain name"):
        await db.merge_metadata(SID, {name: 1})


@pytest.mark.parametrize("damaged", ["{broken", "[1, 2]", '"text"'])
async def test_damaged_metadata_is_kept_aside(
    home: Home, db: StateDB, damaged: str
) -> None:
    sql(home, "UPDATE sessions SET node_metadata = ?", (damaged,))
    await db.merge_metadata(SID, {"new": 1})
    await db.log_controls(SID, [{"id": "c"}])
    found = await db.session(SID)
    assert found is not None
    assert found.node_metadata == {
        "_discarded_node_metadata": damaged,
        "new": 1,
        "controls": [{"id": "c"}],
    }


async def test_log_of_controls_keeps_order_and_only_the_newest(db: StateDB) -> None:
    items = [{"id": str(number), "ts": number / 2} for number in range(LOG_LENGTH + 7)]
    for start in range(0, len(items), 50):
        await db.log_controls(SID, items[start : start + 50])
    found = await db.session(SID)
    assert found is not None
    assert found.node_metadata["controls"] == items[7:]


async def test_log_of_controls_survives_a_strange_one(home: Home, db: StateDB) -> None:
    sql(home, 'UPDATE sessions SET node_metadata = \'{"controls": "odd"}\'')
    await db.log_controls(SID, [{"id": "c"}])
    found = await db.session(SID)
    assert found is not None
    assert found.node_metadata["controls"] == ["odd", {"id": "c"}]


# --- signals


def queued(number: int) -> Signal:
    return Signal(
        kind=SignalKind.QUEUED,
        operation_id=f"o{number}",
        name=f"n{number}",
        at=float(number),
        data={"depends_on": []},
    )


async def test_signals_are_numbered_from_one_for_each_session(db: StateDB) -> None:
    await db.create_session(session_id="other", run_id="r", name=None, metadata={})
    await db.emit_signals(SID, [queued(1), queued(2)])
    await db.emit_signals("other", [queued(3)])
    await db.emit_signals(SID, [])
    await asyncio.gather(*(db.emit_signals(SID, [queued(n)]) for n in range(3, 9)))
    with ReadDB.open(db.path) as database:
        assert [row.seq for row in database.signals(SID)] == list(range(1, 9))
        assert [row.seq for row in database.signals("other")] == [1]
        [second] = database.signals(SID, 1, limit=1)
    assert second.op_id == "o2"
    assert second.payload == {"op_id": "o2", "name": "n2", "depends_on": []}


async def test_sequence_numbers_are_unique(home: Home, db: StateDB) -> None:
    await db.emit_signals(SID, [queued(1)])
    with pytest.raises(StateDBError):
        sql(
            home,
            "INSERT INTO session_signals VALUES ('x', ?, 1, 'k', '', 1, '{}')",
            (SID,),
        )


# --- cancellation, threads, exit


async def test_cancelled_wait_for_the_lock_leaves_no_transaction(
    home: Home, db: StateDB
) -> None:
    with child(LOCK, home.state_db) as other:
        other.expect("locked")
        waiting = asyncio.create_task(db.merge_metadata(SID, {"late": 1}))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        other.tell()
        other.expect("free")
    # The loop is blocked from here on: another connection must not wait for it.
    with writing(home.state_db, busy=5, own=True) as connection:
        connection.execute("UPDATE sessions SET name = 'other'")
    await db.set_phase(SID, "executing")


async def test_failed_transaction_leaves_nothing_behind(
    home: Home, db: StateDB
) -> None:
    with pytest.raises(StateDBError):
        await db.create_session(session_id=SID, run_id="r", name=None, metadata={})
    with writing(home.state_db, busy=0, own=True) as connection:
        connection.execute("UPDATE sessions SET name = 'other'")
    with ReadDB.open(home.state_db) as database:
        assert len(database.transitions(SID)) == 1


async def test_cancelled_opening_leaks_no_thread(home: Home) -> None:
    await asyncio.to_thread(int)
    chance = random.Random(5)
    before = threading.active_count()
    cancelled = 0
    for _ in range(60):
        opening = asyncio.create_task(StateDB.open(home.state_db))
        for _ in range(chance.randrange(40)):
            await asyncio.sleep(0)
        if chance.random() < 0.5:
            await asyncio.sleep(chance.random() * 0.008)
        opening.cancel()
        try:
            opened = await opening
        except asyncio.CancelledError:
            cancelled += 1
        else:
            await opened.close()
    assert cancelled > 10
    workers = [
        thread
        for thread in threading.enumerate()
        if "_connection_worker_thread" in thread.name
    ]
    for thread in workers:  # it says that it has closed, and then returns
        await asyncio.to_thread(thread.join, 60)
    assert [thread for thread in workers if thread.is_alive()] == []
    assert threading.active_count() <= before + 8  # the loop's own pool


@pytest.mark.parametrize("way", ["error", "interrupt", "closed twice"])
def test_process_ends_when_the_work_does(home: Home, way: str) -> None:
    with child(
        "import asyncio, os, signal, sys; from pathlib import Path\n"
        "from heaveto.statedb.store import StateDB\n"
        "async def main():\n"
        "    async with await StateDB.open(Path(sys.argv[1])) as db:\n"
        "        if sys.argv[2] == 'error': raise ValueError\n"
        "        if sys.argv[2] == 'interrupt':\n"
        "            os.kill(os.getpid(), signal.SIGINT); await asyncio.sleep(9)\n"
        "        await db.close()\n"
        "try: asyncio.run(main())\n"
        "except (ValueError, KeyboardInterrupt): pass\n",
        home.state_db,
        way,
    ) as running:
        assert running.end() == 0


async def test_closed_database_says_so(db: StateDB) -> None:
    await db.close()
    await db.close()
    with pytest.raises(StateDBError):
        await db.set_phase(SID, "executing")


WRITE = """
import sys
from pathlib import Path
from heaveto.controls import enqueue
from heaveto.runs import Home
home = Home(Path(sys.argv[1]))
for number in range(int(sys.argv[3])):
    enqueue(home, sys.argv[2], "pause")
"""


def write_together(home: Home, processes: int, each: int) -> None:
    """Enqueue from several processes while a reader looks and a runner writes."""
    add_session(home, SID)
    run_children([(WRITE, (home.path, SID, each)) for _ in range(processes)])
    with ReadDB.open(home.state_db) as database:
        assert len(database.controls(SID)) == processes * each


async def test_parallel_writers_lose_no_row(home: Home) -> None:
    write = asyncio.to_thread(write_together, home, 3, 60)
    task = asyncio.create_task(write)
    async with await StateDB.open(home.state_db) as opened:
        with ReadDB.open(home.state_db) as database:
            while not task.done():
                await opened.create_session(
                    session_id=os.urandom(8).hex(), run_id="r", name=None, metadata={}
                )
                database.sessions()
                await asyncio.sleep(0.005)
    await task


@pytest.mark.slow
def test_many_parallel_writers_lose_no_row(home: Home) -> None:
    write_together(home, 8, 500)


def test_own_files_keep_their_mode(home: Home) -> None:
    add_session(home, SID)
    assert stat.S_IMODE(home.state_db.stat().st_mode) == 0o600
