"""Real homes for readers: rows by the real StateDB, files by the real writer.

``Builder`` makes one run after the other in an own home. Nothing here writes SQL or
checkpoint bytes by itself, except where a test damages what was written.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sqlite3
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from heaveto.checkpoint.writer import CheckpointWriter
from heaveto.files import Directory
from heaveto.liveness import identity
from heaveto.model import RunStatus, Signal, SignalKind
from heaveto.runs import Home, RunDir, RunRecord, write_run_json
from heaveto.seal import seal
from heaveto.statedb.store import StateDB
from heaveto.workers.records import ProcessRecord, write_record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

__all__ = [
    "Builder",
    "Held",
    "Operation",
    "RunUnderWay",
    "changes_until",
    "gone",
    "hold_lock",
    "home_at",
    "leftover",
    "multiply",
]

_numbers = itertools.count(1)

K = SignalKind


def home_at(path: Path) -> Home:
    """Make an own home."""
    home = Home(path, "heaveto")
    home.make()
    return home


def _uuid() -> str:
    return str(UUID(int=(0xA0000000 << 96) + next(_numbers)))


@dataclass(slots=True)
class Operation:
    """One operation of a built run."""

    name: str
    heads: tuple[str, ...] = ()
    id: str = field(default_factory=_uuid)


class RunUnderWay:
    """A run that a test moves on, one event at a time."""

    def __init__(
        self,
        builder: Builder,
        *,
        session_id: str,
        run_dir: RunDir,
        operations: Sequence[Operation],
        writer: CheckpointWriter | None,
    ) -> None:
        self.builder = builder
        self.session_id = session_id
        self.run_dir = run_dir
        self.run_id = run_dir.run_id
        self.operations = {operation.name: operation for operation in operations}
        self.writer = writer
        self.context: dict[str, Any] = {}

    def id(self, name: str) -> str:
        return self.operations[name].id

    async def emit(self, kind: SignalKind, name: str, **data: object) -> None:
        await self.emit_all([(kind, name, data)])

    async def emit_all(
        self, events: Sequence[tuple[SignalKind, str, Mapping[str, object]]]
    ) -> None:
        signals = [
            Signal(
                kind=kind,
                operation_id=self.id(name),
                name=name,
                at=self.builder.tick(),
                data=dict(data),
            )
            for kind, name, data in events
        ]
        await self.builder.db.emit_signals(self.session_id, signals)

    async def announce(self) -> None:
        await self.emit_all(
            [
                (
                    K.QUEUED,
                    one.name,
                    {
                        "depends_on": [self.id(head) for head in one.heads],
                        "assignee": "shell",
                        "origin": "planned",
                    },
                )
                for one in self.operations.values()
            ]
        )

    async def start(self, name: str, **data: object) -> None:
        heads = [self.id(head) for head in self.operations[name].heads]
        await self.emit(K.STARTED, name, depends_on=heads, elapsed=0.0, **data)

    async def complete(self, name: str, *, save: bool = True) -> None:
        await self.emit(K.COMPLETED, name, elapsed=0.1)
        if save:
            await self.save(name)

    async def fail(self, name: str, *, save: bool = True) -> None:
        await self.emit(K.FAILED, name, elapsed=0.1, error={"code": "exit_nonzero"})
        if save:
            await self.save(
                name,
                status="failed",
                response={"error": "it broke", "code": "exit_nonzero"},
            )

    async def save(
        self, name: str, *, status: str = "completed", response: object = "ok"
    ) -> None:
        if self.writer is not None:
            await self.writer.record(
                name, status=status, response=response, flow_context=self.context
            )

    async def run(self, name: str) -> None:
        await self.start(name)
        await self.complete(name)

    async def end(
        self,
        status: RunStatus = RunStatus.COMPLETED,
        *,
        reason: str = "run.completed",
        metadata: Mapping[str, object] | None = None,
    ) -> None:
        await self.close()
        await self.builder.db.set_status(
            self.session_id,
            status,
            reason_code=reason,
            metadata={"flow_control_poller": "stopped", **(metadata or {})},
        )

    async def close(self) -> None:
        writer, self.writer = self.writer, None
        if writer is not None:
            await writer.aclose()


class Builder:
    """Makes runs in one home."""

    def __init__(self, home: Home, db: StateDB, *, start: float) -> None:
        self.home = home
        self.db = db
        self.now = start

    def tick(self) -> float:
        self.now += 0.01
        return self.now

    @classmethod
    async def open(cls, path: Path, *, start: float | None = None) -> Builder:
        import time

        home = await asyncio.to_thread(home_at, path)
        builder: list[Builder] = []

        def clock() -> float:
            return builder[0].tick() if builder else 0.0

        db = await StateDB.open(home.state_db, clock=clock)
        builder.append(cls(home, db, start=time.time() if start is None else start))
        return builder[0]

    async def close(self) -> None:
        await self.db.close()

    async def begin(
        self,
        operations: Sequence[Operation] = (),
        *,
        name: str = "flow",
        metadata: Mapping[str, object] | None = None,
        checkpoint: int | None = 3,
        run_id: str | None = None,
        phase: str | None = "executing",
        announce: bool = True,
        plan_ids: bool = True,
        **limits: Any,
    ) -> RunUnderWay:
        number = next(_numbers)
        run_id = run_id or f"20261129T101500-{number:06x}"
        session_id = f"{number:08x}" + "5" * 24
        run_dir = await asyncio.to_thread(RunDir.create, self.home, run_id)
        record = RunRecord(
            run_id=run_id,
            status="running",
            started_at=self.now,
            session_id=session_id,
            checkpoint_format=checkpoint,
        )
        await asyncio.to_thread(write_run_json, run_dir, record)
        await self.db.create_session(
            session_id=session_id,
            run_id=run_id,
            name=name,
            metadata={"flow_control_poller": "active", **(metadata or {})},
            phase=phase,
        )
        writer = None
        if checkpoint is not None:
            writer = _writer(
                run_dir, session_id, operations, checkpoint, plan_ids, limits
            )
            await writer.flush()
        run = RunUnderWay(
            self,
            session_id=session_id,
            run_dir=run_dir,
            operations=operations,
            writer=writer,
        )
        if announce and operations:
            await run.announce()
        return run

    async def dead(self, run: RunUnderWay) -> None:
        """Leave a run as its runner left it when it was killed."""
        await run.close()
        await self.db.merge_metadata(run.session_id, gone())


def _writer(
    run_dir: RunDir,
    session_id: str,
    operations: Sequence[Operation],
    version: int,
    plan_ids: bool,
    limits: Mapping[str, Any],
) -> CheckpointWriter:
    names = [one.name for one in operations]
    plan = []
    for one in operations:
        entry: dict[str, object] = {
            "agent_id": one.name,
            "dep_indices": [names.index(head) for head in one.heads],
            "assignee": "shell",
            "task": "t",
        }
        if plan_ids:
            entry["node_id"] = one.id
        plan.append(entry)
    return CheckpointWriter(
        run_dir.checkpoint,
        session_id=session_id,
        prompt="p",
        plan=plan,
        config={},
        version=version,
        **limits,
    )


def gone() -> dict[str, object]:
    """Return the identity of a process of this machine that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    return {**identity(), "pid": child.pid}


class Held:
    """Another process that holds a run's lock, as a runner does."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


_HOLDER = """
import sys
from pathlib import Path
from heaveto.runs import RunDir
held = RunDir(Path(sys.argv[1])).hold()
print("held", flush=True)
sys.stdin.read()
"""


def hold_lock(run_dir: RunDir) -> Held:
    """Let a child process hold a run's lock until it is killed."""
    import heaveto

    core = str(Path(heaveto.__file__).parent.parent)
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(run_dir.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": core},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return Held(process)


def leftover(run_dir: RunDir, operation: str) -> subprocess.Popen[bytes]:
    """Start a child as a worker does and record it, as its runner would have."""
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    folder = run_dir.operation(operation)
    folder.mkdir(parents=True)
    record = ProcessRecord.of(
        child.pid, run_id=run_dir.run_id, operation=operation, command="sleep"
    )
    with Directory.open(folder) as directory:
        write_record(directory, record)
    return child


async def changes_until(
    stream: AsyncIterator[Any], wanted: Any, *, limit: float = 30.0
) -> Any:
    """Take changes until one satisfies a condition."""
    async with asyncio.timeout(limit):
        async for change in stream:
            if wanted(change):
                return change
    raise AssertionError("the stream ended")


def multiply(run: RunUnderWay, count: int, *, sealed: bool) -> None:
    """Copy one ended run many times: rows, signals, directory and checkpoint.

    Args:
        run: An ended run; the database has no writer that is busy.
        count: How many copies.
        sealed: Put a seal of the copied checkpoint into each row.
    """
    home, source = run.builder.home, run.run_dir.path
    db = sqlite3.connect(home.state_db)
    names = [row[1] for row in db.execute("PRAGMA table_info(sessions)")]
    kept = [name for name in names if name not in ("id", "run_id", "node_metadata")]
    columns = ", ".join(kept)
    [(metadata,)] = db.execute(
        "SELECT node_metadata FROM sessions WHERE id = ?", [run.session_id]
    )
    files = [
        (path.name, path.read_bytes()) for path in source.iterdir() if path.is_file()
    ]
    with db:
        for number in range(count):
            run_id = f"20261128T101500-{number:06x}"
            session_id = f"{number:08x}" + "6" * 24
            folder = home.runs / run_id
            folder.mkdir(mode=0o700)
            for name, data in files:
                (folder / name).write_bytes(data)
            own = {**json.loads(metadata), "run_id": run_id}
            if sealed:
                own["checkpoint_seal"] = seal(
                    folder / "checkpoint.json",
                    version=3,
                    generation="0" * 32,
                    seq=len(run.operations),
                    saved=len(run.operations),
                )
            db.execute(
                f"INSERT INTO sessions (id, run_id, node_metadata, {columns})"
                f" SELECT ?, ?, ?, {columns} FROM sessions WHERE id = ?",
                [session_id, run_id, json.dumps(own), run.session_id],
            )
            db.execute(
                "INSERT INTO session_signals"
                " (id, session_id, seq, kind, op_id, ts, payload)"
                " SELECT lower(hex(randomblob(16))), ?, seq, kind, op_id, ts, payload"
                " FROM session_signals WHERE session_id = ?",
                [session_id, run.session_id],
            )
    db.close()
