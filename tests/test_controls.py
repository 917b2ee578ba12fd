"""The sender's side: admission, liveness, texts, classes, resolve."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from heaveto.controls import (
    MESSAGE_LIMIT,
    Receipt,
    acknowledgement,
    check_text,
    classify,
    enqueue,
    enqueue_async,
    resolve,
    resolve_async,
)
from heaveto.controls.words import (
    claim_text,
    error_result,
    resolved,
    unsupported,
)
from heaveto.errors import (
    ControlError,
    ForeignOwnerError,
    HeavetoError,
    StateDBError,
)
from heaveto.liveness import Liveness
from heaveto.runs import Home, RunDir
from heaveto.statedb import ControlRow, ReadDB, SessionRow

if TYPE_CHECKING:
    from collections.abc import Callable

SID = "ab" * 16
RUN = "20261129T101500-a1b2c3"
VERBS = ("pause", "resume", "stop", "message")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return make_home(tmp_path / "home")


@pytest.fixture
def foreign(tmp_path: Path) -> Home:
    """A home of lionagi's with one session, run by this process."""
    path = tmp_path / "lionagi"
    path.mkdir(mode=0o755)
    script = Path(__file__).parent / "golden" / "lionagi" / "state.sql"
    made = sqlite3.connect(path / "state.db")
    made.executescript(script.read_text())
    made.execute("PRAGMA journal_mode = WAL")
    made.execute("DELETE FROM sessions WHERE 0")
    made.close()
    home = Home(path, "lionagi")
    (path / "state.db").chmod(0o644)
    return home


FOREIGN_SID = "2fb1b803-b622-41ac-8ea4-5abad52eab7e"


def alive(_: Home, __: SessionRow) -> Liveness:
    return Liveness(alive=True, why="told")


def dead(_: Home, __: SessionRow) -> Liveness:
    return Liveness(alive=False, why="process 42 is gone")


def unknown(_: Home, __: SessionRow) -> Liveness:
    return Liveness(alive=None, why="another machine")


def rows(home: Home) -> list[ControlRow]:
    with ReadDB.open(home.state_db) as database:
        return database.controls()


def refused(code: str, call: Callable[[], object]) -> ControlError:
    with pytest.raises(ControlError) as caught:
        call()
    assert caught.value.code == code
    return caught.value


# --- admission


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", ["flow", "play"])
@pytest.mark.parametrize("marker", ["pending", "active"])
def test_flow_with_a_consumer_takes_every_verb(
    home: Home, verb: str, kind: str, marker: str
) -> None:
    add_session(home, SID, run_id=RUN, kind=kind, marker=marker)
    receipt = enqueue(home, SID, verb, text="hello", by="alice", clock=lambda: 7.5)
    payload = '{"text":"hello"}' if verb == "message" else None
    [stored] = sql(home, "SELECT * FROM session_controls")
    identifier = stored[0]
    assert re.fullmatch("[0-9a-f]{32}", identifier)
    assert stored[1:] == (
        SID,
        verb,
        payload,
        7.5,
        None,
        None,
        None,
        "alice",
        socket.gethostname(),
    )
    assert (receipt.control.id, receipt.run_id) == (identifier, RUN)
    assert (receipt.kind, receipt.poller) == (kind, marker)
    assert receipt.warnings == ()


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", [None, "agent", "fanout", "show-play", "engine"])
def test_kinds_without_a_consumer_take_nothing(
    home: Home, verb: str, kind: str | None
) -> None:
    add_session(home, SID, kind=kind)
    code = "unsupported_kind"
    if kind == "agent" and verb == "message":
        code = "no_consumer"
    error = refused(code, lambda: enqueue(home, SID, verb, alive=alive))
    if kind == "agent":
        assert "agent" in str(error)
        assert verb in str(error) or verb == "message"
    assert rows(home) == []


def test_agent_that_drains_takes_messages_alone(home: Home) -> None:
    add_session(home, SID, kind="agent", metadata={"drains_controls": True})
    enqueue(home, SID, "message", text="x", alive=alive)
    refused("unsupported_kind", lambda: enqueue(home, SID, "stop", alive=alive))
    sql(home, "UPDATE sessions SET run_id = NULL")
    refused("no_consumer", lambda: enqueue(home, SID, "message", alive=alive))
    assert len(rows(home)) == 1


@pytest.mark.parametrize(
    ("marker", "code"),
    [("stopped", "poller_stopped"), (None, "no_consumer"), ("odd", "no_consumer")],
)
def test_flow_without_a_consumer_takes_nothing(
    home: Home, marker: str | None, code: str
) -> None:
    add_session(home, SID, marker=marker)
    refused(code, lambda: enqueue(home, SID, "pause"))
    sql(home, "UPDATE sessions SET node_metadata = 'broken'")
    refused("no_consumer", lambda: enqueue(home, SID, "pause", alive=alive))
    assert rows(home) == []


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled", "timed_out"])
def test_ended_run_takes_nothing_and_says_how_it_ended(home: Home, status: str) -> None:
    add_session(home, SID, status=status)
    error = refused("not_running", lambda: enqueue(home, SID, "pause"))
    assert status in str(error)
    assert rows(home) == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("UPDATE sessions SET status = 'failed'", "not_running"),
        (
            "UPDATE sessions SET node_metadata ="
            " json_set(node_metadata, '$.flow_control_poller', 'stopped')",
            "poller_stopped",
        ),
        ("DELETE FROM sessions", "unknown_session"),
    ],
)
def test_what_changes_after_the_look_is_seen_by_the_insert(
    home: Home, change: str, code: str
) -> None:
    add_session(home, SID)

    def then(_: Home, __: SessionRow) -> Liveness:
        sql(home, change)
        return Liveness(alive=True, why="told")

    error = refused(code, lambda: enqueue(home, SID, "message", text="x", alive=then))
    if code == "not_running":
        assert "failed" in str(error)
    assert rows(home) == []


def test_unknown_session_and_missing_database(home: Home, tmp_path: Path) -> None:
    refused("unknown_session", lambda: enqueue(home, SID, "pause"))
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(StateDBError) as caught:
        enqueue(Home(empty), SID, "pause")
    assert caught.value.code == "db_missing"
    assert list(empty.iterdir()) == []


def test_unknown_verb_is_no_control(home: Home) -> None:
    add_session(home, SID)
    with pytest.raises(ValueError, match="kill"):
        enqueue(home, SID, "kill")
    assert rows(home) == []


# --- liveness


def test_dead_run_is_refused_with_the_reason(home: Home) -> None:
    add_session(home, SID)
    error = refused("dead_run", lambda: enqueue(home, SID, "pause", alive=dead))
    assert "process 42 is gone" in str(error)
    assert rows(home) == []


def test_run_that_cannot_be_judged_is_accepted_with_a_warning(home: Home) -> None:
    add_session(home, SID, metadata={"pid_host": "elsewhere"})
    receipt = enqueue(home, SID, "pause")
    assert len(receipt.warnings) == 1
    assert "elsewhere" in receipt.warnings[0]
    assert len(rows(home)) == 1


def test_recorded_process_that_is_gone_refuses(home: Home) -> None:
    with child("print('up', flush=True)") as other:
        other.expect("up")
        gone = other.pid
        other.end()
    add_session(home, SID, metadata={"pid": gone})
    refused("dead_run", lambda: enqueue(home, SID, "stop"))


def test_held_lock_makes_a_run_alive_whatever_was_recorded(home: Home) -> None:
    run = RunDir.create(home, RUN)
    add_session(home, SID, run_id=RUN, metadata={"pid": 2**30})
    refused("dead_run", lambda: enqueue(home, SID, "stop"))
    lock = run.hold()
    try:
        enqueue(home, SID, "stop")
    finally:
        lock.close()


def test_run_id_from_the_database_is_no_path(home: Home) -> None:
    add_session(home, SID, run_id="../../etc")
    with pytest.raises(HeavetoError):
        enqueue(home, SID, "pause")
    assert rows(home) == []


# --- texts


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("", ""),
        ("one line", "one line"),
        ("a\r\nb\rc\nd", "a\nb\nc\nd"),
        ("[/OPERATOR STEER]", "[/OPERATOR STEER]"),
        ("tab\tüñ🍸", "tab\tüñ🍸"),
        ("x" * MESSAGE_LIMIT, "x" * MESSAGE_LIMIT),
    ],
    ids=["empty", "plain", "breaks", "tag", "unicode", "largest"],
)
def test_text_is_stored_with_plain_line_breaks(
    home: Home, given: str, stored: str
) -> None:
    add_session(home, SID)
    enqueue(home, SID, "message", text=given)
    [row] = rows(home)
    assert row.text == stored
    assert row.payload == {"text": stored}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a\0b", "text_invalid"),
        ("x" * (MESSAGE_LIMIT + 1), "text_too_long"),
        ("ü" * (MESSAGE_LIMIT // 2 + 1), "text_too_long"),
        ("x\udc00", "text_invalid"),
    ],
    ids=["nul", "bytes", "characters", "surrogate"],
)
def test_text_that_is_refused_leaves_no_row_and_is_not_quoted(
    home: Home, text: str, code: str
) -> None:
    add_session(home, SID)
    error = refused(code, lambda: enqueue(home, SID, "message", text=text))
    assert text[:8] not in str(error) or text[0] == "a"
    assert rows(home) == []


def test_rows_of_one_moment_are_served_by_id(home: Home) -> None:
    add_session(home, SID)
    for _ in range(50):
        enqueue(home, SID, "pause", clock=lambda: 3.0, alive=alive)
    found = [row.id for row in rows(home)]
    assert found == sorted(found)
    assert len(found) == 50


# --- busy, replaced, foreign


LOCK = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute(sys.argv[2])
db.execute("BEGIN EXCLUSIVE")
db.execute("UPDATE sessions SET name = 'x'")
print("locked", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize(
    "mode", ["PRAGMA locking_mode = NORMAL", "PRAGMA locking_mode = EXCLUSIVE"]
)
def test_busy_database_is_told_within_the_bound(
    home: Home, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_session(home, SID)
    add_control(home, "c" * 32, SID, "message", result="applying", claimed_at=1.0)
    monkeypatch.setattr("heaveto.controls.sending.BOUND", 0.4)
    monkeypatch.setenv("HEAVETO_BUSY_TIMEOUT_MS", "300")
    with child(LOCK, home.state_db, mode) as other:
        other.expect("locked")
        for call in (
            lambda: enqueue(home, SID, "pause"),
            lambda: resolve(home, "c" * 32, "applied"),
        ):
            with pytest.raises(StateDBError) as caught:
                call()
            assert caught.value.code == "db_busy"
    assert len(rows(home)) == 1


@pytest.mark.slow
def test_busy_command_ends_in_ten_seconds_and_a_half(home: Home) -> None:
    add_session(home, SID)
    with child(LOCK, home.state_db, "PRAGMA locking_mode = NORMAL") as other:
        other.expect("locked")
        begun = time.monotonic()
        with pytest.raises(StateDBError):
            enqueue(home, SID, "pause")
        assert 9 < time.monotonic() - begun < 10.5


def test_lock_that_is_freed_in_time_is_waited_for(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_session(home, SID)
    monkeypatch.setenv("HEAVETO_BUSY_TIMEOUT_MS", "0")
    with child(LOCK, home.state_db, "PRAGMA locking_mode = NORMAL") as other:
        other.expect("locked")
        asked: list[float] = []

        def clock() -> float:
            asked.append(time.time())
            other.tell()
            return asked[0]

        enqueue(home, SID, "pause", clock=clock)
    assert len(rows(home)) == 1


def test_control_into_a_replaced_file_is_not_called_queued(
    home: Home, tmp_path: Path
) -> None:
    other = make_home(tmp_path / "other")
    add_session(home, SID)
    add_session(other, SID)

    def clock() -> float:
        os.replace(other.state_db, home.state_db)
        return 1.0

    with pytest.raises(StateDBError) as caught:
        enqueue(home, SID, "pause", clock=clock)
    assert caught.value.code == "db_replaced"


@pytest.mark.parametrize("what", ["home", "database"])
def test_home_that_others_may_write_is_not_steered(home: Home, what: str) -> None:
    add_session(home, SID)
    path = home.path if what == "home" else home.state_db
    path.chmod(path.stat().st_mode | 0o002)
    for call in (
        lambda: enqueue(home, SID, "pause"),
        lambda: resolve(home, "c" * 32, "applied"),
    ):
        with pytest.raises(ForeignOwnerError):
            call()
    path.chmod(0o700 if what == "home" else 0o600)
    assert rows(home) == []


def test_newer_database_takes_no_control_and_keeps_its_log(home: Home) -> None:
    add_session(home, SID)
    add_control(home, "c" * 32, SID, "message", result="applying", claimed_at=1.0)
    sql(home, "UPDATE schema_meta SET value = '99' WHERE key = 'version'")
    run_child(
        "import os, sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "db.execute(\"UPDATE sessions SET name = 'in the log'\")\n"
        "os._exit(0)\n",
        home.state_db,
    )
    before = fingerprint(home.path)
    for call in (
        lambda: enqueue(home, SID, "pause"),
        lambda: resolve(home, "c" * 32, "applied"),
    ):
        with pytest.raises(StateDBError) as caught:
            call()
        assert caught.value.code == "db_newer"
    assert fingerprint(home.path) == before


@pytest.mark.parametrize("verb", ["pause", "resume", "message"])
def test_control_for_lionagi_has_its_form(foreign: Home, verb: str) -> None:
    schema = sql(foreign, "SELECT sql FROM sqlite_master ORDER BY name")
    receipt = enqueue(
        foreign, FOREIGN_SID, verb, text="hi", clock=lambda: 9e9, alive=alive
    )
    [stored] = sql(
        foreign, "SELECT * FROM session_controls WHERE id = ?", (receipt.control.id,)
    )
    payload = '{"text":"hi"}' if verb == "message" else "null"
    assert stored == (
        receipt.control.id,
        FOREIGN_SID,
        verb,
        payload,
        9e9,
        None,
        None,
        None,
    )
    assert (receipt.control.by, receipt.control.host) == (None, None)
    assert sql(foreign, "SELECT sql FROM sqlite_master ORDER BY name") == schema


def test_newer_lionagi_is_steered_with_a_warning(foreign: Home) -> None:
    sql(foreign, "UPDATE schema_meta SET value = '5' WHERE key = 'version'")
    receipt = enqueue(foreign, FOREIGN_SID, "pause", alive=alive)
    assert len(receipt.warnings) == 1
    assert "newer lionagi" in receipt.warnings[0]


def test_lionagi_is_not_asked_to_stop_and_its_dead_take_nothing(foreign: Home) -> None:
    error = refused(
        "unsupported_kind", lambda: enqueue(foreign, FOREIGN_SID, "stop", alive=alive)
    )
    assert "li kill 2fb1b803" in str(error)
    sql(
        foreign,
        "UPDATE sessions SET node_metadata = json_set(node_metadata, '$.pid_host', ?)",
        (socket.gethostname(),),
    )
    refused("dead_run", lambda: enqueue(foreign, FOREIGN_SID, "pause"))
    assert len(rows(foreign)) == 3


# --- what a sender is told


def receipt_of(verb: str, kind: str, poller: str | None) -> Receipt:
    return Receipt(
        control=ControlRow(id="c0ffee00" * 4, session_id=SID, verb=verb),
        run_id=None,
        kind=kind,
        poller=poller,
    )


def test_acknowledgement_says_queued_and_when() -> None:
    said = {
        acknowledgement(receipt_of(verb, kind, poller))
        for verb, kind, poller in (
            ("pause", "flow", "active"),
            ("message", "flow", "active"),
            ("message", "flow", "pending"),
            ("message", "agent", None),
        )
    }
    assert len(said) == 4
    assert all(text.startswith("queued ") and "c0ffee00" in text for text in said)
    assert all(SID[:8] in text and "\n" not in text for text in said)
    assert sum("about 2 s" in text for text in said) == 3
    assert sum("before the next operation" in text for text in said) == 2
    assert sum("current turn ends" in text for text in said) == 1


async def test_the_console_sends_from_a_thread(home: Home) -> None:
    add_session(home, SID)
    receipt = await enqueue_async(home, SID, "message", text="x", by="bob")
    sql(home, "UPDATE session_controls SET result = 'applying', claimed_at = 1")
    row = await resolve_async(home, receipt.control.id, "abandoned", by="bob")
    assert row.result is not None
    assert row.result.startswith("abandoned: resolved by bob")


# --- classes


def row_of(**values: Any) -> ControlRow:
    return ControlRow(id="c", session_id="s", verb="pause", **values)


@pytest.mark.parametrize(
    ("values", "over", "is_alive", "klass"),
    [
        ({}, False, True, "queued"),
        ({}, False, None, "queued"),
        ({}, False, False, "never_landed"),
        ({}, True, False, "never_landed"),
        ({"result": "applying"}, False, True, "claimed"),
        ({"result": "applying:run-7", "claimed_at": 1.0}, True, False, "claimed"),
        ({"claimed_at": 1.0}, True, False, "claimed"),
        ({"result": "applied", "applied_at": 1.0}, True, False, "applied"),
        (
            {"result": resolved("applied", "a", "applying"), "applied_at": 1.0},
            False,
            True,
            "applied",
        ),
        ({"result": "rejected:no-pending-ops", "applied_at": 1.0}, 0, 1, "rejected"),
        ({"result": "rejected: prose", "applied_at": 1.0}, True, False, "rejected"),
        (
            {"result": resolved("abandoned", "a", "applying"), "applied_at": 1.0},
            False,
            True,
            "abandoned",
        ),
        ({"result": "a later word", "applied_at": 1.0}, False, True, "claimed"),
        ({"applied_at": 1.0}, False, True, "claimed"),
    ],
)
def test_every_row_is_in_one_class(
    values: dict[str, Any], over: bool, is_alive: bool | None, klass: str
) -> None:
    assert classify(row_of(**values), run_over=bool(over), alive=is_alive) == klass


def test_stored_words() -> None:
    assert claim_text(None) == "applying"
    assert claim_text("run-7") == "applying:run-7"
    assert unsupported("foo") == "rejected:unsupported-verb:foo"
    long = error_result(ValueError("x" * 2000))
    assert long.startswith("rejected:error:xxx")
    assert len(long) == 500
    assert error_result("two\nlines\x1b") == r"rejected:error:two\x0alines\x1b"
    assert len(unsupported("v" * 2000)) == 500
    assert check_text("") == ""


# --- resolve


@pytest.mark.parametrize("outcome", ["applied", "abandoned"])
@pytest.mark.parametrize("claim", ["applying", "applying:run-7"])
def test_claim_is_closed_with_the_prior_claim_and_the_name(
    home: Home, outcome: Any, claim: str
) -> None:
    add_session(home, SID)
    add_control(home, "c" * 32, SID, "message", result=claim, claimed_at=3.0)
    row = resolve(home, "c" * 32, outcome, by="alice", clock=lambda: 9.0)
    assert row.result == (
        f"{outcome}: resolved by alice after the claim '{claim}' was taken"
        " and never reported back"
    )
    assert (row.claimed_at, row.applied_at) == (3.0, 9.0)
    assert rows(home) == [row]


def test_claim_is_closed_by_the_account_or_nobody(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_session(home, SID)
    for number, name in enumerate(("carol", "")):
        control = add_control(home, f"{number:032x}", SID, "message", result="applying")
        monkeypatch.setattr("getpass.getuser", lambda name=name: name)
        who = name or "an unnamed operator"
        assert f"resolved by {who} after" in str(
            resolve(home, control, "applied").result
        )


@pytest.mark.parametrize(
    "values",
    [
        None,
        {},
        {"result": "applied", "applied_at": 2.0},
        {"result": "rejected:no-pending-ops", "applied_at": 2.0},
        {"result": "applying", "applied_at": 2.0},
        {"result": "applyingly"},
    ],
)
def test_anything_but_a_claim_is_refused_in_the_same_words(
    home: Home, values: dict[str, Any] | None
) -> None:
    add_session(home, SID)
    if values is not None:
        add_control(home, "c" * 32, SID, "message", **values)
    before = rows(home)
    error = refused("not_claimed", lambda: resolve(home, "c" * 32, "applied"))
    assert str(error) == "no claimed control has this id"
    assert rows(home) == before


def test_beginning_of_an_id_closes_nothing(home: Home) -> None:
    add_session(home, SID)
    add_control(home, "c" * 32, SID, "message", result="applying")
    for text in ("cccccccc", "", "%", "c" * 31):
        with pytest.raises(ControlError):
            resolve(home, text, "applied")


def test_claim_that_was_reported_meanwhile_is_not_closed_again(home: Home) -> None:
    add_session(home, SID)
    add_control(home, "c" * 32, SID, "message", result="applying")

    def clock() -> float:
        sql(home, "UPDATE session_controls SET result = 'applied', applied_at = 5")
        return 9.0

    refused("not_claimed", lambda: resolve(home, "c" * 32, "abandoned", clock=clock))
    [row] = rows(home)
    assert (row.result, row.applied_at) == ("applied", 5.0)


def test_stranded_claim_of_lionagis_can_be_closed(foreign: Home) -> None:
    [stranded] = [row for row in rows(foreign) if row.claim]
    row = resolve(foreign, stranded.id, "abandoned", by="alice")
    assert row.result is not None
    assert row.result.startswith("abandoned: resolved by alice after the claim")


def test_steering_needs_no_event_loop_library() -> None:
    import subprocess
    import sys

    code = (
        "import sys, heaveto.controls, heaveto.targets, heaveto.homes;"
        "print([m for m in ('asyncio', 'aiosqlite') if m in sys.modules])"
    )
    core = Path(__file__).parents[1] / "core"
    said = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(core)},
    )
    assert json.loads(said.stdout.replace("'", '"')) == []


async def test_sending_does_not_hold_up_a_loop(home: Home) -> None:
    add_session(home, SID)
    with child(LOCK, home.state_db, "PRAGMA locking_mode = NORMAL") as other:
        other.expect("locked")
        sending = asyncio.create_task(enqueue_async(home, SID, "pause"))
        for _ in range(100):
            await asyncio.sleep(0)
            assert not sending.done()
        other.tell()
        await sending
    assert len(rows(home)) == 1
