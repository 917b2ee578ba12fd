"""Workers of a run in a temporary directory, and pipes to order real children by."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blockbuster import blockbuster_ctx

from heaveto.flowfile import Flow, Operation
from heaveto.model import Node, Prepared
from heaveto.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heaveto.definition import WorkerSpec

__all__ = ["Labour", "Pipe", "never_blocking", "spec"]


@contextlib.contextmanager
def never_blocking() -> Iterator[None]:
    """Make a blocking call of heaveto's own on the event loop a failure."""
    with blockbuster_ctx(["heaveto"]) as found:
        found.functions["os.getcwd"].deactivate()  # a flow is made on the loop
        yield


def spec(**members: Any) -> WorkerSpec:
    """Read one worker as a flow file would have it."""
    flow = Flow("f", [Operation("op", "w", "")], workers={"w": members})
    return flow.workers["w"]


class Labour:
    """The workers of a run whose directory is ``<folder>/run-1``."""

    def __init__(self, folder: Path) -> None:
        self.run_dir = folder / "run-1"
        self.run_dir.mkdir(mode=0o700)
        self.pool = self.workers()

    def workers(self, *, kill_after: float = 5.0, **specs: WorkerSpec) -> Workers:
        self.pool = Workers(
            specs,
            run_id="run-1",
            run_dir=self.run_dir,
            artifacts=self.run_dir / "artifacts",
            kill_after=kill_after,
        )
        return self.pool

    def folder(self, operation: str = "op") -> Path:
        return self.run_dir / "operations" / operation

    def read(self, name: str, operation: str = "op") -> str:
        return (self.folder(operation) / name).read_text("utf-8", "surrogateescape")

    async def do(
        self,
        members: dict[str, Any],
        instruction: str = "",
        *,
        operation: str = "op",
        attempt: int = 1,
        context: dict[str, object] | None = None,
        kill_after: float = 5.0,
    ) -> object:
        """Prepare and invoke one operation."""
        pool = self.workers(w=spec(**members), kill_after=kill_after)
        prepared = Prepared(
            node=Node(
                id=f"id-{operation}",
                name=operation,
                assignee="w",
                instruction=instruction,
                attempt=attempt,
            ),
            instruction=instruction,
            context=context or {},
        )
        await pool.prepare(prepared)
        return await pool.invoke(prepared)

    async def sh(
        self,
        script: str,
        instruction: str = "",
        *,
        context: dict[str, object] | None = None,
        **members: Any,
    ) -> object:
        """Run a shell script as an operation."""
        whole = {"kind": "command", "argv": ["sh", "-c", script], **members}
        return await self.do(whole, instruction, context=context)


class Pipe:
    """A named pipe: one side says something, the other waits for it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path, 0o600)

    async def heard(self) -> str:
        """Wait until somebody has written to it and closed it."""
        return await asyncio.to_thread(self.path.read_text)

    async def say(self, text: str = "go\n") -> None:
        """Wait until somebody reads it, and write."""
        await asyncio.to_thread(self.path.write_text, text)
