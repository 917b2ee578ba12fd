"""Steering live flows of lionagi: its rules of admission, one row, nothing else."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from harness.lionagi import change, digests, make
from heaveto.cli import main
from heaveto.liveness import identity

if TYPE_CHECKING:
    from pathlib import Path

    from heaveto.runs import Home

LIVE = "3df14667-c886-4965-a5f1-93c443ebebb2"
PAUSED = "99afdd6d-9149-4cfc-a642-fb9e14efbdea"
WEDGED = "2fb1b803-b622-41ac-8ea4-5abad52eab7e"


def live(path: Path, **metadata: object) -> Home:
    """A home with one flow that this process runs."""
    home = make("normal-live", path / "home")
    [(stored,)] = rows(home, "SELECT node_metadata FROM sessions")
    given = {**json.loads(stored), **identity(), **metadata}
    change(home, "UPDATE sessions SET node_metadata = ?", (json.dumps(given),))
    return home


def rows(home: Home, sql: str) -> list[Any]:
    db = sqlite3.connect(home.state_db)
    found = db.execute(sql).fetchall()
    db.close()
    return found


def dump(home: Home, *, but: str = "session_controls") -> list[str]:
    """Every table, index and row, but for those of one table."""
    db = sqlite3.connect(home.state_db)
    lines = [
        line for line in db.iterdump() if not line.startswith(f'INSERT INTO "{but}"')
    ]
    db.close()
    return lines


def ctl(home: Home, *words: str) -> int:
    return main(["--home", str(home.path), "ctl", *words, "--json"])


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_control_is_one_row_of_lionagis_form(
    tmp_path: Path, capsys: Any, verb: str
) -> None:
    home = live(tmp_path)
    before = dump(home)
    [mode] = rows(home, "PRAGMA journal_mode")
    assert ctl(home, verb, LIVE[:8]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["queued"] is True
    [row] = rows(
        home,
        "SELECT id, session_id, verb, payload, claimed_at, applied_at, result,"
        " typeof(created_at) FROM session_controls",
    )
    assert row == (
        answer["control"]["id"],
        LIVE,
        verb,
        "null",
        None,
        None,
        None,
        "real",
    )
    assert len(row[0]) == 32
    assert dump(home) == before
    assert rows(home, "PRAGMA journal_mode") == [mode]


def test_a_message_keeps_its_text(tmp_path: Path, capsys: Any) -> None:
    home = live(tmp_path, flow_control_poller="pending")
    text = "Use \u00e9 and 'quotes'; DROP TABLE sessions"
    assert ctl(home, "msg", LIVE, text) == 0
    [(payload,)] = rows(home, "SELECT payload FROM session_controls")
    assert json.loads(payload) == {"text": text}
    capsys.readouterr()
    assert main(["--home", str(home.path), "ctl", "pause", LIVE]) == 0
    assert "once the flow's execution starts" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("sql", "metadata", "words", "code", "says"),
    [
        ("UPDATE sessions SET status = 'completed'", {}, ("pause",), "not_running", ""),
        (
            "UPDATE sessions SET status = 'timed_out'",
            {},
            ("pause",),
            "not_running",
            "heaveto resume 3df14667 --dry-run",
        ),
        ("", {"flow_control_poller": "stopped"}, ("pause",), "poller_stopped", "wait"),
        ("", {"flow_control_poller": None}, ("pause",), "no_consumer", "announced"),
        ("", {}, ("stop",), "unsupported_kind", "li kill 3df14667"),
        (
            "UPDATE sessions SET invocation_kind = 'fanout'",
            {},
            ("pause",),
            "unsupported_kind",
            "fanout",
        ),
        (
            "UPDATE sessions SET invocation_kind = 'agent'",
            {"drains_controls": True},
            ("pause",),
            "unsupported_kind",
            "a message reaches it",
        ),
        (
            "UPDATE sessions SET invocation_kind = 'agent'",
            {},
            ("msg", "text"),
            "no_consumer",
            "",
        ),
        ("", {"pid_create_time": 1.0}, ("pause",), "dead_run", "li o flow --resume"),
        ("", {"pid": 2**30}, ("pause",), "dead_run", "gone"),
    ],
)
def test_refusals_leave_no_row_and_no_change(
    tmp_path: Path,
    capsys: Any,
    sql: str,
    metadata: dict[str, object],
    words: tuple[str, ...],
    code: str,
    says: str,
) -> None:
    home = live(tmp_path, **metadata)
    if sql:
        change(home, sql)
    before = digests(home.path)
    verb, *rest = words
    assert ctl(home, verb, LIVE, *rest) == 2
    refusal = json.loads(capsys.readouterr().out)["error"]
    assert refusal["code"] == code
    assert says in refusal["message"]
    assert digests(home.path) == before


def test_another_host_is_steered_with_a_warning(tmp_path: Path, capsys: Any) -> None:
    home = live(tmp_path, pid_host="elsewhere")
    assert ctl(home, "pause", LIVE) == 0
    assert "another machine (elsewhere)" in capsys.readouterr().err


def test_an_agent_that_drains_takes_a_message(tmp_path: Path, capsys: Any) -> None:
    home = live(tmp_path, drains_controls=True)
    change(home, "UPDATE sessions SET invocation_kind = 'agent'")
    assert main(["--home", str(home.path), "ctl", "msg", LIVE, "Go on."]) == 0
    assert "continuation turn" in capsys.readouterr().out


def test_play_and_invocation_lead_to_their_session(tmp_path: Path, capsys: Any) -> None:
    home = live(tmp_path)
    change(home, "UPDATE sessions SET invocation_kind = 'play', invocation_id = 'inv1'")
    change(
        home,
        "INSERT INTO invocations(id, skill, started_at, created_at, updated_at)"
        " VALUES ('inv1', 's', 1.0, 1.0, 1.0)",
    )
    assert ctl(home, "pause", "inv1") == 0
    assert json.loads(capsys.readouterr().out)["control"]["session_id"] == LIVE


def test_a_wedged_claim_is_closed_by_hand_and_by_nothing_else(
    tmp_path: Path, capsys: Any
) -> None:
    home = make("wedged-claim", tmp_path / "home")
    [(control,)] = rows(
        home, "SELECT id FROM session_controls WHERE result = 'applying'"
    )
    assert main(["--home", str(home.path), "ctl", "status", WEDGED]) == 1
    text = capsys.readouterr().out
    assert f"heaveto ctl resolve {control} --as applied|abandoned" in text
    before = dump(home)
    assert ctl(home, "resolve", control, "--as", "abandoned", "--by", "ann") == 0
    answer = json.loads(capsys.readouterr().out)["control"]
    assert answer["class"] == "abandoned"
    assert answer["result"].startswith("abandoned: resolved by ann")
    assert "'applying'" in answer["result"]
    assert dump(home) == before
    assert ctl(home, "resolve", control, "--as", "applied") == 2
    capsys.readouterr()


def test_ledger_says_who_read_what_and_how_long_it_took(
    tmp_path: Path, capsys: Any
) -> None:
    home = make("controlled", tmp_path / "home")
    assert main(["--home", str(home.path), "ctl", "status", PAUSED, "--json"]) == 0
    controls = json.loads(capsys.readouterr().out)["controls"]
    assert [one["class"] for one in controls] == ["applied"] * 4 + ["rejected"] * 2
    assert main(["--home", str(home.path), "ctl", "status", PAUSED]) == 0
    text = capsys.readouterr().out
    assert text.count("read by analyst") == 2
    assert "after 0.3s" in text


def test_two_homes_are_not_mixed_up(tmp_path: Path, capsys: Any) -> None:
    one, other = live(tmp_path / "a"), make("killed", tmp_path / "b" / "home")
    words = ["--home", str(other.path), "--home", str(one.path), "ctl", "pause", LIVE]
    assert main(words) == 0
    capsys.readouterr()
    assert len(rows(one, "SELECT 1 FROM session_controls")) == 1
    assert len(rows(other, "SELECT 1 FROM session_controls")) == 3
