"""Controls between processes: many senders, two pollers, and kills at every step."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from harness.runner_child import STEPS
from harness.steering import Child, add_session, child, make_home, run_children
from heaveto.controls import ControlClass, classify, enqueue, resolve
from heaveto.errors import ControlError
from heaveto.liveness import Liveness
from heaveto.statedb import ControlRow, ReadDB

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import Any

    from heaveto.runs import Home

SID = "ab" * 16

RUNNER = "from harness.runner_child import main; main()"
SENDER = """
import sys
from pathlib import Path
from heaveto.controls import enqueue
from heaveto.liveness import Liveness
from heaveto.runs import Home
home, session, count = Home(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
for number in range(count):
    receipt = enqueue(home, session, sys.argv[4], text=f"text {number}",
                      alive=lambda *_: Liveness(alive=True, why="told"))
    print(receipt.control.id)
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = make_home(tmp_path / "home")
    add_session(made, SID)
    return made


def runner(
    home: Home, name: str = "run-1", step: str = "-", count: int = 1
) -> AbstractContextManager[Child]:
    return child(RUNNER, home.path, SID, name, step, count)


def send(home: Home, verb: str, text: str = "a text") -> str:
    def alive(*_: Any) -> Liveness:
        return Liveness(alive=True, why="told")

    return enqueue(home, SID, verb, text=text, alive=alive).control.id


def rows(home: Home) -> dict[str, ControlRow]:
    with ReadDB.open(home.state_db) as database:
        return {row.id: row for row in database.controls()}


def class_of(row: ControlRow) -> ControlClass:
    """The class of a control whose runner was killed."""
    return classify(row, run_over=False, alive=False)


def rest(running: Child) -> list[str]:
    """Read what a child still says, to its end."""
    assert running.process.stdout is not None
    return [line.rstrip("\n") for line in running.process.stdout]


def rendered(lines: list[str]) -> Counter[str]:
    """Count how often each control's text stood in an instruction."""
    return Counter(
        line.removeprefix("rendered ") for line in lines if line.startswith("rendered ")
    )


def finish(running: Child) -> list[str]:
    """Let a runner go on to its second operation and its end."""
    running.tell("go")
    lines = rest(running)
    assert running.end() == 0
    return lines


# --- killed at a named step

MESSAGE_FATES: dict[str, ControlClass] = {
    "listed": "never_landed",
    "claimed": "claimed",
    "appended": "claimed",
    "stamped": "applied",
    "logged": "applied",
}
OTHER_FATES: dict[str, ControlClass] = {
    "listed": "never_landed",
    "effect": "never_landed",
    "stamped": "applied",
    "logged": "applied",
}


def test_the_steps_are_all_covered() -> None:
    assert set(MESSAGE_FATES) | set(OTHER_FATES) == set(STEPS)


@pytest.mark.crash
@pytest.mark.parametrize(("step", "fate"), MESSAGE_FATES.items())
def test_message_of_a_killed_runner(home: Home, step: str, fate: ControlClass) -> None:
    control = send(home, "message")
    with runner(home, step=step) as first:
        first.expect(f"at {step}")
        first.kill()
        assert rendered(rest(first))[control] == 0
    row = rows(home)[control]
    assert class_of(row) == fate
    if fate == "claimed":
        assert row.result == "applying:run-1"
    # Another consumer of the same session takes it only if nobody had claimed it.
    with runner(home, name="run-2") as second:
        second.expect("stored" if fate == "never_landed" else "idle")
        count = rendered(finish(second))[control]
    row = rows(home)[control]
    if fate == "never_landed":
        assert (count, row.result) == (1, "applied")
    else:
        assert count == 0
        assert row.result == ("applied" if fate == "applied" else "applying:run-1")
    if fate == "claimed":
        closed = resolve(home, control, "abandoned", by="alice")
        assert "the claim 'applying:run-1' was taken" in str(closed.result)
        assert class_of(closed) == "abandoned"


@pytest.mark.crash
@pytest.mark.parametrize("verb", ["pause", "resume", "stop"])
@pytest.mark.parametrize(("step", "fate"), OTHER_FATES.items())
def test_idempotent_control_of_a_killed_runner(
    home: Home, verb: str, step: str, fate: ControlClass
) -> None:
    control = send(home, verb)
    with runner(home, step=step) as first:
        first.expect(f"at {step}")
        first.kill()
    row = rows(home)[control]
    assert class_of(row) == fate
    assert row.claimed_at is None
    if fate == "never_landed":
        with runner(home, name="run-2") as second:
            second.expect("stored")
            if verb == "pause":
                send(home, "resume")
                second.expect("stored")
            lines = finish(second)
        assert f"phases open {verb == 'stop'}" in lines
        assert rows(home)[control].result == "applied"


@pytest.mark.crash
def test_message_that_was_read_before_its_stamp_is_not_delivered_again(
    home: Home,
) -> None:
    control = send(home, "message")
    with runner(home, step="stamping") as first:
        assert first.expect("rendered") == control
        first.kill()
    assert class_of(rows(home)[control]) == "claimed"
    with runner(home, name="run-2") as second:
        second.expect("idle")
        assert rendered(finish(second))[control] == 0
    assert class_of(rows(home)[control]) == "claimed"


# --- many senders, two pollers


def flood(home: Home, senders: int, each: int) -> None:
    """Send from several processes to two live consumers; all must be rendered once."""
    with runner(home, "run-1") as one, runner(home, "run-2") as two:
        for running in (one, two):
            running.expect("ready")
        said = run_children(
            [(SENDER, (home.path, SID, each, "message")) for _ in range(senders)]
        )
        sent = [line for text in said for line in text.split()]
        lines: list[str] = []
        for running in (one, two):
            running.expect("idle")
        while any(row.result != "applied" for row in rows(home).values()):
            one.expect("idle")
        for running in (one, two):
            lines += finish(running)
    assert len(sent) == senders * each
    assert rendered(lines) == Counter(sent)
    found = rows(home)
    assert set(found) == set(sent)
    assert {row.result for row in found.values()} == {"applied"}
    assert all(row.claimed_at is not None for row in found.values())


def test_hundred_messages_by_four_processes_are_each_rendered_once(home: Home) -> None:
    flood(home, 4, 25)


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(10))
def test_many_messages_by_many_processes(home: Home, turn: int) -> None:
    flood(home, 6, 50)


# --- killed anywhere


def moments(count: int, seed: int) -> Iterator[tuple[str, int]]:
    """Yield steps and the time they are come to, as chance has it."""
    chance = random.Random(seed)
    for _ in range(count):
        step = chance.choice(STEPS)
        once = step in ("listed", "logged")  # one batch holds all that is sent
        yield step, 1 if once else chance.randrange(1, 12)


def killed(home: Home, step: str, count: int) -> None:
    """Send a mixture, kill the consumer somewhere, and look at every fate."""
    verbs = ["message", "pause", "message", "resume"] * 6
    sent = [send(home, verb, f"text {number}") for number, verb in enumerate(verbs)]
    with runner(home, step=step, count=count) as running:
        running.expect(f"at {step}")
        running.kill()
        seen = rendered(rest(running))
    found = rows(home)
    assert list(found) == sent
    fates = [class_of(row) for row in found.values()]
    assert fates.count("claimed") <= 1
    # In order: what was applied, at most one in hand, what nobody has looked at.
    ranks = {"applied": 0, "claimed": 1, "never_landed": 2}
    assert [ranks[fate] for fate in fates] == sorted(ranks[fate] for fate in fates)
    for (control, row), fate in zip(found.items(), fates, strict=True):
        assert seen[control] <= (fate in ("applied", "claimed"))
        assert row.claimed_at is None or row.verb == "message"


@pytest.mark.crash
@pytest.mark.parametrize(("step", "count"), list(moments(5, 1)))
def test_every_control_has_one_fate_after_a_kill(
    home: Home, step: str, count: int
) -> None:
    killed(home, step, count)


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize(("step", "count"), list(moments(60, 2)))
def test_every_control_has_one_fate_after_many_kills(
    home: Home, step: str, count: int
) -> None:
    killed(home, step, count)


# --- the end of a run


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_stop_is_never_lost_around_the_start(home: Home, seed: int) -> None:
    starts = random.Random(seed).random() < 0.5
    with runner(home) as running:
        if starts:
            running.expect("ready")
        control = send(home, "stop")
        running.expect("stored")
        lines = finish(running)
    assert "phases open True" in lines
    assert "ended 1" in lines
    assert rows(home)[control].result == "applied"


def test_stop_before_the_start_withholds_what_has_not_begun(home: Home) -> None:
    control = send(home, "stop")
    with runner(home) as running:
        running.expect("stored")
        lines = finish(running)
    assert "phases open True" in lines
    assert rows(home)[control].result == "applied"


def test_ended_consumer_leaves_no_way_in(home: Home) -> None:
    with runner(home) as running:
        running.expect("idle")
        finish(running)
    with pytest.raises(ControlError) as caught:
        send(home, "message")
    assert caught.value.code == "poller_stopped"
