"""What is really going on in a run of lionagi's, beside what its rows say.

Pure: what was read goes in as values, a finer snapshot comes out. Three things happen
here. The log of signals may have gaps, because lionagi drops it for half a minute when
its database is busy; the segments in the row's metadata fill what they can. Operations
that only the checkpoint knows by their plan get their places among the announced ones.
And what lionagi's status words hide is said as warnings: a verdict that its operations
do not bear out, a resume that will be refused, results that nobody saved.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from heaveto.model import TERMINAL_RUN, OperationStatus, Origin, RunState, RunStatus
from heaveto.observe.fold import Lane, Link
from heaveto.observe.snapshot import LinkView
from heaveto.observe.words import notice
from heaveto.text import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from heaveto.observe.fold import Fold
    from heaveto.observe.saved import Saved
    from heaveto.observe.snapshot import Notice, OperationView, RunDetail
    from heaveto.statedb import SessionRow

__all__ = ["Known", "refined", "told_nodes", "with_segments"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of a run beside its snapshot."""

    row: SessionRow
    record: Mapping[str, object] = field(default_factory=dict)
    """What its ``run.json`` says beside the row."""
    saved: Saved | None = None
    patched: frozenset[str] = frozenset()
    """Operations whose status comes from the row's segments."""
    attempts: tuple[str, ...] = ()
    """Run ids of resumes of it that ended before they began."""


# --- segments: a second log, without queue, pause and edges


_ENDS = {
    "completed": OperationStatus.COMPLETED,
    "failed": OperationStatus.FAILED,
}


@dataclass(frozen=True, slots=True)
class _Segment:
    """One operation as the row's metadata tells of it."""

    id: str
    name: str
    end: OperationStatus | None
    started_at: float | None
    ended_at: float | None


def with_segments(
    fold: Fold, metadata: Mapping[str, object], saved: Saved | None
) -> tuple[Fold, frozenset[str]]:
    """Lay the segments over the signals, where they know more.

    Args:
        fold: The signals; it is not changed.
        metadata: ``node_metadata`` of the session.
        saved: Its checkpoint, which knows what depends on what by name.

    Returns:
        The fold itself, or one with the differing operations replaced; and their ids.
    """
    found = [one for one in _segments(metadata) if _knows_more(fold, one)]
    if not found:
        return fold, frozenset()
    lanes = dict(fold.lanes)
    seq = fold.last_seq
    found.sort(key=lambda one: one.ended_at or one.started_at or 0.0)
    for segment in found:
        lane = lanes.get(segment.id) or Lane(segment.id, segment.name)
        seq += 2
        lanes[segment.id] = _patched(lane, segment, seq)
    links = dict(fold.links)
    if saved is not None and saved.readable:
        _place(lanes, links, saved)
    patched = replace(fold, lanes=lanes, links=links, tainted=True)
    return patched, frozenset(one.id for one in found)


def told_nodes(row: SessionRow) -> tuple[dict[str, int], bool]:
    """Return how the operations of a run that is over ended, as its row tells.

    Returns:
        ``total`` and one count a status, and whether that is the whole: a completed run
        has a segment for each operation of its final graph, and each completed.
    """
    if row.run_id is None or row.invocation_kind not in ("flow", "play"):
        return {"total": 0}, True
    metadata = row.node_metadata
    planned = metadata.get("operations")
    if not isinstance(planned, list) or not planned:
        return {"total": 0}, False
    words = _last_words(metadata.get("segments"))
    completed = words.count("completed")
    if completed == len(words) >= len(planned):  # as nearly all of a long list
        return {"total": completed, "completed": completed}, True
    failed = words.count("failed")
    counts = {
        OperationStatus.COMPLETED: completed,
        OperationStatus.FAILED: failed,
        OperationStatus.LOST: len(words) - completed - failed,
        OperationStatus.UNSTARTED: max(0, len(planned) - len(words)),
    }
    nodes = {"total": max(len(planned), len(words))}
    nodes.update((status.value, count) for status, count in counts.items() if count)
    return nodes, False


def _last_words(segments: object) -> list[object]:
    """Return the last status of each operation, as the segments tell."""
    found = segments if isinstance(segments, list) else []
    # One look at each entry: a list of ten thousand runs has a hundred thousand.
    try:
        ends = {entry["op_id"]: entry["status"] for entry in found}
    except (TypeError, KeyError):
        ends = {
            entry["op_id"]: entry.get("status")
            for entry in found
            if isinstance(entry, dict) and isinstance(entry.get("op_id"), str)
        }
    return list(ends.values())


def _segments(metadata: Mapping[str, object]) -> Iterator[_Segment]:
    """Yield the segments that can be read."""
    entries = metadata.get("segments")
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict):
            continue
        op_id, name = entry.get("op_id"), entry.get("branch_name")
        if not isinstance(op_id, str) or not op_id:
            continue
        yield _Segment(
            op_id,
            name if isinstance(name, str) and name else op_id,
            _ENDS.get(str(entry.get("status"))),
            _time(entry.get("started_at")),
            _time(entry.get("ended_at")),
        )


def _knows_more(fold: Fold, segment: _Segment) -> bool:
    """Tell whether a segment knows a start or an end that no signal told."""
    lane = fold.lanes.get(segment.id)
    if lane is None:
        return True
    if lane.ended:
        return False
    return segment.end is not None or not lane.started_seq


def _patched(lane: Lane, segment: _Segment, seq: int) -> Lane:
    """Return an operation with what its segment knows."""
    status = segment.end or OperationStatus.RUNNING
    ended = segment.end is not None
    return replace(
        lane,
        status=OperationStatus.ESCALATED if lane.escalated else status,
        started_at=segment.started_at if lane.started_at is None else lane.started_at,
        started_seq=lane.started_seq or seq,
        ended_at=segment.ended_at if ended else None,
        ended_seq=seq + 1 if ended else 0,
        touched=seq,
    )


def _place(
    lanes: dict[str, Lane], links: dict[tuple[str, str], Link], saved: Saved
) -> None:
    """Give operations that were never announced their dependencies by the plan."""
    ids = {lane.name: lane.id for lane in lanes.values()}
    for item in saved.plan:
        lane = lanes.get(ids.get(item.agent_id, ""))
        if lane is None or lane.heads or lane.queued_at is not None:
            continue
        heads = tuple(ids[head] for head in item.heads if head in ids)
        lanes[lane.id] = replace(lane, heads=heads)
        for head in heads:
            links.setdefault((head, lane.id), Link("depends"))


def _time(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 2.0**53 else None


# --- the finer snapshot


def refined(found: RunDetail, known: Known) -> RunDetail:
    """Return a snapshot with lionagi's own truths in it.

    Args:
        found: What rows, signals and checkpoint say.
        known: What is known beside them.
    """
    operations = tuple(_named_heads(found.operations, known))
    links = found.links
    if operations != found.operations:
        links = _all_links(found.links, operations)
    warnings = (
        *_about_run(found, known),
        *(_advised(warning) for warning in found.run.warnings),
        *_about_past(found, known),
    )
    return replace(
        found,
        run=replace(found.run, warnings=warnings),
        operations=operations,
        links=links,
        edges=tuple((link.head, link.tail) for link in links),
    )


def _named_heads(
    operations: Sequence[OperationView], known: Known
) -> Iterator[OperationView]:
    """Yield operations whose heads are ids, and with where their status is from.

    A plan names operations by agent id alone; those that were announced have an id.
    """
    ids = {one.name: one.id for one in operations}
    given = {one.id for one in operations}
    for one in operations:
        if one.id in known.patched and one.status_source == "signals":
            one = replace(one, status_source="db")
        heads = tuple(
            head if head in given else ids.get(head, head) for head in one.depends_on
        )
        yield one if heads == one.depends_on else replace(one, depends_on=heads)


def _all_links(
    links: Sequence[LinkView], operations: Sequence[OperationView]
) -> tuple[LinkView, ...]:
    """Return the links, with those of operations that only the plan knows."""
    given = {one.id for one in operations}
    kept = [one for one in links if one.head in given and one.tail in given]
    there = {(one.head, one.tail) for one in kept}
    kept += [
        LinkView(head=head, tail=one.id, kind="depends", condition=None, active=True)
        for one in operations
        for head in one.depends_on
        if (head, one.id) not in there
    ]
    return tuple(kept)


# --- warnings


_ADVICE = {
    "input_failed": "lionagi keeps these results, also with --retry-failed: heaveto"
    " resume RUN --dry-run names them. To make them anew, start the flow again.",
    "stale_result": "lionagi does not make them anew; start the flow again for that.",
    "checkpoint_missing": "lionagi cannot resume it; start the flow anew.",
    "never_landed": "Resume the run with li o flow --resume and send them to the new"
    " one.",
    "run_dir_missing": "Put it back, or end the row with li kill.",
}
"""What to do where heaveto's own runs offer more than lionagi does."""


def _advised(warning: Notice) -> Notice:
    advice = _ADVICE.get(warning.code)
    return warning if advice is None else replace(warning, what_to_do=advice)


def _about_run(found: RunDetail, known: Known) -> Iterable[Notice]:
    """Yield what matters most: what the words of the row hide."""
    run = found.run
    record = known.record
    if run.status == RunStatus.RUNNING and run.state == RunState.DEAD:
        lost = record.get("terminal_write_lost")
        if isinstance(lost, dict) and isinstance(lost.get("status"), str):
            yield notice(
                "terminal_write_lost",
                f"It ended as {plain(lost['status'])} and could not write that into"
                " its row.",
            )
    yield from _about_verdict(found, known)
    if run.superseded_by is None and _is_resumable(found) and _spawned(known.saved):
        yield notice("li_refuses")
    if run.superseded_by is not None and run.status == RunStatus.RUNNING and run.alive:
        yield notice(
            "runs_twice",
            f"It was resumed as {plain(run.superseded_by)} while its process is there:"
            " what is left runs twice.",
        )
    reason = record.get("persistence_degraded_reason")
    if isinstance(reason, str) and reason:
        yield notice("persistence_off", _unsaved_since(known.saved))
    refused = [label for kind, _, label in _references(known.row) if kind == _DROPPED]
    if refused:
        yield notice("spawn_dropped", f"Spawns were refused: {', '.join(refused)}.")
    ignored = _ignored(known.saved)
    if ignored:
        names = ", ".join(plain(name) for name in ignored)
        yield notice(
            "spawn_ignored",
            f"{names} asked for another operation, and lionagi ignored it.",
        )


def _unsaved_since(saved: Saved | None) -> str | None:
    """Say what switched off saving means where a checkpoint is there all the same."""
    if saved is None or not saved.readable:
        return None
    return (
        "Saving was switched off for this run: its checkpoint may lack what followed."
    )


_DROPPED = "refused_spawn"


def _is_resumable(found: RunDetail) -> bool:
    """Tell whether somebody may want to resume a run: it ended short, or is dead."""
    short = (RunStatus.COMPLETED, RunStatus.COMPLETED_EMPTY)
    ended = found.run.status in TERMINAL_RUN and found.run.status not in short
    return ended or found.run.state == RunState.DEAD


def _spawned(saved: Saved | None) -> bool:
    """Tell whether a resume meets a spawned operation that it cannot place.

    lionagi gives planned operations new ids on a resume, so only a spawn without a
    parent, or below another spawn, has one that is found.
    """
    if saved is None or not saved.readable:
        return False
    return any(
        one.parent_id is not None and one.parent_id not in saved.spawned
        for one in saved.spawned.values()
    )


def _ignored(saved: Saved | None) -> list[str]:
    """Return the spawned operations whose own requests came to nothing.

    A worker that was spawned is offered to spawn and has no right to; lionagi 0.36
    does not say so anywhere.
    """
    if saved is None or not saved.readable:
        return []
    parents = {one.parent_id for one in saved.spawned.values()}
    return [
        one.name or op_id
        for op_id, one in saved.spawned.items()
        if one.asks and op_id not in parents
    ]


_BAD = frozenset(
    {
        OperationStatus.FAILED,
        OperationStatus.CANCELLED,
        OperationStatus.LOST,
        OperationStatus.UNSTARTED,
        OperationStatus.UNKNOWN,
    }
)


def _about_verdict(found: RunDetail, known: Known) -> Iterable[Notice]:
    """Compare the verdict of a run with what became of its operations."""
    run, operations = found.run, found.operations
    statuses = {one.status for one in operations}
    if run.status == RunStatus.FAILED and operations and not statuses & _BAD:
        yield notice(
            "verdict_differs",
            "The run says failed, yet every operation finished."
            f" Reason: {_evidence(known.row, operations)}.",
        )
    failed = [one for one in operations if one.status == OperationStatus.FAILED]
    if run.status == RunStatus.COMPLETED and failed:
        names = ", ".join(plain(one.name) for one in failed)
        yield notice("verdict_differs", f"The run says completed, yet {names} failed.")


def _evidence(row: SessionRow, operations: Sequence[OperationView]) -> str:
    """Return in words why lionagi calls a run failed whose operations finished."""
    worked = any(
        one.origin == Origin.RETRY and one.status == OperationStatus.COMPLETED
        for one in operations
    )
    parts = []
    for kind, name, label in _references(row):
        words = _EVIDENCE.get(kind, f"{kind} {{name}}")
        said = words.replace("{name}", name).replace("{label}", label)
        if kind == "escalated_operation" and worked:
            said += ", and the second try worked"
        parts.append(said)
    return "; ".join(parts) or plain(row.status_reason_code or "none is recorded")


_EVIDENCE = {
    "unroutable_spawn": "a spawn asked for the unknown role {name}",
    "expected_artifact": "the required file {label} is not there",
    "escalated_operation": "{name} asked for help",
    "failed_operation": "{name} failed",
    "lost_operation": "{name} came to no result",
    "artifact_write_error": "an output could not be written ({name})",
    "gate_rejected_operation": "the gate {name} said no",
    "refused_spawn": "a spawn was refused: {label}",
    "finalize_error": "what follows the operations failed ({name})",
}
"""Labels may quote an error, so only those that cannot are shown."""
_SHORT = 80


def _references(row: SessionRow) -> Iterator[tuple[str, str, str]]:
    """Yield kind, id and label of what lionagi names as evidence."""
    references = row.status_evidence_refs
    for entry in references if isinstance(references, list) else ():
        if isinstance(entry, dict):
            kind, name, label = (
                plain(str(entry.get(part) or ""))[:_SHORT]
                for part in ("kind", "id", "label")
            )
            yield kind, name, label or name


def _about_past(found: RunDetail, known: Known) -> Iterable[Notice]:
    """Yield what explains a run's place among the others."""
    run, row = found.run, known.row
    if known.attempts:
        count = len(known.attempts)
        yield notice(
            "resume_attempts",
            f"{count} {'attempt' if count == 1 else 'attempts'} to resume it did"
            f" nothing: {', '.join(map(plain, known.attempts))}.",
        )
    if run.resumed_from is not None and not found.operations and _has_ended(run.status):
        yield notice("did_nothing")
    codes = {warning.code for warning in run.warnings}
    if known.record.get("signal_persistence_degraded_at") and (
        "signals_gap" not in codes
    ):
        yield notice("signals_gap")
    if (row.source_kind or "live") != "live" or _is_mirrored(row):
        yield notice("mirrored")


def _has_ended(status: object) -> bool:
    return status in TERMINAL_RUN


def _is_mirrored(row: SessionRow) -> bool:
    """Tell whether another program runs an agent session that lionagi only copies."""
    return row.invocation_kind == "agent" and row.run_id is None
