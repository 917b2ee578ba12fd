"""Snapshots for the console's tests: runs in every state, and a source that plays them.

The values are those that ``heaveto.observe`` makes; nothing of the console is replaced.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from heaveto.model import OperationStatus as Op
from heaveto.model import Origin, RunState, RunStatus
from heaveto.observe.snapshot import (
    CheckpointView,
    ControlView,
    HomeView,
    LinkView,
    Notice,
    OperationView,
    RunDetail,
    RunSummary,
)
from heaveto.observe.watch import Change

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

NOW = datetime(2026, 11, 29, 16, 3, 50, tzinfo=UTC).timestamp()
HOME = "/home/alice/.local/share/heaveto"

_RUN_STATUS = {
    RunState.COMPLETED: RunStatus.COMPLETED,
    RunState.COMPLETED_EMPTY: RunStatus.COMPLETED_EMPTY,
    RunState.FAILED: RunStatus.FAILED,
    RunState.TIMED_OUT: RunStatus.TIMED_OUT,
    RunState.ABORTED: RunStatus.ABORTED,
    RunState.CANCELLED: RunStatus.CANCELLED,
}


def operation(
    name: str,
    status: Op,
    *,
    needs: Iterable[str] = (),
    started: float | None = None,
    took: float | None = None,
    persisted: bool | None = None,
    **more: Any,
) -> OperationView:
    """Return an operation; ``started`` is seconds before now."""
    ended = status in {Op.COMPLETED, Op.FAILED, Op.SKIPPED, Op.ESCALATED}
    start = None if started is None else NOW - started
    end = None
    if ended and start is not None:
        end = start + (1.0 if took is None else took)
    if persisted is None:
        persisted = ended
    values: dict[str, Any] = {
        "id": f"{name}-id",
        "name": name,
        "assignee": "shell",
        "status": status,
        "status_source": "signals",
        "depends_on": tuple(f"{each}-id" for each in needs),
        "origin": Origin.PLANNED,
        "stale": False,
        "executed": ended,
        "persisted": persisted,
        "started_at": start,
        "ended_at": end,
    }
    return OperationView(**{**values, **more})


def control(
    number: int,
    verb: str,
    klass: str,
    *,
    age: float = 60.0,
    result: str | None = None,
    text: str | None = None,
    taken: float | None = None,
    applied: float | None = None,
    reader: str | None = None,
    lost: bool = False,
    owner: str | None = None,
) -> ControlView:
    """Return a control; ``taken`` and ``applied`` are seconds after it was queued."""
    created = NOW - age
    return ControlView(
        id=f"{number:08x}" + "c0ffee00" * 3,
        verb=verb,
        result=result,
        klass=klass,  # type: ignore[arg-type]
        created_at=created,
        claimed_at=None if taken is None else created + taken,
        applied_at=None if applied is None else created + applied,
        owner=owner,
        age_s=age,
        by="alice",
        host="vm",
        text=text,
        rendered_into=None if reader is None else f"{reader}-id",
        lost=lost,
    )


def summary(
    short: str,
    name: str,
    state: RunState,
    *,
    nodes: dict[str, int] | None = None,
    age: float = 60.0,
    ended: float | None = None,
    **more: Any,
) -> RunSummary:
    """Return a run; ``age`` and ``ended`` are seconds before now."""
    status = _RUN_STATUS.get(state, RunStatus.RUNNING)
    over = status is not RunStatus.RUNNING
    alive: bool | None = not over and state is not RunState.DEAD
    if state is RunState.UNKNOWN:
        alive = None
    values: dict[str, Any] = {
        "run_id": f"20261129T160000-{short[:6]}",
        "session_id": short + "-0000-4000-8000-000000000000",
        "home": HOME,
        "source": "heaveto",
        "name": name,
        "status": status,
        "state": state,
        "reason_code": None,
        "phase": None,
        "alive": alive,
        "status_source": "db" if over else "signals",
        "observed_at": NOW - 1,
        "confidence": "sure",
        "nodes": nodes or {"total": 0},
        "checkpoint": CheckpointView(
            version=3,
            generation="9d41c07b" + "0" * 24,
            seq=4,
            status="clean",
            records_since_base=4,
            saved=4,
        ),
        "generation_dir": None,
        "started_at": NOW - age,
        "ended_at": None if not over else NOW - (age / 2 if ended is None else ended),
        "deadline_at": None,
        "resumed_from": None,
        "superseded_by": None,
        "last_sign_at": NOW - 2,
    }
    return RunSummary(**{**values, **more})


def detail(
    run: RunSummary,
    operations: Iterable[OperationView] = (),
    controls: Iterable[ControlView] = (),
    *,
    links: Iterable[LinkView] = (),
    run_dir: str | None = None,
) -> RunDetail:
    """Return a run whole, its counts made from its operations."""
    every = tuple(operations)
    nodes: dict[str, int] = {"total": len(every)}
    for each in every:
        nodes[each.status] = nodes.get(each.status, 0) + 1
    edges = tuple((head, each.id) for each in every for head in each.depends_on)
    return RunDetail(
        run=replace(run, nodes=nodes) if every else run,
        operations=every,
        edges=edges,
        links=tuple(links),
        controls=tuple(controls),
        run_dir=run_dir,
    )


def cache_review() -> RunDetail:
    """Return a run that is pausing, with a failure, a spawn and an escalation."""
    return detail(
        summary("7be41a20", "cache-review", RunState.PAUSING, age=38),
        [
            operation("researcher", Op.COMPLETED, started=36, took=0.8),
            operation(
                "researcher-2",
                Op.FAILED,
                started=36,
                took=0.9,
                error_code="worker_error",
                error_text=(
                    "Request failed with status 400: incident store refused the query"
                ),
            ),
            operation(
                "analyst",
                Op.COMPLETED,
                needs=["researcher", "researcher-2"],
                started=35,
                took=3.2,
                stale=True,
            ),
            operation(
                "spawn-1",
                Op.RUNNING,
                needs=["analyst"],
                started=12,
                origin=Origin.SPAWNED,
            ),
            operation(
                "architect",
                Op.COMPLETED,
                needs=["analyst"],
                started=31,
                took=1.0,
                persisted=False,
            ),
            operation("writer", Op.PAUSED, needs=["architect"]),
            operation(
                "contrarian", Op.ESCALATED, needs=["analyst"], started=31, took=1.2
            ),
            operation(
                "contrarian-retry",
                Op.RUNNING,
                needs=["contrarian"],
                started=9,
                origin=Origin.RETRY,
            ),
            operation("evaluator", Op.WAITING, needs=["writer", "contrarian-retry"]),
        ],
        [
            control(
                0xF2C0A9D4, "pause", "applied", age=38, applied=0.2, result="applied"
            )
        ],
        links=[
            LinkView(
                head="analyst-id",
                tail="spawn-1-id",
                kind="spawn",
                condition=None,
                active=True,
            ),
            LinkView(
                head="contrarian-id",
                tail="contrarian-retry-id",
                kind="escalation",
                condition=None,
                active=True,
            ),
        ],
    )


def rollback() -> RunDetail:
    """Return a run that is paused, with a message that nobody has read."""
    return detail(
        summary(
            "99afdd6d",
            "Prepare the rollback of the bad deploy",
            RunState.PAUSED,
            age=269,
            last_sign_at=NOW - 269,
        ),
        [
            operation("collect", Op.COMPLETED, started=260, took=2.7),
            operation("analyst", Op.PAUSED, needs=["collect"]),
            operation("architect", Op.WAITING, needs=["analyst"]),
            operation("auditor", Op.WAITING, needs=["architect"]),
            operation("writer", Op.WAITING, needs=["architect"]),
        ],
        [
            control(
                0x16F63963, "pause", "applied", age=270, applied=0.3, result="applied"
            ),
            control(
                0xD175A783,
                "message",
                "applied",
                age=247,
                taken=1.8,
                applied=1.8,
                result="applied",
                text="Do not touch queue A; it carries payments.",
            ),
        ],
    )


def dead() -> RunDetail:
    """Return a run whose process is gone, with every end a control can have."""
    return detail(
        summary(
            "2fb1b803",
            "Choose a cache design for the price service",
            RunState.DEAD,
            age=204,
            warnings=(
                Notice(
                    code="steer_lost",
                    text="1 message was applied and never saved",
                    what_to_do="send it again to the run that takes over",
                ),
            ),
        ),
        [
            operation("researcher", Op.COMPLETED, started=200, took=0.9),
            operation("researcher-2", Op.COMPLETED, started=200, took=1.0),
            operation(
                "analyst",
                Op.LOST,
                needs=["researcher", "researcher-2"],
                started=198,
                persisted=False,
            ),
            operation("architect", Op.UNSTARTED, needs=["analyst"], persisted=False),
        ],
        [
            control(
                0xC6FA9F4B,
                "message",
                "applied",
                age=200,
                taken=1.5,
                applied=1.5,
                result="applied",
                text="Prefer the boring option.",
                lost=True,
            ),
            control(
                0xA272C2E6,
                "message",
                "claimed",
                age=196,
                taken=0.1,
                result="applying:run-7",
                owner="run-7",
                text="And write down why.",
            ),
            control(0xA5156C35, "pause", "never_landed", age=192),
            control(
                0x30C31E04,
                "message",
                "rejected",
                age=190,
                applied=1.0,
                result="rejected:no-pending-ops",
                text="Too late?",
            ),
            control(
                0x2D4713D9,
                "pause",
                "rejected",
                age=189,
                applied=1.0,
                result="rejected: run reached terminal status before it could land",
            ),
            control(
                0x6968CE87,
                "message",
                "abandoned",
                age=188,
                taken=0.5,
                applied=90.0,
                result="abandoned: resolved by alice after the claim was taken",
                text="Leave it.",
            ),
        ],
    )


def world() -> tuple[RunDetail, ...]:
    """Return the runs that the pictures of the screens show."""
    failed = detail(
        summary("9a94ae37", "nightly-build", RunState.FAILED, age=320, ended=309),
        [
            operation("fetch", Op.COMPLETED, started=320, took=1.1),
            operation(
                "build-arm",
                Op.FAILED,
                needs=["fetch"],
                started=318,
                took=1.0,
                error_code="exit_nonzero",
                error_text="exit code 1: ld: cannot find -lcrypto",
            ),
            operation(
                "test-arm",
                Op.SKIPPED,
                needs=["build-arm"],
                reason="build-arm failed before it",
            ),
        ],
    )
    running = detail(
        summary("3df14667", "release-notes", RunState.EXECUTING, age=5),
        [
            operation("survey", Op.COMPLETED, started=5, took=1.3),
            operation("engine", Op.RUNNING, needs=["survey"], started=2),
            operation("docs", Op.QUEUED, needs=["survey"]),
            operation("write", Op.WAITING, needs=["engine", "docs"]),
        ],
    )
    done = detail(
        summary("553e731a", "weekly-report", RunState.COMPLETED, age=400, ended=351),
        [operation("all", Op.COMPLETED, started=400, took=40.0)],
    )
    return (dead(), failed, cache_review(), rollback(), running, done)


def many(count: int) -> tuple[RunDetail, ...]:
    """Return runs without operations, in all states, the newest first."""
    states = (RunState.COMPLETED, RunState.FAILED, RunState.EXECUTING, RunState.PAUSED)
    return tuple(
        detail(
            summary(
                f"{number:08x}",
                f"flow number {number}",
                states[number % len(states)],
                nodes={"total": 6, "completed": number % 7},
                age=60.0 + number,
            )
        )
        for number in range(count)
    )


class Scripted:
    """A source of runs that shows what a test gives it.

    Attributes:
        homes: What ``health`` answers.
        reads: The runs that were read whole, in order.
    """

    def __init__(self, details: Iterable[RunDetail] = (), *, now: float = NOW) -> None:
        self._details = {each.run.session_id: each for each in details}
        self.homes: tuple[HomeView, ...] = (
            HomeView(path=HOME, source="heaveto", read_at=now - 1),
        )
        self.reads: list[str] = []
        self._changed = asyncio.Event()
        self._keys: set[str] | None = None

    def put(self, *details: RunDetail) -> None:
        """Show these runs otherwise than before, or for the first time."""
        for each in details:
            self._details[each.run.session_id] = each
        self._keys = (self._keys or set()) | {each.run.session_id for each in details}
        self._changed.set()

    def drop(self, session_id: str) -> None:
        """Show a run no more."""
        del self._details[session_id]
        self._keys = (self._keys or set()) | {session_id}
        self._changed.set()

    def fail(self, code: str, text: str, *, since: float) -> None:
        """Let the home not answer any more."""
        self.homes = (
            HomeView(
                path=HOME,
                source="heaveto",
                read_at=since,
                problem=Notice(code=code, text=text, what_to_do="wait"),
            ),
        )
        self._keys = self._keys or set()
        self._changed.set()

    def read(self, run: RunSummary) -> RunDetail | None:
        self.reads.append(run.session_id)
        return self._details.get(run.session_id)

    def health(self) -> tuple[HomeView, ...]:
        return self.homes

    def close(self) -> None:
        self._changed.set()

    async def watch(self) -> AsyncIterator[Change]:
        keys: frozenset[str] | None = None
        while True:
            yield Change(
                runs=tuple(each.run for each in self._details.values()),
                keys=keys,
                homes=self.homes,
            )
            await self._changed.wait()
            self._changed.clear()
            keys, self._keys = frozenset(self._keys or ()), None
