"""The reading verbs over homes that real runs left, and over hostile ones."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sqlite3
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from heaveto import Flow, Operation, cli, run
from heaveto.controls import enqueue
from heaveto.controls.words import claim_text
from heaveto.homes import open_home

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[..., tuple[int, str, str]]

EVIL = "[red]x[/]\x1b[2J\x1b]52;c;QQ==\x07\x9b31m\u202egnp\x7f\r\ttab"
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
RUN_MEMBERS = {
    "run_id",
    "home",
    "source",
    "session_id",
    "name",
    "status",
    "state",
    "reason_code",
    "phase",
    "alive",
    "status_source",
    "observed_at",
    "confidence",
    "nodes",
    "checkpoint",
    "generation_dir",
    "started_at",
    "ended_at",
    "deadline_at",
    "resumed_from",
    "superseded_by",
    "warnings",
}


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """Run a command line in this process: (code, stdout, stderr)."""
    monkeypatch.setenv("HEAVETO_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HEAVETO_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setenv("LIONAGI_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)

    def run_main(*words: object, dag: str | None = None) -> tuple[int, str, str]:
        code = cli.main([str(word) for word in words], dag=dag)
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        assert not UNSAFE.search(out + err), (out, err)
        return code, out, err

    return run_main


def a_flow(*replies: dict[str, object], name: str = "a flow") -> Flow:
    worker = {"kind": "scripted", "replies": [*replies, {"response": "done"}]}
    return Flow(
        name,
        [
            Operation("first", "w", "do it"),
            Operation("second", "w", "do more", depends_on=["first"]),
        ],
        workers={"w": worker},
    )


def make(home: Path, flow: Flow | None = None, **options: Any) -> str:
    """Run a flow in a home and return its run id."""
    return asyncio.run(run(flow or a_flow(), home=home, **options)).run_id


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def change(home: Path, sql: str, *given: object) -> None:
    with sqlite3.connect(home / "state.db") as connection:
        connection.execute(sql, given)
    connection.close()


# --- ls


def test_ls_of_nothing_creates_nothing(call: Call, home: Path) -> None:
    code, out, err = call("ls", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"schema": 1, "runs": []}
    assert not home.exists()


def test_ls_and_show_have_the_members_of_the_contract(call: Call, home: Path) -> None:
    run_id = make(home)
    code, out, _ = call("ls", "--json")
    assert code == 0
    listed = json.loads(out)
    assert set(listed) == {"schema", "runs"}
    [one] = listed["runs"]
    assert set(one) == RUN_MEMBERS
    assert set(one["checkpoint"]) == {
        "version",
        "generation",
        "seq",
        "status",
        "records_since_base",
    }
    assert one["run_id"] == run_id
    assert one["nodes"] == {"total": 2, "completed": 2}
    code, out, _ = call("show", run_id, "--json")
    assert code == 0
    shown = json.loads(out)
    assert set(shown) == {
        "schema",
        *RUN_MEMBERS,
        "operations",
        "edges",
        "links",
        "controls",
    }
    first, second = shown["operations"]
    assert set(first) == {
        "id",
        "name",
        "assignee",
        "status",
        "status_source",
        "depends_on",
        "origin",
        "stale",
        "executed",
        "persisted",
        "started_at",
        "ended_at",
        "error",
    }
    assert second["depends_on"] == [first["id"]]
    assert shown["edges"] == [[first["id"], second["id"]]]
    assert shown["links"] == [
        {
            "from": first["id"],
            "to": second["id"],
            "kind": "depends",
            "condition": None,
            "active": True,
        }
    ]


def test_ls_text_names_runs_by_the_beginning_of_their_session(
    call: Call, home: Path
) -> None:
    make(home)
    code, out, _ = call("ls")
    head, row = out.splitlines()
    titles = ["STATE", "ID", "NAME", "DONE", "SINCE", "HOME", "CHECKPOINT"]
    assert head.split() == titles
    assert re.search(r"heaveto  [0-9a-f]{8} seq 2, \+2, \d+B to base$", row)
    short = row.split()[1]
    assert call("show", short)[0] == 0
    assert code == 0


def test_ls_finds_and_sorts(call: Call, home: Path) -> None:
    for name in ("beta", "Alpha"):
        make(home, a_flow(name=name))

    def names(*words: str) -> list[str]:
        runs = json.loads(call("ls", "--json", *words)[1])["runs"]
        return [one["name"] for one in runs]

    assert names("--sort", "name") == ["Alpha", "beta"]
    assert names("--sort", "started") == ["Alpha", "beta"]
    assert names("--find", "ALPH") == ["Alpha"]
    assert names("--find", "nothing") == []


def test_ls_attention_is_what_needs_somebody(call: Call, home: Path) -> None:
    make(home)
    make(home, a_flow({"operation": "first", "error": "broken"}, name="broken"))
    runs = json.loads(call("ls", "--json", "--attention")[1])["runs"]
    assert [one["name"] for one in runs] == ["broken"]


def test_several_homes_are_one_list(call: Call, tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    make(a)
    make(b)
    code, out, _ = call("--home", a, "ls", "--home", b, "--json")
    assert code == 0
    assert {one["home"] for one in json.loads(out)["runs"]} == {str(a), str(b)}


# --- homes that cannot be read


def test_a_folder_that_is_no_home_is_78(call: Call, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("x")
    for verb in ("ls", "doctor"):
        code, _, _ = call(verb, "--home", tmp_path / "other")
        assert code == {"ls": 78, "doctor": 1}[verb]


def test_a_corrupt_database_is_78_and_for_controls_2(call: Call, home: Path) -> None:
    run_id = make(home)
    (home / "state.db").write_bytes(b"not a database at all" * 500)
    for suffix in ("-wal", "-shm"):
        (home / f"state.db{suffix}").unlink(missing_ok=True)
    code, out, _ = call("ls", "--json")
    assert code == 78
    assert json.loads(out)["error"]["code"].startswith("db_")
    assert call("show", run_id)[0] in (0, 78)
    code, out, _ = call("ctl", "pause", run_id, "--json")
    assert code in (2, 78)
    assert call("doctor")[0] == 1
    unit = home / "runs" / run_id
    assert call("inspect", unit)[0] == 0


def test_a_newer_database_is_not_written(call: Call, home: Path) -> None:
    run_id = make(home)
    change(home, "UPDATE schema_meta SET value = '99' WHERE key = 'version'")
    flow = Path("f.toml")
    flow.write_text(
        '[flow]\nname="x"\n[workers.w]\nkind="scripted"\nreplies=[{response=1}]\n'
        '[[operations]]\nid="a"\nworker="w"\ninstruction="x"\n'
    )
    code, out, _ = call("run", flow, "--json")
    assert code == 78
    assert json.loads(out)["error"]["code"] == "db_newer"
    assert [path.name for path in (home / "runs").iterdir()] == [run_id]


def test_a_read_only_home_can_be_looked_at(call: Call, home: Path) -> None:
    run_id = make(home)
    for path in (home / "state.db", home):
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        assert json.loads(call("ls", "--json")[1])["runs"][0]["run_id"] == run_id
        assert call("show", run_id)[0] == 0
        assert call("ctl", "status", run_id)[0] == 0
    finally:
        home.chmod(0o700)


def test_corrupt_columns_do_not_stop_a_listing(call: Call, home: Path) -> None:
    run_id = make(home)
    change(home, "UPDATE sessions SET node_metadata = 'no json', started_at = 'soon'")
    change(home, "UPDATE session_signals SET payload = x'ff00'")
    code, out, _ = call("ls", "--json")
    assert code == 0
    assert len(json.loads(out)["runs"]) == 1
    assert call("show", run_id)[0] == 0
    assert call("doctor")[0] == 1


def test_a_locked_database_can_be_read(call: Call, home: Path) -> None:
    run_id = make(home)
    connection = sqlite3.connect(home / "state.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        assert call("show", run_id)[0] == 0
    finally:
        connection.execute("ROLLBACK")
        connection.close()


def test_a_deleted_run_directory_is_said(call: Call, home: Path) -> None:
    run_id = make(home)
    shutil.rmtree(home / "runs" / run_id)
    code, out, _ = call("show", run_id, "--json")
    assert code == 0
    codes = {warning["code"] for warning in json.loads(out)["warnings"]}
    assert "run_dir_missing" in codes
    assert call("logs", run_id)[0] == 0
    assert call("inspect", run_id)[0] in (1, 2)


# --- targets


def test_targets_unknown_and_ambiguous(call: Call, home: Path) -> None:
    first, second = make(home), make(home)
    change(home, "UPDATE sessions SET id = 'abcd-1' WHERE run_id = ?", first)
    change(home, "UPDATE sessions SET id = 'abcd-2' WHERE run_id = ?", second)
    for verb in (("show",), ("ctl", "pause"), ("wait",), ("logs",), ("close",)):
        code, out, err = call(*verb, "abcd", "--json")
        error = json.loads(out)["error"]
        assert (code, error["code"]) == (2, "target_ambiguous")
        assert set(error["candidates"]) == {"abcd-1", "abcd-2"}
        assert "abcd-1" in err
        code, out, _ = call(*verb, "zzz", "--json")
        assert (code, json.loads(out)["error"]["code"]) == (2, "target_unknown")
    assert call("show", "abcd-1")[0] == 0
    assert call("show", "2026")[0] == 2
    assert call("show", first)[0] == 0


# --- hostile text


def test_hostile_text_reaches_no_terminal(call: Call, home: Path) -> None:
    """The fixture checks every line that is printed."""
    evil = "x\x1b]0;title\x07 [bold]y[/]"
    flow = a_flow({"operation": "first", "response": {"k": EVIL}}, name=evil)
    run_id = make(home, flow)
    change(home, "UPDATE sessions SET name = ?", EVIL)
    change(home, "UPDATE sessions SET status_reason_code = ?", EVIL)
    for words in (
        ("ls",),
        ("show", run_id),
        ("explain", run_id),
        ("logs", run_id),
        ("inspect", run_id, "--state", "--journal", "--prefix"),
        ("ctl", "status", run_id),
        ("doctor",),
    ):
        for flags in ((), ("--json",)):
            call(*words, *flags)
    shown = json.loads(call("show", run_id, "--json")[1])
    assert shown["name"] == EVIL
    state = json.loads(call("inspect", run_id, "--state", "--json")[1])["state"]
    assert state["ops"]["first"]["response"] == {"k": EVIL}
    assert "[red]x[/]" in call("show", run_id)[1]


def test_hostile_ids_and_names_of_operations(call: Call, home: Path) -> None:
    run_id = make(home)
    payload = {"op_id": "first\x1b[2J", "name": EVIL, "depends_on": []}
    change(
        home,
        "INSERT INTO session_signals SELECT 'x', id, 999, 'NodeQueued', ?, 1.0, ?"
        " FROM sessions",
        "first\x1b[2J",
        json.dumps(payload),
    )
    for words in (("show", run_id), ("show", run_id, "--dag"), ("logs", run_id)):
        for flags in ((), ("--json",)):
            call(*words, *flags, dag="heaveto_tui.dag_layout:draw")


# --- logs


def test_logs_print_streams_and_choose(call: Call, home: Path, tmp_path: Path) -> None:
    flow = Flow(
        "logs",
        [Operation("a", "w", "x"), Operation("b", "w", "y")],
        workers={
            "w": {
                "kind": "command",
                "argv": ["sh", "-c", "cat; printf 'one\\ntwo\\nthree'; echo bad >&2"],
            }
        },
    )
    run_id = make(home, flow)
    code, out, _ = call("logs", run_id, "--json")
    assert code == 0
    answer = json.loads(out)
    assert set(answer) == {"schema", "run_id", "operations"}
    assert answer["run_id"] == run_id
    assert [set(one) for one in answer["operations"]] == [
        {"id", "name", "output", "error"}
    ] * 2
    assert answer["operations"][0]["output"] == "xone\ntwo\nthree"
    assert answer["operations"][0]["error"] == "bad\n"
    assert call("logs", run_id, "a", "--tail", "1")[1] == "| three\n! bad\n"
    assert call("logs", run_id, "a", "-f")[1].splitlines()[:3] == [
        "| xone",
        "| two",
        "| three",
    ]
    assert "b | yone" in call("logs", run_id)[1]
    code, out, _ = call("logs", run_id, "nobody", "--json")
    assert code == 2
    assert json.loads(out)["error"]["candidates"] == ["a", "b"]


def test_logs_follow_no_link(call: Call, home: Path, tmp_path: Path) -> None:
    run_id = make(home)
    secret = tmp_path / "secret"
    secret.write_text("do not show")
    log = home / "runs" / run_id / "operations" / "first" / "output.log"
    log.unlink()
    log.symlink_to(secret)
    assert "do not show" not in call("logs", run_id)[1]
    log.unlink()
    os.mkfifo(log)
    assert call("logs", run_id)[0] == 0


# --- inspect


@pytest.mark.parametrize("version", [2, 3])
def test_inspect_by_target_and_path(call: Call, home: Path, version: int) -> None:
    run_id = make(home, checkpoint_format=version)
    unit = home / "runs" / run_id / "checkpoint.json"
    answers = []
    for subject in (run_id, unit.parent, unit):
        code, out, _ = call("inspect", subject, "--json")
        assert code == 0
        answers.append(json.loads(out))
    assert set(answers[0]) == {"schema", "path", "checkpoint_recovery"}
    assert len({json.dumps(one) for one in answers}) == 1
    report = answers[0]["checkpoint_recovery"]
    assert report["status"] == "clean"
    assert report["checkpoint_version"] == version
    assert report["last_seq"] == {2: None, 3: 2}[version]
    state = json.loads(call("inspect", unit, "--state", "--json")[1])["state"]
    assert set(state) == {
        "version",
        "session_id",
        "prompt",
        "plan",
        "flow_context",
        "ops",
        "spawned",
        "config",
        "max_spawn",
    }
    code, out, _ = call("inspect", unit, "--journal", "--json")
    journal = json.loads(out)["journal"]
    assert [one["seq"] for one in journal] == {2: [], 3: [1, 2]}[version]
    assert "done" not in out
    assert call("inspect", unit, "--journal", "--state")[0] == 0


def test_inspect_of_a_torn_tail_recovers(call: Call, home: Path) -> None:
    run_id = make(home)
    journal = home / "runs" / run_id / "checkpoint.json.journal"
    journal.write_bytes(journal.read_bytes() + b'{"version":3,"gener')
    code, out, _ = call("inspect", run_id, "--json", "--journal")
    answer = json.loads(out)
    assert code == 0
    assert answer["checkpoint_recovery"]["status"] == "recovered_prefix"
    assert answer["journal"][-1]["code"] == "torn_tail"
    assert "torn_tail" in call("inspect", run_id)[1]


@pytest.mark.parametrize("depth", [5, 900, 5000])
def test_inspect_of_an_old_checkpoint_with_odd_values(
    call: Call, tmp_path: Path, depth: int
) -> None:
    unit = tmp_path / "old" / "checkpoint.json"
    unit.parent.mkdir()
    context = '{"n": NaN, "i": -Infinity, "deep": ' + "[" * depth + "]" * depth + "}"
    unit.write_text(
        '{"version": 2, "session_id": "s", "prompt": "", "plan": [], "ops": {},'
        f' "spawned": [], "config": {{}}, "flow_context": {context}}}'
    )
    code, out, _ = call("inspect", unit, "--json", "--state")
    assert code in (0, 1)
    answer = json.loads(out)
    if code == 0:
        assert answer["state"]["flow_context"]["n"] == "NaN"
        assert answer["state"]["flow_context"]["i"] == "-Infinity"
    assert depth > 5 or code == 0


def test_inspect_of_a_refused_unit_is_1_and_shows_no_state(
    call: Call, home: Path
) -> None:
    run_id = make(home)
    journal = home / "runs" / run_id / "checkpoint.json.journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(lines[0] + b"{}\n" + lines[1])
    code, out, _ = call("inspect", run_id, "--json", "--state", "--prefix")
    answer = json.loads(out)
    assert code == 1
    assert answer["checkpoint_recovery"]["status"] == "refused"
    assert answer["state"] is None
    assert set(answer["prefix"]["ops"]) == {"first"}
    code, out, _ = call("inspect", run_id)
    assert code == 1
    assert "line 2" in out


def test_inspect_of_an_absent_path_is_1(call: Call, tmp_path: Path) -> None:
    code, out, _ = call("inspect", tmp_path / "nowhere" / "checkpoint.json", "--json")
    assert code == 1
    [reason] = json.loads(out)["checkpoint_recovery"]["reasons"]
    assert reason["code"] == "base_missing"
    assert call("inspect", "nobody")[0] == 2


def test_inspect_needs_no_database(call: Call, home: Path, tmp_path: Path) -> None:
    run_id = make(home)
    shutil.copytree(home / "runs" / run_id, tmp_path / "copy")
    shutil.rmtree(home)
    assert call("inspect", tmp_path / "copy")[0] == 0


# --- wait, explain, status


def test_wait_on_ended_runs_gives_their_code(call: Call, home: Path) -> None:
    good = make(home)
    bad = make(home, a_flow({"operation": "first", "error": "no"}))
    code, out, _ = call("wait", good, "--json")
    assert code == 0
    assert json.loads(out)["status"] == "completed"
    assert call("wait", bad)[0] == 1
    change(home, "UPDATE sessions SET status = 'cancelled' WHERE run_id = ?", good)
    assert call("wait", good)[0] == 143


def test_wait_elapsed_is_3(call: Call, home: Path, monkeypatch: Any) -> None:
    run_id = _resurrect(home, make(home))
    code, out, _ = call("wait", run_id, "--timeout", "0.2s", "--json")
    assert code == 3
    assert json.loads(out)["status"] == "running"


def _resurrect(home: Path, run_id: str) -> str:
    """Make a run's row say that it runs, in a process that is there: this one's."""
    from heaveto.liveness import identity

    metadata = json.dumps(
        {**identity(), "run_id": run_id, "flow_control_poller": "active"}
    )
    change(
        home,
        "UPDATE sessions SET status='running', ended_at=NULL, node_metadata=?"
        " WHERE run_id=?",
        metadata,
        run_id,
    )
    return run_id


def test_explain_a_run(call: Call, home: Path) -> None:
    run_id = make(home)
    code, out, _ = call("explain", run_id, "--json")
    assert code == 0
    assert json.loads(out)["target"] == run_id
    assert json.loads(out)["text"]


# --- the ledger


def test_the_ledger_and_closing_a_claim_by_hand(call: Call, home: Path) -> None:
    run_id = _resurrect(home, make(home))
    where = open_home(home)
    with sqlite3.connect(home / "state.db") as connection:
        [(session,)] = connection.execute("SELECT id FROM sessions").fetchall()
    connection.close()
    for verb, text in (("pause", None), ("message", "one"), ("message", EVIL[:40])):
        enqueue(where, session, verb, text=text)
    change(
        home,
        "UPDATE session_controls SET result=?, claimed_at=created_at"
        " WHERE verb='message' AND payload LIKE '%one%'",
        claim_text(run_id),
    )
    code, out, _ = call("ctl", "status", run_id, "--json")
    assert code == 3
    status = json.loads(out)
    assert set(status) == {"schema", "run", "controls"}
    claimed = next(one for one in status["controls"] if one["class"] == "claimed")
    assert claimed["owner"] == run_id
    assert claimed["text"] == "one"
    _, out, _ = call("ctl", "status", run_id)
    assert f"ctl resolve {claimed['id']}" in out
    refused = call("ctl", "resolve", claimed["id"][:8], "--as", "applied", "--json")
    assert refused[0] == 2
    assert json.loads(refused[1])["error"]["code"] == "not_claimed"
    code, out, _ = call(
        "ctl", "resolve", claimed["id"], "--as", "abandoned", "--by", "alice", "--json"
    )
    assert code == 0
    control = json.loads(out)["control"]
    assert control["class"] == "abandoned"
    assert control["result"] == (
        f"abandoned: resolved by alice after the claim 'applying:{run_id}' was taken"
        " and never reported back"
    )
    assert call("ctl", "resolve", claimed["id"], "--as", "applied")[0] == 2


def test_controls_are_refused_with_a_reason(call: Call, home: Path) -> None:
    run_id = make(home)
    code, out, err = call("ctl", "pause", run_id, "--json")
    assert (code, json.loads(out)["error"]["code"]) == (2, "not_running")
    assert "completed" in err
    _resurrect(home, run_id)
    code, out, _ = call("ctl", "msg", run_id, "x" * 65_537, "--json")
    assert (code, json.loads(out)["error"]["code"]) == (2, "text_too_long")
    bad = Path("bad.txt")
    bad.write_bytes(b"\xff\xfe")
    assert call("ctl", "msg", run_id, "--file", bad)[0] == 2
    assert call("ctl", "msg", run_id, "--file", "nowhere.txt")[0] == 2
    long = Path("long.txt")
    long.write_bytes("é".encode() * 40_000)
    for endless, why in (("/dev/zero", "text_invalid"), (long, "text_too_long")):
        code, out, _ = call("ctl", "msg", run_id, "--file", endless, "--json")
        assert (code, json.loads(out)["error"]["code"]) == (2, why)
    with sqlite3.connect(home / "state.db") as connection:
        assert connection.execute(
            "SELECT count(*) FROM session_controls"
        ).fetchone() == (0,)
    connection.close()
    code, out, _ = call("ctl", "msg", run_id, "", "--json")
    assert code == 0
    assert json.loads(out)["queued"] is True


def test_a_missing_database_is_not_made_by_a_control(call: Call, home: Path) -> None:
    code, out, _ = call("ctl", "pause", "abc", "--json")
    assert code == 2
    assert json.loads(out)["error"]["code"] in ("target_unknown", "db_missing")
    assert not home.exists()


# --- close, prune


def test_close_refuses_the_living(call: Call, home: Path) -> None:
    run_id = _resurrect(home, make(home))
    code, out, _ = call("close", run_id, "--json")
    assert (code, json.loads(out)["error"]["code"]) == (2, "run_live")


def test_close_keeps_what_the_record_says(call: Call, home: Path) -> None:
    run_id = make(home)
    dead = {"pid": 2**22 - 1, "pid_create_time": 1.0, "run_id": run_id}
    change(
        home,
        "UPDATE sessions SET status='running', ended_at=NULL, node_metadata=?",
        json.dumps(dead),
    )
    code, out, _ = call("close", run_id, "--json")
    assert code == 0
    closed = json.loads(out)["run"]
    assert closed["status"] == "completed"
    assert closed["reason_code"] == "run.completed.closed"


def test_prune_removes_ended_runs_whole_and_keeps_the_rest(
    call: Call, home: Path
) -> None:
    old, live = make(home), make(home)
    young = make(home)
    change(home, "UPDATE sessions SET ended_at = 1000.0 WHERE run_id = ?", old)
    _resurrect(home, live)
    code, out, _ = call("prune", "--older", "1d", "--dry-run", "--json")
    assert code == 0
    assert json.loads(out)["removed"] == [old]
    assert (home / "runs" / old).is_dir()
    code, out, _ = call("prune", "--older", "1d", "--json")
    answer = json.loads(out)
    assert set(answer) == {"schema", "removed", "kept"}
    assert answer["removed"] == [old]
    assert {one["run_id"]: one["why"] for one in answer["kept"]} == {
        live: "not ended",
        young: "ended later",
    }
    assert not (home / "runs" / old).exists()
    runs = json.loads(call("ls", "--json")[1])["runs"]
    assert {one["run_id"] for one in runs} == {live, young}


# --- run


MISTAKES = {
    "no name": ("name = 'x'", "", "flow.name"),
    "unknown member": ("[flow]", "[flow]\ncolour = 'red'", "flow.colour"),
    "unknown worker": ("worker = 'w'", "worker = 'nobody'", "operations[0].worker"),
    "unknown head": ("id = 'a'", "id = 'a'\ndepends_on = ['z']", "depends_on"),
    "cycle": ("id = 'a'", "id = 'a'\ndepends_on = ['a']", "depends_on"),
    "bad id": ("id = 'a'", "id = '../a'", "operations[0].id"),
    "not TOML": ("[flow]", "[flow", ""),
}
GOOD = """[flow]
name = 'x'

[workers.w]
kind = 'scripted'
replies = [{ response = 1 }]

[[operations]]
id = 'a'
worker = 'w'
instruction = 'x'
"""


@pytest.mark.parametrize("mistake", sorted(MISTAKES))
@pytest.mark.parametrize("flags", [(), ("--dry-run",), ("--detach",)])
def test_a_mistake_in_a_flow_file_is_2_and_creates_nothing(
    call: Call, home: Path, mistake: str, flags: tuple[str, ...]
) -> None:
    old, new, member = MISTAKES[mistake]
    Path("f.toml").write_text(GOOD.replace(old, new, 1))
    code, out, err = call("run", "f.toml", *flags, "--json")
    assert code == 2
    error = json.loads(out)["error"]
    assert error["code"] == "flow_file"
    assert re.match(r"heaveto: f\.toml:\d+: ", err), err
    assert member in error["message"]
    assert not home.exists()


def test_dry_run_describes_and_creates_nothing(call: Call, home: Path) -> None:
    Path("f.toml").write_text(GOOD)
    code, out, err = call("run", "f.toml", "--dry-run")
    assert (code, err) == (0, "")
    assert "1. a" in out
    assert "scripted" in out
    code, out, _ = call("run", "f.toml", "--dry-run", "--json")
    assert code == 0
    shown = json.loads(out)
    assert set(shown) == {
        "schema",
        *RUN_MEMBERS,
        "operations",
        "edges",
        "links",
        "controls",
    }
    assert shown["nodes"] == {"total": 1, "waiting": 1}
    assert shown["operations"][0]["status"] == "waiting"
    assert not home.exists()


def test_run_prints_executed_before_persisted(call: Call, home: Path) -> None:
    Path("f.toml").write_text(GOOD)
    code, out, err = call("run", "f.toml")
    assert code == 0
    assert err.index("a executed") < err.index("a persisted")
    assert "done" in out
    code, out, err = call("run", "f.toml", "--quiet")
    assert (code, out, err) == (0, "", "")
    code, out, err = call("run", "f.toml", "--quiet", "--json")
    assert json.loads(out)["status"] == "completed"
    assert err == ""


def test_run_with_a_flow_made_in_python(
    call: Call, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("made_here.py").write_text(
        "from heaveto import Flow, Operation\n"
        "flow = Flow('made', [Operation('a', 'w', 'x')], workers={'w':"
        " {'kind': 'scripted', 'replies': [{'response': 1}]}})\n"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    code, out, _ = call("run", "made_here:flow", "--json")
    assert code == 0
    assert json.loads(out)["name"] == "made"
    assert call("run", "made_here:nothing")[0] == 2
    assert call("run", "no_such_module:flow")[0] == 2


def test_artifacts_go_where_save_says(call: Call, home: Path, tmp_path: Path) -> None:
    Path("f.toml").write_text(
        GOOD.replace(
            "kind = 'scripted'\nreplies = [{ response = 1 }]",
            "kind = 'command'\nargv = ['sh', '-c', 'echo x >$HEAVETO_ARTIFACTS/f']",
        )
    )
    assert call("run", "f.toml", "--save", "out", "--quiet")[0] == 0
    assert (tmp_path / "out" / "a" / "f").read_text() == "x\n"


# --- the drawing


def test_show_draws_with_the_function_it_is_given(call: Call, home: Path) -> None:
    run_id = make(home)
    code, out, _ = call("show", run_id, "--dag", dag="heaveto_tui.dag_layout:draw")
    assert code == 0
    assert "first" in out.splitlines()[0]
    code, out, _ = call(
        "show",
        run_id,
        "--dag",
        "--ascii",
        "--direction",
        "TB",
        dag="heaveto_tui.dag_layout:draw",
    )
    assert code == 0
    assert out.isascii()
    code, _, err = call("show", run_id, "--dag")
    assert code == 78
    assert "drawing" in err
