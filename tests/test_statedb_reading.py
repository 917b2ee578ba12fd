"""Reading a state database: nothing changes, nothing crashes, nothing goes unseen."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
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
    sql,
)
from heaveto.errors import StateDBError
from heaveto.statedb import ReadDB, peek, writing
from heaveto.statedb.opening import HERE, identity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heaveto.runs import Home

SID = "ab" * 16

CRASH = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA wal_autocheckpoint = 0")
db.execute("UPDATE sessions SET name = 'in the log'")
os._exit(0)
"""

HOLD = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("UPDATE sessions SET name = 'held'")
print("ready", flush=True)
for line in sys.stdin:
    db.execute("UPDATE sessions SET name = ?", (line.strip(),))
    print("done", flush=True)
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = make_home(tmp_path / "home")
    add_session(made, SID)
    add_control(made, "c" * 32, SID)
    return made


def name_in(path: Path) -> str | None:
    with ReadDB.open(path) as database:
        session = database.session(SID)
        assert session is not None
        return session.name


def list_all(path: Path) -> None:
    with ReadDB.open(path) as database:
        database.sessions()
        database.controls()


def test_absent_database_is_reported_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(StateDBError) as caught:
        ReadDB.open(tmp_path / "state.db")
    assert caught.value.code == "db_missing"
    assert list(tmp_path.iterdir()) == []


def test_clean_database_is_read_without_a_trace(home: Home) -> None:
    before = fingerprint(home.path)
    with ReadDB.open(home.state_db) as database:
        assert [row.id for row in database.sessions()] == [SID]
        assert [row.id for row in database.controls(SID)] == ["c" * 32]
        assert database.signals(SID) == []
        assert fingerprint(home.path) == before
    assert fingerprint(home.path) == before


@pytest.mark.parametrize("keep_shm", [True, False])
def test_database_left_by_a_crash_is_read_with_its_log(
    home: Home, keep_shm: bool
) -> None:
    run_child(CRASH, home.state_db)
    if not keep_shm:
        os.unlink(f"{home.state_db}-shm")
    before = fingerprint(home.path)
    assert name_in(home.state_db) == "in the log"
    assert fingerprint(home.path) == before


@pytest.mark.parametrize("shm", [None, b"", b"\0" * 32768])
@pytest.mark.parametrize("log", [b"", b"\0" * 32, b"no log at all" * 400])
def test_a_log_without_a_frame_hides_nothing(
    home: Home, log: bytes, shm: bytes | None
) -> None:
    """A checkpoint empties the log, a crash can come before its first frame."""
    sql(home, "UPDATE sessions SET name = 'in the file'")
    Path(f"{home.state_db}-wal").write_bytes(log)
    if shm is not None:
        Path(f"{home.state_db}-shm").write_bytes(shm)
    before = fingerprint(home.path)
    assert name_in(home.state_db) == "in the file"
    assert fingerprint(home.path) == before


def test_text_that_is_no_utf8_is_read_and_not_quoted(home: Home) -> None:
    sql(home, "UPDATE sessions SET name = CAST(x'61ff62' AS TEXT)")
    sql(home, "UPDATE sessions SET node_metadata = CAST(x'7b22ff' AS TEXT)")
    with ReadDB.open(home.state_db) as database:
        for _ in range(2):
            [row] = database.sessions()
            assert row.name == "a\ufffdb"
            assert row.node_metadata == {}
            assert row.metadata_raw == '{"\ufffd'
            assert "ff" not in repr(row.node_metadata)


def test_hot_rollback_journal_is_rolled_back_in_a_copy_only(home: Home) -> None:
    sql(home, "PRAGMA journal_mode = DELETE")
    run_child(
        "import os, sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "db.execute('PRAGMA cache_size = 1')\n"
        "db.execute('PRAGMA cache_spill = 1')\n"
        "db.execute('BEGIN IMMEDIATE')\n"
        "db.execute(\"UPDATE sessions SET name = 'half done'\")\n"
        "for n in range(200):\n"
        "    db.execute(\"INSERT INTO plays VALUES (?, ?, 'x', NULL, 1, 1, 1, 1)\","
        " (str(n), 'n' * 4000))\n"
        "os._exit(0)\n",
        home.state_db,
    )
    assert os.path.getsize(f"{home.state_db}-journal") > 0
    before = fingerprint(home.path)
    assert name_in(home.state_db) is None
    assert fingerprint(home.path) == before


def test_beside_a_live_writer_new_rows_are_seen_and_nothing_is_added(
    home: Home,
) -> None:
    with child(HOLD, home.state_db) as writer:
        writer.expect("ready")
        names = sorted(os.listdir(home.path))
        with ReadDB.open(home.state_db) as database:
            first = database.data_version()
            writer.tell("newer")
            writer.expect("done")
            found = database.session(SID)
            assert found is not None
            assert found.name == "newer"
            assert database.data_version() != first
        assert sorted(os.listdir(home.path)) == names


def test_reader_of_a_quiet_file_sees_a_writer_that_begins_later(home: Home) -> None:
    with ReadDB.open(home.state_db) as database:
        first = database.data_version()
        assert database.session(SID) is not None
        with child(HOLD, home.state_db) as writer:
            writer.expect("ready")
            found = database.session(SID)
            assert found is not None
            assert found.name == "held"
            assert database.data_version() != first


@pytest.mark.parametrize("state", ["quiet", "crashed", "live"])
def test_link_to_a_database_is_followed_to_its_log(
    home: Home, tmp_path: Path, state: str
) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(home.state_db)
    if state == "quiet":
        assert name_in(link) is None
    elif state == "crashed":
        run_child(CRASH, home.state_db)
        assert name_in(link) == "in the log"
    else:
        with child(HOLD, home.state_db) as writer:
            writer.expect("ready")
            assert name_in(link) == "held"
    assert sorted(os.listdir(tmp_path)) == ["home", "link.db"]


def test_replaced_file_is_noticed(home: Home, tmp_path: Path) -> None:
    other = make_home(tmp_path / "other")
    add_session(other, SID, status="completed")
    with ReadDB.open(home.state_db) as database:
        os.replace(other.state_db, home.state_db)
        found = database.session(SID)
        assert found is not None
        assert found.status == "completed"
        os.unlink(home.state_db)
        with pytest.raises(StateDBError) as caught:
            database.sessions()
        assert caught.value.code == "db_missing"


def test_closing_an_unlocked_reader_keeps_the_locks_of_this_process(
    home: Home,
) -> None:
    reader = ReadDB.open(home.state_db)
    with writing(home.state_db, busy=1, own=True) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE sessions SET name = 'mine'")
        assert HERE.locks(identity(home.state_db))
        reader.close()
        # Another process asks the system: the lock must still be there.
        said = run_child(
            "import sqlite3, sys\n"
            "db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=0)\n"
            "try:\n"
            "    db.execute('BEGIN IMMEDIATE')\n"
            "    print('lock lost')\n"
            "except sqlite3.OperationalError as error:\n"
            "    print(error)\n",
            home.state_db,
        )
        assert said.strip() == "database is locked"
        connection.execute("COMMIT")
    assert not HERE.locks(identity(home.state_db))
    assert name_in(home.state_db) == "mine"


def test_log_does_not_grow_behind_an_open_reader(home: Home) -> None:
    log = Path(f"{home.state_db}-wal")
    with child(HOLD, home.state_db) as writer:
        writer.expect("ready")
        with ReadDB.open(home.state_db) as database:
            for number in range(1500):
                writer.tell(f"{number}" * 300)
                writer.expect("done")
                if number % 50 == 0:
                    assert database.session(SID) is not None
            assert log.stat().st_size < 16 << 20


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may enter, which those of pytest are not."""
    path = Path(tempfile.mkdtemp(prefix="heaveto-test-"))
    path.chmod(0o755)
    yield path
    for folder in (path, *path.rglob("*")):
        if folder.is_dir():
            folder.chmod(0o755)
    shutil.rmtree(path)


READ_AS_NOBODY = """
import os, sys, tempfile  # here: nobody may be kept from the library's own folder
from pathlib import Path
from heaveto.errors import StateDBError
from heaveto.statedb import ReadDB
if os.getuid() == 0:
    os.setuid(65534)
try:
    with ReadDB.open(Path(sys.argv[1])) as db:
        print(db.sessions()[0].name)
except StateDBError as error:
    print(error.code, error)
"""


def close_to_writing(home: Home) -> None:
    for path in home.path.iterdir():
        path.chmod(0o555 if path.is_dir() else 0o444)
    home.path.chmod(0o555)


@pytest.mark.parametrize("state", ["quiet", "crashed"])
def test_folder_we_may_not_write_is_read(open_folder: Path, state: str) -> None:
    home = make_home(open_folder / "home")
    add_session(home, SID)
    if state == "crashed":
        run_child(CRASH, home.state_db)
    close_to_writing(home)
    before = fingerprint(home.path)
    said = run_child(READ_AS_NOBODY, home.state_db)
    assert said.strip() == ("in the log" if state == "crashed" else "None")
    assert fingerprint(home.path) == before


def test_live_database_in_a_folder_we_may_not_write_is_read(open_folder: Path) -> None:
    home = make_home(open_folder / "home")
    add_session(home, SID)
    with child(HOLD, home.state_db) as writer:
        writer.expect("ready")
        close_to_writing(home)
        assert run_child(READ_AS_NOBODY, home.state_db).strip() == "held"
        writer.tell("newer")
        writer.expect("done")
        assert run_child(READ_AS_NOBODY, home.state_db).strip() == "newer"


def test_file_we_may_not_read_is_named_as_such(open_folder: Path) -> None:
    home = make_home(open_folder / "home")
    home.path.chmod(0o755)
    home.state_db.chmod(0)
    said = run_child(READ_AS_NOBODY, home.state_db)
    assert said.startswith("db_readonly no permission")


# --- what is damaged, old, foreign or hostile


def test_undecodable_json_is_surfaced_as_text(home: Home) -> None:
    sql(home, "UPDATE sessions SET node_metadata = '{\"pid\": 1'")
    sql(home, "UPDATE session_controls SET payload = 'not json', verb = 'message'")
    with ReadDB.open(home.state_db) as database:
        [session] = database.sessions()
        [control] = database.controls()
    assert session.node_metadata == {}
    assert session.metadata_raw == '{"pid": 1'
    assert (control.payload, control.payload_raw, control.text) == (
        None,
        "not json",
        "",
    )


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ("null", ""),
        ("[]", ""),
        ("3", ""),
        ('{"text": 5}', ""),
        ('{"other": 1}', ""),
        ('{"text": ""}', ""),
        ('{"text": "x\\udc00"}', "x\udc00"),
        ('{"text": NaN}', ""),
        pytest.param("[" * 3000, "", id="deep"),
    ],
)
def test_payload_of_any_kind_has_a_text(home: Home, payload: str, text: str) -> None:
    sql(home, "UPDATE session_controls SET payload = ?", (payload,))
    with ReadDB.open(home.state_db) as database:
        assert database.controls()[0].text == text


def test_columns_of_any_type_are_read(home: Home) -> None:
    sql(
        home,
        "UPDATE sessions SET name = x'ff00', run_id = 12, created_at = 'soon',"
        " updated_at = 9e999, started_at = x'00',"
        " current_phase = CAST(x'fffe41' AS TEXT)",
    )
    with ReadDB.open(home.state_db) as database:
        [session] = database.sessions()
    assert session.name == "\ufffd\x00"
    assert session.run_id == "12"
    assert (session.created_at, session.updated_at, session.started_at) == (None,) * 3
    assert session.current_phase == "\ufffd\ufffdA"


def test_older_tables_and_missing_ones_are_read(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE sessions (id TEXT, status TEXT, updated_at REAL)")
        made.execute("INSERT INTO sessions VALUES ('s', 'running', 1)")
        made.execute(
            "CREATE TABLE session_controls (id TEXT, session_id TEXT, verb TEXT,"
            " created_at REAL, applied_at REAL, result TEXT)"
        )
        made.execute(
            "INSERT INTO session_controls VALUES ('c', 's', 'pause', 1, 2, 'x')"
        )
    made.close()
    with ReadDB.open(path) as database:
        assert database.sessions()[0].node_metadata == {}
        assert database.controls("s")[0].by is None
        assert database.signals("s") == []
        assert database.transitions("s") == []


def test_value_beyond_all_bounds_does_not_hide_the_others(home: Home) -> None:
    add_session(home, "cd" * 16, updated_at=2.0)
    sql(
        home,
        "UPDATE sessions SET node_metadata = zeroblob(70000000) WHERE id = ?",
        (SID,),
    )
    with ReadDB.open(home.state_db) as database:
        newer, older = database.sessions()
    assert newer.poller == "active"
    assert (older.id, older.status, older.node_metadata) == (SID, "running", {})
    assert older.metadata_raw == "(too large to read)"


def test_long_values_are_cut(home: Home) -> None:
    sql(home, "UPDATE sessions SET name = ?", ("n" * 1_000_000,))
    with ReadDB.open(home.state_db) as database:
        [session] = database.sessions()
    assert session.name == "n" * 4096


@pytest.mark.parametrize("damage", ["text", "zeros", "half"])
def test_damaged_file_is_a_typed_error(home: Home, damage: str) -> None:
    for number in range(400):
        add_control(home, f"{number:032x}", SID)
    content = home.state_db.read_bytes()
    home.state_db.write_bytes(
        {
            "text": b"this is no database, but a text that is long enough" * 100,
            "zeros": b"\0" * len(content),
            "half": content[: len(content) // 2],
        }[damage]
    )
    with pytest.raises(StateDBError) as caught:
        list_all(home.state_db)
    assert caught.value.code == "db_corrupt"


def test_empty_file_is_a_database_without_tables(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.touch()
    assert peek(path).tables == frozenset()
    with ReadDB.open(path) as database:
        assert database.sessions() == []
    assert path.stat().st_size == 0


def test_folder_or_fifo_in_place_of_the_file_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    for name in ("folder", "fifo"):
        with pytest.raises(StateDBError):
            ReadDB.open(tmp_path / name)


def test_endless_view_in_place_of_a_table_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heaveto.statedb.reading._QUERY_SECONDS", 0.05)
    path = tmp_path / "state.db"
    with sqlite3.connect(path) as made:
        made.execute(
            "CREATE VIEW sessions AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL"
            " SELECT id + 1 FROM n) SELECT id, 1.0 AS updated_at FROM n"
        )
    made.close()
    with ReadDB.open(path) as database, pytest.raises(StateDBError):
        database.sessions()


def test_reading_cannot_write(home: Home) -> None:
    with ReadDB.open(home.state_db) as database, pytest.raises(StateDBError):
        database._ask("UPDATE sessions SET status = 'failed'")


def test_signals_are_paged_by_sequence_whatever_their_times(home: Home) -> None:
    with writing(home.state_db, busy=5, own=True) as connection:
        connection.executemany(
            "INSERT INTO session_signals VALUES (?, ?, ?, 'NodeQueued', 'o', 7, '{}')",
            [(f"{seq:032x}", SID, seq) for seq in range(1, 1201)],
        )
    with ReadDB.open(home.state_db) as database:
        seen: list[int] = []
        while page := database.signals(SID, seen[-1] if seen else 0, limit=500):
            seen += [row.seq for row in page]
    assert seen == list(range(1, 1201))


def test_foreign_homes_are_read_as_they_are(tmp_path: Path) -> None:
    source = Path(__file__).parent / "golden" / "lionagi" / "state.sql"
    path = tmp_path / "state.db"
    with sqlite3.connect(path) as made:
        made.executescript(source.read_text())
        made.execute("PRAGMA journal_mode = WAL")
    made.close()
    before = fingerprint(tmp_path)
    with ReadDB.open(path) as database:
        assert (database.schema.lineage, database.schema.version) == ("lionagi", 4)
        [session] = database.sessions()
        controls = database.controls(session.id)
    assert session.poller == "active"
    assert [control.result for control in controls] == ["applied", "applying", None]
    assert controls[2].payload is None
    assert fingerprint(tmp_path) == before


def test_copy_beside_the_file_is_no_trace_in_the_temporary_folder(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_child(CRASH, home.state_db)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    with ReadDB.open(home.state_db) as database:
        assert list(scratch.iterdir()) == []
        assert database.session(SID) is not None
    shutil.rmtree(scratch)
