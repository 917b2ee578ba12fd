"""A home of lionagi's is read as it is: unchanged, whatever its state and age."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.lionagi import (
    LIVE,
    NAMES,
    Vm,
    change,
    digests,
    everyone,
    make,
    source_of,
    told,
)
from heaveto.cli import main
from heaveto.observe.lionagi import KNOWN_VERSION, LionagiSource

if TYPE_CHECKING:
    from heaveto.runs import Home

KILLED = "2fb1b803-b622-41ac-8ea4-5abad52eab7e"


def statuses(run: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["status"] for one in run["operations"]}


def codes(run: dict[str, Any]) -> list[str]:
    return [one["code"] for one in run["warnings"]]


def problem(home: Home) -> str | None:
    source = source_of(home)
    source.refresh()
    found = source.health().problem
    return None if found is None else found.code


# --- nothing is written


@pytest.mark.parametrize("name", NAMES)
def test_reading_verbs_change_no_byte(tmp_path: Path, capsys: Any, name: str) -> None:
    home = make(name, tmp_path / "home")
    [run, *_] = sorted(one.name for one in home.runs.iterdir())
    before = digests(home.path)
    for words in (
        ("ls", "--json"),
        ("ls", "--attention"),
        ("show", run),
        ("show", run, "--json"),
        ("inspect", run),
        ("ctl", "status", run),
        ("explain", run),
        ("logs", run),
        ("resume", run, "--dry-run"),
        ("wait", run, "--timeout", "0"),
    ):
        main(["--home", str(home.path), *words])
        assert digests(home.path) == before, words
    assert "Traceback" not in capsys.readouterr().err


def _can_trace() -> bool:
    if shutil.which("strace") is None:
        return False
    tried = subprocess.run(
        ["strace", "-qq", "-e", "trace=none", "true"], capture_output=True, check=False
    )
    return tried.returncode == 0


@pytest.mark.skipif(not _can_trace(), reason="no strace, or no right to trace")
@pytest.mark.parametrize("state", ["quiet", "crashed"])
def test_no_call_could_write_into_the_home(tmp_path: Path, state: str) -> None:
    home = make("killed", tmp_path / "home")
    if state == "crashed":
        crash(home, PAUSED)
    log = tmp_path / "trace"
    for words in (("ls",), ("show", KILLED), ("resume", KILLED, "--dry-run")):
        done = subprocess.run(
            [
                *("strace", "-f", "-qq", "-o", str(log), "-e"),
                "trace=open,openat,creat,rename,renameat,renameat2,unlink,unlinkat,"
                "mkdir,mkdirat,rmdir,link,linkat,symlink,truncate,ftruncate,chmod,"
                "fchmod,fchmodat,utimensat,chown,fchownat,setxattr",
                *(sys.executable, "-B", "-m", "heaveto", "--home", str(home.path)),
                *words,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        calls = [
            line for line in log.read_text().splitlines() if str(home.path) in line
        ]
        assert calls
        for call in calls:
            assert "open" in call.partition("(")[0], call
            assert not any(
                word in call for word in ("O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC")
            ), call


# --- what a crash leaves


PAUSED = f"""
db.execute("UPDATE sessions SET current_phase = 'paused' WHERE id = '{KILLED}'")
db.execute("INSERT INTO session_controls(id, session_id, verb, payload, created_at,"
           " applied_at, result) VALUES ('{"c" * 32}', '{KILLED}', 'pause', 'null',"
           " 1795968040.0, 1795968041.0, 'applied')")
db.commit()
"""
BUSY = f"""
[(seq,)] = db.execute("SELECT max(seq) FROM session_signals"
                      " WHERE session_id = '{KILLED}'")
for number in range(40):
    db.execute("INSERT INTO session_signals(id, session_id, seq, kind, op_id, ts,"
               " payload) VALUES (?, '{KILLED}', ?, 'NodeCompleted',"
               " '5711f1a1-61d4-4101-a3c8-45a07e622e34', 1795968042.0, '{{}}')",
               (f"s{{number}}", seq + 1 + number))
    db.commit()
"""
_DIE = """
import os, signal, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("PRAGMA wal_autocheckpoint = 0")
{}
os.kill(os.getpid(), signal.SIGKILL)
"""


def crash(home: Home, work: str) -> None:
    """Let a process write into the database and die before it is checkpointed."""
    done = subprocess.run(
        [sys.executable, "-c", _DIE.format(work), str(home.state_db)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert Path(f"{home.state_db}-wal").stat().st_size > 0


@pytest.mark.parametrize("work", [PAUSED, BUSY], ids=["paused", "busy"])
@pytest.mark.parametrize("shm", [True, False])
def test_log_of_a_killed_writer_is_read_and_left(
    tmp_path: Path, work: str, shm: bool
) -> None:
    home = make("killed", tmp_path / "home")
    quiet = told(source_of(home))
    reader = source_of(home)
    crash(home, work)
    if not shm:
        Path(f"{home.state_db}-shm").unlink()
    copy = type(home)(tmp_path / "copy", "lionagi")
    shutil.copytree(home.path, copy.path)
    before = digests(home.path)
    found = told(reader)
    assert digests(home.path) == before
    assert found != quiet
    recovered = sqlite3.connect(f"file:{copy.state_db}?mode=ro", uri=True)
    [(controls,)] = recovered.execute("SELECT count(*) FROM session_controls")
    assert len(found[0]["controls"]) == controls
    beside = told(source_of(home, machine=Vm()))
    recovered.close()
    assert beside == found
    with sqlite3.connect(copy.state_db) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    assert told(source_of(copy)) == found


def test_flow_killed_while_paused_is_dead_and_its_gate_is_told(tmp_path: Path) -> None:
    home = make("killed", tmp_path / "home")
    crash(home, PAUSED)
    [run] = told(source_of(home))
    assert (run["state"], run["phase"]) == ("dead", "paused")
    assert "paused" not in statuses(run).values()
    [alive] = told(source_of(home, alive=True))
    assert alive["state"] == "pausing"  # one operation runs behind the gate


# --- older, newer, partial


@pytest.mark.parametrize(
    ("sql", "note"),
    [
        ("DROP TABLE session_signals", True),
        ("DROP TABLE session_controls", True),
        ("DROP TABLE plays", True),
        ("DROP TABLE invocations", True),
        ("DROP TABLE status_transitions", False),
        ("ALTER TABLE session_controls DROP COLUMN claimed_at", False),
        ("ALTER TABLE sessions DROP COLUMN current_phase", True),
        ("ALTER TABLE sessions DROP COLUMN status_evidence_refs", False),
        ("ALTER TABLE sessions DROP COLUMN ended_at", False),
        ("ALTER TABLE sessions DROP COLUMN artifact_contract_json", False),
    ],
)
@pytest.mark.parametrize("name", ["killed", "reactive", "paused-live"])
def test_schema_without_a_part_is_read_with_a_note(
    tmp_path: Path, sql: str, note: bool, name: str
) -> None:
    home = make(name, tmp_path / "home")
    for (index,) in rows(
        home, "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    ):
        change(home, f'DROP INDEX "{index}"')
    change(home, sql)
    change(home, "UPDATE schema_meta SET value = '3' WHERE key = 'version'")
    runs = told(source_of(home, alive=name in LIVE))
    assert (problem(home) == "schema_partial") is note
    [run] = runs
    expected = {
        "killed": {"lost", "unstarted", "completed"},
        "reactive": {"completed", "escalated"},
        "paused-live": {"completed", "paused", "waiting"},
    }[name]
    if "session_signals" in sql:
        assert {"completed"} <= set(statuses(run).values())
        assert len(run["operations"]) == {"killed": 6, "reactive": 7}.get(name, 6)
    elif "session_controls" in sql and name == "paused-live":
        assert set(statuses(run).values()) == expected  # the phase tells of the gate
    else:
        assert set(statuses(run).values()) == expected


@pytest.mark.parametrize(
    "part",
    [
        *(f"session_signals.{x}" for x in ("session_id", "seq", "kind", "op_id")),
        "session_signals.payload",
        *(f"session_controls.{x}" for x in ("id", "session_id", "created_at")),
    ],
)
def test_a_table_without_a_column_that_it_needs_is_left_out(
    tmp_path: Path, part: str
) -> None:
    """The rest of the home is told as ever, and what is not read is named."""
    home = make("killed", tmp_path / "home")
    [before] = told(source_of(home))
    table, column = part.split(".")
    columns = rows(home, f"SELECT name FROM pragma_table_info('{table}')")
    kept = ", ".join(f'"{name}"' for (name,) in columns if name != column)
    change(home, f"CREATE TABLE part AS SELECT {kept} FROM {table}")
    change(home, f"DROP TABLE {table}")
    change(home, f"ALTER TABLE part RENAME TO {table}")
    [run] = told(source_of(home))
    assert run["state"] == before["state"] == "dead"
    assert statuses(run) == statuses(before)
    gone = part in ("session_controls.id", "session_controls.session_id")
    assert len(run["controls"]) == (0 if gone else 3)
    source = source_of(home)
    source.refresh()
    found = source.health().problem
    if column == "created_at":
        assert found is None
    else:
        assert found is not None
        assert f"no {part}" in found.text


def test_without_signals_segments_and_checkpoint_tell(tmp_path: Path) -> None:
    home = make("killed", tmp_path / "home")
    [before] = told(source_of(home))
    change(home, "DROP TABLE session_signals")
    [run] = told(source_of(home))
    assert statuses(run) == statuses(before)
    by_name = {one["name"]: one for one in run["operations"]}
    assert by_name["analyst"]["status"] == "lost"
    assert by_name["researcher"]["persisted"] is True
    ids = {one["id"]: one["name"] for one in run["operations"]}
    known = {one["id"]: one["name"] for one in before["operations"]}
    assert {(ids[a], ids[b]) for a, b in run["edges"]} == {
        (known[a], known[b]) for a, b in before["edges"]
    }


def test_gap_in_the_signals_is_filled_and_told(tmp_path: Path) -> None:
    home = make("normal", tmp_path / "home")
    change(home, "DELETE FROM session_signals WHERE kind IN ('NodeCompleted')")
    [folder] = home.runs.iterdir()
    record = json.loads((folder / "run.json").read_text())
    record["signal_persistence_degraded_at"] = 1795968230.0
    (folder / "run.json").write_text(json.dumps(record))
    [run] = told(source_of(home))
    assert set(statuses(run).values()) == {"completed"}
    assert {one["status_source"] for one in run["operations"]} == {"db"}
    assert "signals_gap" in codes(run)


def test_metadata_of_any_form_is_no_crash(tmp_path: Path) -> None:
    home = make("killed", tmp_path / "home")
    for metadata in (
        "not json",
        "[1, 2]",
        "null",
        '{"segments": {"a": 1}}',
        '{"segments": [1, null, {"op_id": 7}, {"op_id": "x", "started_at": "y"}]}',
        '{"segments": [{"op_id": "x", "status": 5, "started_at": 1e308}],"pid":"one"}',
        '{"resumed_from": [], "run_id": {}, "flow_control_poller": 3}',
    ):
        change(home, "UPDATE sessions SET node_metadata = ?", (metadata,))
        runs = [
            one
            for one in told(
                source_of_now(home),
            )
            if one["session_id"]
        ]
        assert [one["session_id"] for one in runs] == [KILLED]


def source_of_now(home: Home) -> Any:
    return LionagiSource(home, clock=lambda: 1795969000.0, machine=Vm())


def test_newer_schema_in_place_of_the_old_one(tmp_path: Path) -> None:
    home = make("normal-live", tmp_path / "home")
    source = source_of(home, alive=True)
    assert [one.state for one in (source.refresh(), source.listed())[1]] == [
        "executing"
    ]
    newer = tmp_path / "newer.db"
    shutil.copy(home.state_db, newer)
    with sqlite3.connect(newer) as db:
        db.execute(
            "UPDATE schema_meta SET value = ? WHERE key = 'version'",
            (str(KNOWN_VERSION + 1),),
        )
        db.execute("ALTER TABLE sessions ADD COLUMN next_thing TEXT")
        db.execute("UPDATE sessions SET status = 'parked'")
    db.close()
    os.replace(newer, home.state_db)
    source.refresh()
    [run] = source.listed()
    assert run.status == "parked"
    assert run.state == "unknown"
    found = source.health().problem
    assert found is not None
    assert (found.code, "version 5" in found.text) == ("schema_newer", True)


# --- what was answered


def test_answers_of_a_killed_run_come_from_its_checkpoint(
    tmp_path: Path, capsys: Any
) -> None:
    home = make("killed", tmp_path / "home")
    assert main(["--home", str(home.path), "logs", KILLED, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["operations"]
    answers = {one["name"]: one["output"] for one in found}
    assert answers["researcher"].startswith("Reads go through one Redis tier")
    assert answers["analyst"] == ""
    assert main(["--home", str(home.path), "logs", KILLED, "-f"]) == 0
    assert "researcher-2 | Three incidents" in capsys.readouterr().out


def test_answers_of_any_form(tmp_path: Path, capsys: Any) -> None:
    home = make("failed", tmp_path / "home")
    [folder] = home.runs.iterdir()
    path = folder / "checkpoint.json"
    state = json.loads(path.read_text())
    state["ops"]["analyst"]["response"] = {"a": [1, None]}
    state["ops"]["architect"]["response"] = float("nan")
    state["ops"]["contrarian"]["response"] = None
    path.write_text(json.dumps(state))
    assert main(["--home", str(home.path), "logs", folder.name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["operations"]
    by_name = {one["name"]: one for one in found}
    assert by_name["analyst"]["output"] == '{"a":[1,null]}\n'
    assert by_name["architect"]["output"].strip('"\n').lower() == "nan"
    assert by_name["contrarian"]["output"] == "null\n"
    assert "status 400" in by_name["researcher-2"]["error"]
    path.write_text("{")
    assert main(["--home", str(home.path), "logs", folder.name]) == 0
    assert capsys.readouterr().out == ""


# --- kinds of sessions


def test_sessions_that_another_program_runs(tmp_path: Path) -> None:
    home = make("normal", tmp_path / "home")
    change(
        home,
        "INSERT INTO sessions(id, created_at, updated_at, progression_id, name,"
        " invocation_kind, source_kind, status, node_metadata) VALUES"
        " ('mirror', 1795960000.0, 1795960000.0, 'p', 'Session', 'agent',"
        " 'imported_codex', 'running', '{}'),"
        " ('done', 1795960001.0, 1795960001.0, 'p', 'Session', 'agent',"
        " 'imported_fs', 'completed', NULL),"
        " ('work', 1795960002.0, 1795960002.0, 'p', 'Session', 'agent',"
        " 'live', 'running', '{\"drains_controls\": true}'),"
        " ('fan', 1795960003.0, 1795960003.0, 'p', 'Session', 'fanout',"
        " 'live', 'failed', '{}')",
    )
    runs = {one["session_id"]: one for one in told(source_of(home))}
    assert codes(runs["mirror"]) == ["liveness_unknown", "mirrored"]
    assert runs["mirror"]["alive"] is None
    assert codes(runs["done"]) == ["mirrored"]
    assert runs["fan"]["state"] == "failed"
    assert runs["fan"]["name"] == "fanout"
    assert [one["nodes"] for one in runs.values()][1:] == [{"total": 0}] * 4


def test_run_that_only_its_directory_knows(tmp_path: Path) -> None:
    """What an agent leaves whose database could not be written."""
    home = make("normal", tmp_path / "home")
    folder = home.runs / "20261129T180000-abcdef"
    folder.mkdir()
    record = {
        "run_id": folder.name,
        "status": "running",
        "branch_id": "b",
        "invocation_kind": "agent",
        "agent_name": "scout",
        "started_at": 1795968000.0,
        "persistence_degraded_reason": "the database is locked",
        "pid": 4242,
        "pid_create_time": 1795967999.5,
    }
    (folder / "run.json").write_text(json.dumps(record))
    os.utime(folder, (1.0, 1.0))

    def only(machine: Vm) -> dict[str, Any]:
        found = told(source_of(home, machine=machine))
        return next(one for one in found if one["run_id"] == folder.name)

    alive = only(Vm({4242: 1795967999.5}))
    assert (alive["alive"], alive["name"]) == (True, "scout")
    assert {"persistence_off", "row_missing"} <= set(codes(alive))
    dead = only(Vm({4242: 1795968999.0}))
    assert (dead["alive"], dead["state"]) == (False, "dead")


def test_a_play_has_the_name_of_its_book(tmp_path: Path) -> None:
    home = make("normal", tmp_path / "home")
    change(
        home,
        "UPDATE sessions SET invocation_kind = 'play', playbook_name = 'nightly'",
    )
    [run] = told(source_of(home))
    assert run["name"] == "nightly"
    change(home, "UPDATE sessions SET user_label = 'mine'")
    [run] = told(source_of(home))
    assert run["name"] == "mine"


@pytest.mark.parametrize(
    ("code", "refs", "words"),
    [
        (
            "run.failed.missing_artifact",
            [{"kind": "expected_artifact", "id": "review", "label": "review.md"}],
            "the required file review.md is not there",
        ),
        (
            "run.failed.exception",
            [{"kind": "something_new", "id": "x\x1b[2J"}],
            "something_new x\\x1b[2J",
        ),
        ("run.failed.artifact_write", [], "run.failed.artifact_write"),
        ("run.failed.artifact_write", "no list", "run.failed.artifact_write"),
    ],
)
def test_verdicts_with_their_evidence(
    tmp_path: Path, code: str, refs: object, words: str
) -> None:
    home = make("normal", tmp_path / "home")
    change(
        home,
        "UPDATE sessions SET status = 'failed', status_reason_code = ?,"
        " status_evidence_refs = ?",
        (code, json.dumps(refs)),
    )
    [run] = told(source_of(home))
    [warning] = run["warnings"]
    assert warning["code"] == "verdict_differs"
    assert words in warning["text"]
    assert (run["state"], run["nodes"]["completed"]) == ("failed", 7)


def test_explain_does_not_repeat_a_verdict_that_misleads(
    tmp_path: Path, capsys: Any
) -> None:
    home = make("reactive", tmp_path / "home")
    assert main(["--home", str(home.path), "explain", "9a94ae37", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["code"] == "verdict_differs"
    assert "unknown role counsel" in answer["text"]


def test_an_escalation_that_worked_is_said(tmp_path: Path) -> None:
    home = make("reactive", tmp_path / "home")
    refs = [{"kind": "escalated_operation", "id": "assessor", "label": "assessor"}]
    change(
        home,
        "UPDATE sessions SET status_reason_code = 'run.failed.escalated',"
        " status_evidence_refs = ?",
        (json.dumps(refs),),
    )
    [run] = told(source_of(home))
    text = run["warnings"][0]["text"]
    assert "assessor asked for help, and the second try worked" in text


def test_refused_spawns_of_a_completed_run_are_named(tmp_path: Path) -> None:
    home = make("normal", tmp_path / "home")
    refs = [
        {"kind": "refused_spawn", "id": "x", "label": "analyst (max_spawn_exceeded)"}
    ]
    change(
        home,
        "UPDATE sessions SET status_reason_code = 'run.completed.spawn_refused',"
        " status_evidence_refs = ?",
        (json.dumps(refs),),
    )
    [run] = told(source_of(home))
    [warning] = run["warnings"]
    assert warning["code"] == "spawn_dropped"
    assert "analyst (max_spawn_exceeded)" in warning["text"]


def test_an_end_that_could_not_be_written(tmp_path: Path) -> None:
    home = make("killed", tmp_path / "home")
    [folder] = home.runs.iterdir()
    record = json.loads((folder / "run.json").read_text())
    record["terminal_write_lost"] = {"status": "completed", "at": 1.0}
    (folder / "run.json").write_text(json.dumps(record))
    [run] = told(source_of(home))
    assert codes(run)[0] == "terminal_write_lost"
    assert "ended as completed" in run["warnings"][0]["text"]
    [alive] = told(source_of(home, alive=True))
    assert "terminal_write_lost" not in codes(alive)


def test_a_run_that_was_resumed_while_it_lives_is_told(tmp_path: Path) -> None:
    home = make("killed-then-resumed", tmp_path / "home")
    *_, dead = told(source_of(home))
    assert "runs_twice" not in codes(dead)
    *_, alive = told(source_of(home, alive=True))
    assert alive["superseded_by"] == "20261129T160102-9afa7a"
    [text] = [w["text"] for w in alive["warnings"] if w["code"] == "runs_twice"]
    assert "20261129T160102-9afa7a" in text


@pytest.mark.parametrize("reason", ["", "the database is locked"])
def test_saving_that_was_switched_off_late_leaves_a_checkpoint(
    tmp_path: Path, reason: str
) -> None:
    """Lionagi resumes from it all the same, and takes no reason for none."""
    home = make("killed", tmp_path / "home")
    [folder] = home.runs.iterdir()
    record = json.loads((folder / "run.json").read_text())
    record["persistence_degraded_reason"] = reason
    (folder / "run.json").write_text(json.dumps(record))
    [run] = told(source_of(home))
    texts = [w["text"] for w in run["warnings"] if w["code"] == "persistence_off"]
    assert len(texts) == bool(reason)
    assert all("may lack" in text for text in texts)


def test_a_timed_out_run_has_no_open_lane(tmp_path: Path) -> None:
    home = make("normal-live", tmp_path / "home")
    change(
        home,
        "UPDATE sessions SET status = 'timed_out', ended_at = updated_at,"
        " status_reason_code = 'run.timed_out.deadline'",
    )
    [run] = told(source_of(home))
    assert run["state"] == "timed_out"
    assert run["nodes"] == {"total": 6, "completed": 2, "lost": 1, "unstarted": 3}
    assert "open_ends" in codes(run)


def test_summary_is_not_held_by_the_gate_of_its_graph(tmp_path: Path) -> None:
    home = make("paused-live", tmp_path / "home")
    [row] = [json.loads(r) for (r,) in rows(home, "SELECT node_metadata FROM sessions")]
    row["flow_control_poller"] = "stopped"
    change(
        home,
        "UPDATE sessions SET current_phase = 'synthesizing', node_metadata = ?",
        (json.dumps(row),),
    )
    [run] = told(source_of(home, alive=True))
    assert run["state"] == "synthesizing"


def rows(home: Home, sql: str) -> list[Any]:
    db = sqlite3.connect(home.state_db)
    found = db.execute(sql).fetchall()
    db.close()
    return found


# --- a home in motion


_HOLD = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute(f"PRAGMA locking_mode = {sys.argv[2]}")
db.execute(f"PRAGMA journal_mode = {sys.argv[3]}")
db.execute("BEGIN EXCLUSIVE")
db.execute("UPDATE sessions SET current_phase = 'synthesizing'")
print("held", flush=True)
sys.stdin.readline()
db.execute("COMMIT")
db.close()
"""


@pytest.mark.parametrize(
    ("mode", "journal"),
    [("NORMAL", "WAL"), ("EXCLUSIVE", "WAL"), ("NORMAL", "DELETE")],
)
def test_exclusive_lock_shows_what_was_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, journal: str
) -> None:
    """What is shown is what was committed, or what was read before with its age."""
    monkeypatch.setenv("HEAVETO_BUSY_TIMEOUT_MS", "50")
    home = make("normal-live", tmp_path / "home")
    now = [1795968300.0]
    source = LionagiSource(
        home,
        clock=lambda: now[0],
        monotonic=lambda: now[0],
        machine=Vm(everyone(home)),
    )
    source.refresh()
    before = source.listed()
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(home.state_db), mode, journal],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        for _ in range(3):
            now[0] += 3.0
            source.refresh()
            view = source.health()
            [run] = source.listed()
            assert (run.phase, run.nodes) == ("executing", before[0].nodes)
            if view.problem is None:
                assert view.read_at == now[0]
            else:
                assert view.problem.code == "db_busy"
                assert view.read_at == 1795968300.0
        assert (view.problem is not None) is (journal == "DELETE")
        holder.stdin.write("\n")
        holder.stdin.flush()
        holder.wait()
    now[0] += 3.0
    source.refresh()
    assert source.health().problem is None
    assert source.health().read_at == now[0]
    assert source.listed()[0].phase == "synthesizing"


_WRITE = """
import json, sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], timeout=10)
session = sys.argv[2]
[(seq,)] = db.execute("SELECT max(seq) FROM session_signals")
for number in range(400):
    op = f"op-{number}"
    for kind in ("NodeQueued", "NodeStarted", "NodeCompleted"):
        seq += 1
        db.execute("INSERT INTO session_signals(id, session_id, seq, kind, op_id, ts,"
                   " payload) VALUES (?,?,?,?,?,?,?)", (f"w{seq}", session, seq, kind,
                   op, time.time(), json.dumps({"op_id": op, "name": op,
                   "depends_on": []})))
    db.execute("UPDATE sessions SET updated_at = ?", (time.time(),))
    db.commit()
print("done")
"""


def test_reading_while_it_is_written_at_full_speed(tmp_path: Path) -> None:
    home = make("normal-live", tmp_path / "home")
    [row] = rows(home, "SELECT id FROM sessions")
    source = source_of(home, alive=True)
    source.refresh()
    seen = 0
    with subprocess.Popen(
        [sys.executable, "-c", _WRITE, str(home.state_db), row[0]],
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        while writer.poll() is None:
            detail = source.read(row[0], None)
            assert detail is not None
            completed = detail.run.nodes["completed"]
            assert completed >= seen  # what was done stays done
            assert detail.run.nodes["total"] == len(detail.operations)
            assert detail.run.nodes.get("lost", 0) == 0
            seen = completed
        assert writer.returncode == 0
    source.refresh()
    detail = source.read(row[0], None)
    assert detail is not None
    assert detail.run.nodes["completed"] == 402


def test_home_deleted_and_made_again(tmp_path: Path) -> None:
    home = make("killed", tmp_path / "home")
    source = source_of(home)
    source.refresh()
    assert [one.session_id for one in source.listed()] == [KILLED]
    shutil.rmtree(home.path)
    source.refresh()
    gone = source.health().problem
    assert gone is not None
    assert gone.code == "home_missing"
    assert [one.session_id for one in source.listed()] == [KILLED]
    make("reactive", home.path)
    source.refresh()
    assert source.health().problem is None
    [run] = source.listed()
    assert run.session_id != KILLED
    assert run.nodes["total"] == 7


def test_many_runs_are_told_from_their_rows_and_read_later(tmp_path: Path) -> None:
    """What a list tells from rows and what reading each run tells agree."""
    home = make("normal", tmp_path / "home")
    [folder] = home.runs.iterdir()
    failed = make("failed", tmp_path / "failed")
    [other] = failed.runs.iterdir()
    with contextlib.closing(sqlite3.connect(home.state_db)) as db, db:
        db.execute("ATTACH ? AS other", (str(failed.state_db),))
        columns = ", ".join(
            f'"{row[1]}"' for row in db.execute("PRAGMA table_info(sessions)")
        )
        for number in range(200):
            run_id = f"20261129T17{number // 60:02d}{number % 60:02d}-{number:06x}"
            schema = "other" if number % 10 == 0 else "main"
            chosen = columns.replace('"id"', "?", 1).replace('"run_id"', "?", 1)
            db.execute(
                f"INSERT INTO main.sessions({columns}) SELECT {chosen} FROM"
                f" {schema}.sessions WHERE id NOT LIKE 's-%' LIMIT 1",
                (f"s-{number}", run_id),
            )
            shutil.copytree(other if number % 10 == 0 else folder, home.runs / run_id)
    source = LionagiSource(home, clock=lambda: 1795969000.0, machine=Vm())
    source.refresh()
    first = {run.session_id: run for run in source.listed()}
    assert len(first) == 201
    assert source.watch_paths() == (str(home.runs),)
    for _ in range(50):
        runs = source.listed()
        if not any(
            run.checkpoint and run.checkpoint.status == "unread" for run in runs
        ):
            break
        source.refresh()
    last = {run.session_id: run for run in source.listed()}
    for key, run in last.items():
        assert run.checkpoint is not None
        assert run.checkpoint.status == "clean"
        assert (run.state, run.nodes["total"]) == (
            first[key].state,
            first[key].nodes["total"],
        )


def test_no_directory_is_watched_for_an_ended_run(tmp_path: Path) -> None:
    home = make("failed-then-retried", tmp_path / "home")
    source = source_of(home)
    source.refresh()
    assert source.watch_paths() == (str(home.runs),)
    live = make("normal-live", tmp_path / "live")
    source = source_of(live, machine=Vm(everyone(live)))
    source.refresh()
    assert len(source.watch_paths()) == 2
