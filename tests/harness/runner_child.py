"""A runner in a process of its own: real executor, real poller, real database.

``python -c "from harness.runner_child import main; main()" HOME SESSION NAME STEP N``

It tells on its standard output what happens: ``rendered <control>`` for each message in
an instruction, ``stored <control>`` for each outcome, ``idle`` when no control is open.
At the N-th time that it comes to the step it says ``at <step>`` and waits there for a
line, so that the parent can kill it exactly there. Its second operation starts after
the line ``go``, so that every message finds somebody who will read it; with the step
``stamping`` it starts by itself, while the first outcome waits to be stored for ever.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heaveto.controls.poller import ControlPoller
from heaveto.executor import DependencyAwareExecutor
from heaveto.model import Edge, Node
from heaveto.runs import Home
from heaveto.statedb.store import StateDB

if TYPE_CHECKING:
    from heaveto.model import Prepared

STEPS = (
    "listed",
    "claimed",
    "appended",
    "effect",
    "stamped",
    "logged",
)


def say(*words: object) -> None:
    """Tell the parent."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


class Stops:
    """Stops at the N-th time that a step is reached."""

    def __init__(self, step: str, count: int) -> None:
        self.step = step
        self.left = count
        self.released = asyncio.Event()

    def at(self, step: str) -> None:
        """Wait here if this is where the parent wants it."""
        if step != self.step:
            return
        self.left -= 1
        if self.left == 0:
            say("at", step)
            sys.stdin.readline()


class Store:
    """The database with a stop after each of the poller's steps."""

    def __init__(self, db: StateDB, stops: Stops) -> None:
        self.db = db
        self.stops = stops

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.db, name)
        step = {
            "pending_controls": "listed",
            "claim_control": "claimed",
            "finalize_control": "stamped",
            "log_controls": "logged",
        }.get(name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            if name == "finalize_control" and self.stops.step == "stamping":
                self.stops.released.set()
                await asyncio.Event().wait()
            done = await real(*args, **kwargs)
            if step is not None and (step != "listed" or done):
                self.stops.at(step)
            if name == "pending_controls" and not done:
                say("idle")
            if name == "finalize_control" and done:
                say("stored", args[0])
            return done

        return call


class Steered(DependencyAwareExecutor):
    """An executor with a stop right after each effect."""

    stops: Stops

    def pause(self) -> None:
        super().pause()
        self.stops.at("effect")

    def resume(self) -> None:
        super().resume()
        self.stops.at("effect")

    def stop(self) -> None:
        super().stop()
        self.stops.at("effect")

    def append_message(self, entry: Any) -> None:
        super().append_message(entry)
        self.stops.at("appended")


def node(name: str) -> Node:
    """Make an operation."""
    return Node(id=name, name=name, assignee="worker", instruction="do it")


async def run(home: Home, session_id: str, name: str, stops: Stops) -> None:
    """Run two operations, the second after the parent has said so."""

    async def invoke(prepared: Prepared) -> object:
        for entry in prepared.messages:
            assert str(entry["text"]) in prepared.instruction
            say("rendered", entry["control_id"])
        if prepared.node.id == "first" and stops.step == "stamping":
            await stops.released.wait()
        elif prepared.node.id == "first":
            await asyncio.to_thread(sys.stdin.readline)
        return "done"

    executor = Steered(
        [node("first"), node("second")],
        [Edge(head="first", tail="second")],
        invoke=invoke,
    )
    executor.stops = stops
    async with await StateDB.open(home.state_db) as db:
        store: Any = Store(db, stops)
        poller = ControlPoller(store, session_id, name, executor)
        polling = asyncio.create_task(poller.run())
        say("ready")
        result = await executor.execute()
        say("phases", "paused" if executor.paused else "open", executor.stopped)
        await poller.stop()
        await polling
    say("ended", len(result.completed))


def main() -> None:
    """Run with the arguments of the process."""
    home, session_id, name, step, count = sys.argv[1:6]
    asyncio.run(run(Home(Path(home)), session_id, name, Stops(step, int(count))))
