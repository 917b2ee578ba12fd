"""One run of a checkpoint writer, what it should leave behind, and who checks it.

:func:`drive` plays a :class:`Script` against a real writer and tells, as it goes, what
was admitted and what was acknowledged. :class:`Model` knows, from the script alone and
with nothing of the product, the state after every number of transitions.
:func:`verdict` loads what is on disk and says whether it is one of those states, and a
late enough one: the exact-prefix rule, context included.
"""

from __future__ import annotations

import asyncio
import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.faults import FaultyOs
from heaveto.checkpoint import (
    CheckpointError,
    CheckpointRefused,
    CheckpointWriter,
    load_checkpoint,
)
from heaveto.files import OS, Os

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from pathlib import Path

__all__ = ["Log", "Model", "Script", "drive", "run", "verdict"]

PLAN = [{"agent_id": f"op-{i}", "dep_indices": [], "task": "t"} for i in range(8)]
PATIENCE = 30.0


@dataclass(frozen=True, kw_only=True)
class Script:
    """What a run does."""

    version: int = 3
    steps: int = 10
    together: int = 1
    """Calls made in one turn of the loop."""
    max_records: int = 4
    max_bytes: int = 8_388_608
    close: bool = True


def transition(step: int, live: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Change the live context and return the method to call and its arguments."""
    live.setdefault("log", []).append(f"step {step} \u00e9\u20ac\U0001f600")
    live["count"] = [step, float(step), step % 2 == 0][step % 3]
    if step % 5 == 3:
        live.pop("extra", None)
    else:
        live.setdefault("extra", {})[f"k/{step % 2}~"] = {"n": step}
    context = None if step % 4 == 2 else live
    status = "failed" if step % 7 == 5 else "completed"
    if step % 3 == 1:
        node = f"node-{step % 6}"
        pending = step % 6 == 4
        return "record_spawned", {
            "node_id": node,
            "status": "pending" if pending else status,
            "response": None if pending else {"step": step},
            "flow_context": context,
            "operation": "operate",
            "instruction": "look again",
            "context": [step],
        }
    return "record", {
        "agent_id": f"op-{step % 7}",
        "status": status,
        "response": {"step": step, "text": "x" * (40 * (step % 5))},
        "flow_context": context,
    }


class Model:
    """The state after each number of transitions of a script."""

    def __init__(self, script: Script) -> None:
        self.states: list[dict[str, Any]] = []
        live: dict[str, Any] = {}
        ops: dict[str, Any] = {}
        spawned: dict[str, Any] = {}
        context: dict[str, Any] = {}
        self._keep(ops, spawned, context)
        for step in range(script.steps):
            method, given = transition(step, live)
            given = copy.deepcopy(given)
            changed = given.pop("flow_context")
            context = context if changed is None else changed
            if method == "record":
                ops[given["agent_id"]] = given
            else:
                texts = ("assignee", "parent_id", "spawn_id")
                spawned[given["node_id"]] = {**dict.fromkeys(texts), **given}
            self._keep(ops, spawned, context)

    def _keep(
        self, ops: dict[str, Any], spawned: dict[str, Any], context: dict[str, Any]
    ) -> None:
        state = {
            "flow_context": context,
            "ops": ops,
            "spawned": list(spawned.values()),
        }
        self.states.append(copy.deepcopy(state))


class Log:
    """What a run has told: ``admit N``, ``ack N``, ``flush``, ``error CODE`` …"""

    def __init__(self, lines: Iterable[str] = ()) -> None:
        self.lines = list(lines)

    def __call__(self, line: str) -> None:
        self.lines.append(line)

    def _numbers(self, word: str) -> list[int]:
        found = [line.split() for line in self.lines]
        return [int(parts[1]) for parts in found if parts[0] == word]

    @property
    def admitted(self) -> int:
        """How many transitions were handed to the writer, at most."""
        return max(self._numbers("admit"), default=0)

    @property
    def acknowledged(self) -> int:
        """Up to which transition everything must be there; -1: not even a unit."""
        if "closed" in self.lines:
            return self.admitted
        acks = self._numbers("ack")
        return max(acks, default=0 if "flush" in self.lines else -1)

    @property
    def strange(self) -> list[str]:
        """Anything that is no acknowledgement and no typed refusal."""
        bad = [line for line in self.lines if line.split()[0] in ("hang", "raised")]
        return [line for line in bad if line != "raised Killed"]

    @property
    def refusals(self) -> list[str]:
        """The codes of typed errors."""
        return [line.split()[1] for line in self.lines if line.startswith("error")]


def run(task: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on a loop of its own that leaves no trace in this thread."""
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(task)
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


async def drive(
    script: Script, path: Path, tell: Callable[[str], None], *, system: Os = OS
) -> None:
    """Play a script; every error that is not typed is told as ``raised``."""
    live: dict[str, Any] = {}
    try:
        writer = CheckpointWriter(
            path,
            session_id="s-1",
            prompt="p",
            plan=PLAN,
            config={"max_ops": 0},
            version=script.version,
            max_journal_records=script.max_records,
            max_journal_bytes=script.max_bytes,
            system=system,
        )
    except CheckpointError as error:
        tell(f"error {error.code}")
        return
    except BaseException as error:
        tell(f"raised {type(error).__name__}")
        return
    await _told(writer.flush(), "flush", tell)
    for start in range(0, script.steps, script.together):
        calls = []
        if script.together > 1 and isinstance(system, FaultyOs):
            calls.append(await _held(writer, system, tell))
        for step in range(start, min(start + script.together, script.steps)):
            method, given = transition(step, live)
            identity = given.pop("agent_id", None) or given.pop("node_id")
            tell(f"admit {step + 1}")
            call = getattr(writer, method)(identity, **given)
            calls.append(_told(call, f"ack {step + 1}", tell))
        if isinstance(system, FaultyOs):
            system.let_go()
        await asyncio.gather(*calls)
    if script.close:
        await _told(writer.aclose(), "closed", tell)


async def _held(
    writer: CheckpointWriter, system: FaultyOs, tell: Callable[[str], None]
) -> Any:
    """Stop the I/O thread inside a flush, so that what is called next is one batch."""
    system.hold()
    held = asyncio.ensure_future(_told(writer.flush(), "flush", tell))
    reached = asyncio.ensure_future(asyncio.to_thread(system.reached.wait, PATIENCE))
    await asyncio.wait({held, reached}, return_when=asyncio.FIRST_COMPLETED)
    system.reached.set()
    await reached
    return held


async def _told(call: Any, word: str, tell: Callable[[str], None]) -> None:
    try:
        await asyncio.wait_for(call, PATIENCE)
    except CheckpointError as error:
        tell(f"error {error.code}")
    except TimeoutError:
        tell(f"hang {word}")
    except BaseException as error:
        tell(f"raised {type(error).__name__}")
    else:
        tell(word)


def verdict(script: Script, path: Path, log: Log, *, system: Os = OS) -> str | None:
    """Say what is wrong with what a run left, or None.

    Args:
        script: What was played.
        path: Of ``checkpoint.json``.
        log: What the run told before it ended, however it ended.
        system: Where the disk is.
    """
    if log.strange:
        return f"strange: {log.strange}"
    least = log.acknowledged
    try:
        loaded = load_checkpoint(path, system=system)
    except CheckpointRefused as error:
        if least < 0 and error.code == "base_missing":
            return None
        return f"refused: {error.code}, acknowledged up to {least}"
    states = Model(script).states
    found = {name: loaded.state[name] for name in ("flow_context", "ops", "spawned")}
    matches = [n for n, state in enumerate(states) if _same(state, found)]
    if not matches:
        return f"wrong: no admitted prefix (acknowledged {least} of {log.admitted})"
    if not any(max(least, 0) <= n <= log.admitted for n in matches):
        return f"lost: found prefix {matches}, acknowledged {least} of {log.admitted}"
    return None


def _same(one: Any, other: Any) -> bool:
    """Compare JSON values with their types."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and bool(one == other)
