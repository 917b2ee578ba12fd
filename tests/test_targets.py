"""The one target rule: which run a text names, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.steering import add_session, fingerprint, make_home, sql
from heaveto.errors import HeavetoError, StateDBError, TargetError
from heaveto.runs import Home, RunDir
from heaveto.targets import check_target, resolve_target

if TYPE_CHECKING:
    from pathlib import Path

FIRST = "20261129T101500-a1b2c3"
SECOND = "20261129T101500-a1ffff"
A = "aa11" * 8
B = "ab22" * 8


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return make_home(tmp_path / "home")


def invocation(home: Home, identifier: str) -> None:
    sql(
        home,
        "INSERT INTO invocations (id, created_at, updated_at) VALUES (?, 1, 1)",
        (identifier,),
    )


def play(home: Home, identifier: str, session_id: str | None) -> None:
    sql(
        home,
        "INSERT INTO plays (id, session_id, created_at, updated_at)"
        " VALUES (?, ?, 1, 1)",
        (identifier, session_id),
    )


def refused(homes: list[Home], text: str) -> TargetError:
    with pytest.raises(TargetError) as caught:
        resolve_target(homes, text)
    return caught.value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\t",
        "a\0b",
        "a\nb",
        "/etc",
        "a/b",
        "../x",
        ".",
        "..",
        "-x",
        "--json",
        ".hidden",
        "x" * 201,
        "a\x1b[2J",
        "a\x7f",
    ],
)
def test_text_that_can_name_nothing_is_refused_before_any_look(text: str) -> None:
    with pytest.raises(TargetError) as caught:
        check_target(text)
    assert caught.value.code == "target_malformed"
    with pytest.raises(TargetError):
        resolve_target([], text)


def test_each_kind_in_full_and_by_its_beginning(home: Home) -> None:
    add_session(home, A, run_id=FIRST, invocation_id=None)
    invocation(home, "1234567890ab")
    sql(home, "UPDATE sessions SET invocation_id = '1234567890ab'")
    play(home, "play-7", A)
    for text, kind in (
        (A, "session"),
        ("aa1", "session"),
        (f"  {A[:8]} ", "session"),
        ("1234567890ab", "invocation"),
        ("12", "invocation"),
        ("play-7", "play"),
        ("pl", "play"),
        (FIRST, "run"),
        (FIRST[:10], "run"),
    ):
        found = resolve_target([home], text)
        assert (found.kind, found.session_id, found.run_id) == (kind, A, FIRST), text
        assert found.home == home


def test_beginnings_are_looked_for_in_sessions_then_invocations_then_plays(
    home: Home,
) -> None:
    add_session(home, "abc1", run_id=None)
    add_session(home, "zz", run_id=None)
    invocation(home, "abc2")
    sql(home, "UPDATE sessions SET invocation_id = 'abc2' WHERE id = 'zz'")
    play(home, "abc3", "zz")
    assert resolve_target([home], "abc").kind == "session"
    sql(home, "DELETE FROM sessions WHERE id = 'abc1'")
    assert resolve_target([home], "abc").kind == "invocation"
    sql(home, "UPDATE sessions SET invocation_id = NULL")
    sql(home, "DELETE FROM invocations")
    assert resolve_target([home], "abc").kind == "play"


def test_several_of_one_kind_are_refused_with_whole_ids(home: Home) -> None:
    add_session(home, A, updated_at=1.0)
    add_session(home, B, updated_at=9.0)
    error = refused([home], "a")
    assert error.code == "target_ambiguous"
    assert set(error.candidates) == {A, B}
    assert A in str(error)


def test_many_candidates_are_cut(home: Home) -> None:
    for number in range(30):
        add_session(home, f"a{number:031x}")
    error = refused([home], "a")
    assert len(error.candidates) == 10
    assert "and more" in str(error)


def test_whole_id_wins_over_what_it_begins(home: Home) -> None:
    add_session(home, "ab", run_id=FIRST)
    add_session(home, "abcd", run_id=SECOND)
    assert resolve_target([home], "ab").session_id == "ab"
    assert resolve_target([home], "abc").session_id == "abcd"


def test_whole_ids_are_looked_for_in_runs_first(home: Home) -> None:
    add_session(home, "same", run_id="other")
    add_session(home, "second", run_id="same")
    invocation(home, "same")
    found = resolve_target([home], "same")
    assert (found.kind, found.session_id) == ("run", "second")
    sql(home, "UPDATE sessions SET run_id = NULL")
    assert resolve_target([home], "same").kind == "session"


def test_beginnings_are_literal_and_case_exact(home: Home) -> None:
    for identifier in ("a_1", "ab1", "A_2", "a%3"):
        add_session(home, identifier, run_id=None)
    assert resolve_target([home], "a_").session_id == "a_1"
    assert resolve_target([home], "a%").session_id == "a%3"
    assert resolve_target([home], "A").session_id == "A_2"
    for text in ("%", "_", "\\", "*", "?", "[a]", "AB", "a_1%"):
        assert refused([home], text).code == "target_unknown"


def test_beginnings_at_the_end_of_unicode(home: Home) -> None:
    add_session(home, "x\U0010ffff1", run_id=None)
    add_session(home, "xy", run_id=None)
    assert resolve_target([home], "x\U0010ffff").session_id == "x\U0010ffff1"


def test_invocation_leads_to_its_session_that_moved_last(home: Home) -> None:
    invocation(home, "inv")
    add_session(home, A, invocation_id="inv", updated_at=2.0)
    add_session(home, B, invocation_id="inv", updated_at=1.0)
    assert resolve_target([home], "inv").session_id == A


def test_invocation_or_play_without_a_session_is_refused(home: Home) -> None:
    invocation(home, "inv")
    play(home, "play", None)
    for text in ("inv", "play", "in", "pl"):
        assert refused([home], text).code == "target_no_session"


def test_run_id_by_its_beginning_reaches_past_the_date(home: Home) -> None:
    add_session(home, A, run_id=FIRST)
    for text in ("2", "2026", "20261129", "20261129T"):
        assert refused([home], text).code == "target_unknown"
    assert resolve_target([home], "20261129T1").session_id == A
    add_session(home, B, run_id=SECOND)
    assert set(refused([home], "20261129T101500-a1").candidates) == {FIRST, SECOND}
    assert resolve_target([home], "20261129T101500-a1f").session_id == B


def test_run_of_several_sessions_leads_to_the_one_that_moved_last(home: Home) -> None:
    add_session(home, A, run_id=FIRST, updated_at=1.0)
    add_session(home, B, run_id=FIRST, updated_at=2.0)
    assert resolve_target([home], FIRST).session_id == B
    assert resolve_target([home], FIRST[:12]).session_id == B


def test_session_and_run_that_both_begin_so_are_refused(home: Home) -> None:
    add_session(home, "20261129T10", run_id=None)
    add_session(home, B, run_id=FIRST)
    error = refused([home], "20261129T1")
    assert set(error.candidates) == {"20261129T10", FIRST}


def test_run_directory_without_a_row_is_a_run(home: Home) -> None:
    RunDir.create(home, FIRST)
    (home.runs / f"{FIRST[:-1]}9").touch()
    for text in (FIRST, FIRST[:10]):
        found = resolve_target([home], text)
        assert (found.kind, found.run_id, found.session_id) == ("run", FIRST, None)
    home.state_db.unlink()
    assert resolve_target([home], FIRST).session_id is None


def test_hits_in_two_homes_are_refused(home: Home, tmp_path: Path) -> None:
    other = make_home(tmp_path / "other")
    add_session(home, A, run_id=FIRST)
    add_session(other, B, run_id=SECOND)
    assert resolve_target([home, other], "aa").home == home
    assert resolve_target([home, other], "ab").home == other
    assert set(refused([home, other], "a").candidates) == {A, B}
    invocation(other, "aa-inv")
    assert set(refused([home, other], "aa").candidates) == {A, "aa-inv"}
    # A whole id wins over beginnings elsewhere, but not over its own copy.
    add_session(other, A + "0", run_id=None)
    assert resolve_target([home, other], A).home == home
    sql(other, "UPDATE sessions SET id = ? WHERE id = ?", (A, A + "0"))
    error = refused([home, other], A)
    assert error.code == "target_ambiguous"
    assert all(str(one.path) in str(error) for one in (home, other))
    assert "2 homes" in str(refused([home, other], A))


def test_absent_homes_are_empty_and_stay_absent(home: Home, tmp_path: Path) -> None:
    absent = Home(tmp_path / "absent")
    assert refused([absent], "abc").code == "target_unknown"
    add_session(home, A)
    assert resolve_target([absent, home], A).home == home
    assert not absent.path.exists()


def test_unreadable_database_is_told_when_nothing_was_found(
    home: Home, tmp_path: Path
) -> None:
    broken = make_home(tmp_path / "broken")
    broken.state_db.write_text("no database, but long enough to be taken for one" * 9)
    add_session(home, A)
    assert resolve_target([broken, home], A).home == home
    with pytest.raises(StateDBError) as caught:
        resolve_target([broken, home], "nothing")
    assert caught.value.code == "db_corrupt"
    assert issubclass(StateDBError, HeavetoError)


def test_looking_changes_nothing(home: Home) -> None:
    add_session(home, A, run_id=FIRST)
    before = fingerprint(home.path)
    resolve_target([home], "aa")
    refused([home], "zz")
    assert fingerprint(home.path) == before
