"""The changes that are ever made to a state database, as SQL.

Each is one statement that carries its own condition, so that what was true when it was
decided is true when it is done: admission inside the INSERT (SPEC A-35, A-36), claims
by compare-and-set (B-16), the status once (A-12), merges without a read (A-16). The
runner's connection and the short verbs share them. Pure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from uuid import uuid4

from heaveto.errors import StateDBError
from heaveto.model import TERMINAL_RUN, RunStatus
from heaveto.statedb.rows import (
    CONTROL_COLUMNS,
    PAYLOAD_LIMIT,
    SESSION_COLUMNS,
    TOO_LARGE,
    json_text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from heaveto.statedb.rows import Column

__all__ = [
    "CLAIM",
    "CONTROL_BY_ID",
    "CREATE_SESSION",
    "DELETE_SESSION",
    "EMIT_SIGNAL",
    "FINALIZE",
    "LOG_CONTROLS",
    "LOG_LENGTH",
    "NOTE_CREATION",
    "NOTE_TRANSITION",
    "PENDING",
    "SESSION_BY_ID",
    "SET_PHASE",
    "SET_STATUS",
    "SWEEP",
    "admission",
    "merge",
    "status_parameters",
]

LOG_LENGTH = 500
"""How many entries ``node_metadata.controls`` keeps; the rows keep them all."""

_TERMINAL = ", ".join(f"'{status}'" for status in sorted(TERMINAL_RUN))

# What is stored as metadata and is no object is kept, under a name of its own.
_METADATA = (
    "CASE WHEN json_valid(node_metadata) AND json_type(node_metadata) = 'object'"
    " THEN node_metadata WHEN node_metadata IS NULL THEN '{}'"
    " ELSE json_object('_discarded_node_metadata', CAST(node_metadata AS TEXT)) END"
)
_MARKER = (
    "CASE WHEN json_valid(s.node_metadata)"
    " THEN json_extract(s.node_metadata, '$.flow_control_poller') END"
)
_DRAINS = (
    "CASE WHEN json_valid(s.node_metadata)"
    " THEN json_extract(s.node_metadata, '$.drains_controls') END"
)


def _names(columns: Sequence[Column]) -> str:
    """Return a SELECT list of an own database, which has every column."""
    return ", ".join(f'"{column.name}"' for column in columns)


# A payload of any size may have been written by another program.
_OPEN_CONTROL = _names(CONTROL_COLUMNS).replace(
    '"payload"',
    f"CASE WHEN length(payload) > {PAYLOAD_LIMIT} THEN '{TOO_LARGE}' ELSE payload END",
)
PENDING = (
    f"SELECT {_OPEN_CONTROL} FROM session_controls"
    " WHERE session_id = ? AND applied_at IS NULL AND result IS NULL"
    " AND claimed_at IS NULL ORDER BY created_at, id LIMIT ?"
)
CONTROL_BY_ID = f"SELECT {_names(CONTROL_COLUMNS)} FROM session_controls WHERE id = ?"
SESSION_BY_ID = f"SELECT {_names(SESSION_COLUMNS)} FROM sessions WHERE id = ?"

CREATE_SESSION = (
    "INSERT INTO sessions (id, run_id, name, status, invocation_kind, node_metadata,"
    " current_phase, artifacts_path, artifact_contract_json, created_at, updated_at,"
    " started_at, status_reason_code) VALUES (:id, :run_id, :name, 'running', :kind,"
    " :metadata, :phase, :artifacts_path, :contract, :now, :now, :now, :reason)"
)
NOTE_CREATION = (
    "INSERT INTO status_transitions (id, entity_type, entity_id, status, reason_code,"
    " source, actor, created_at) VALUES (:transition, 'session', :id, 'running',"
    " :reason, 'executor', 'create_session', :now)"
)
_RUNNING = "FROM sessions WHERE id = :id AND status = 'running'"
NOTE_TRANSITION = (
    "INSERT INTO status_transitions (id, entity_type, entity_id, previous_status,"
    " status, reason_code, reason_summary, source, actor, created_at)"
    " SELECT :transition, 'session', id, status, :status, :reason, :summary, :source,"
    f" :actor, :now {_RUNNING}"
)
SET_STATUS = (
    "UPDATE sessions SET status = :status, status_reason_code = :reason,"
    " status_reason_summary = :summary, ended_at = :now, updated_at = :now,"
    " current_phase = NULL WHERE id = :id AND status = 'running'"
)
SET_PHASE = (
    "UPDATE sessions SET current_phase = ?, updated_at = ?"
    " WHERE id = ? AND status = 'running'"
)
EMIT_SIGNAL = (
    "INSERT INTO session_signals (id, session_id, seq, kind, op_id, ts, payload)"
    " SELECT :id, :session, coalesce(max(seq), 0) + 1, :kind, :op, :ts, :payload"
    " FROM session_signals WHERE session_id = :session"
)

DELETE_SESSION = (
    f"DELETE FROM sessions WHERE id = ? AND status IN ({_TERMINAL})"
    " AND NOT EXISTS (SELECT 1 FROM plays WHERE session_id = sessions.id)"
)
"""Controls and signals go with it; the audit of its status stays."""

CLAIM = (
    "UPDATE session_controls SET result = ?, claimed_at = ?"
    " WHERE id = ? AND result IS NULL AND applied_at IS NULL RETURNING result"
)
FINALIZE = (
    "UPDATE session_controls SET result = ?, applied_at = ?"
    " WHERE id = ? AND applied_at IS NULL AND result IS ?"
)
"""The last parameter is the claim that the writer holds, NULL for none."""
SWEEP = (
    "UPDATE session_controls SET result = :result, applied_at = :now"
    " WHERE session_id = :id AND applied_at IS NULL AND result IS NULL"
    " AND claimed_at IS NULL AND EXISTS (SELECT 1 FROM sessions"
    f" WHERE id = :id AND status IN ({_TERMINAL})) RETURNING id, verb"
)
_ITEM = "CASE WHEN type IN ('object', 'array') THEN value ELSE json_quote(value) END"
LOG_CONTROLS = (
    f"UPDATE sessions SET node_metadata = json_set({_METADATA}, '$.controls',"
    " (SELECT json_group_array(json(item)) FROM (SELECT item FROM (SELECT item, place"
    f" FROM (SELECT {_ITEM} AS item, key AS place FROM json_each(:items) UNION ALL"
    f" SELECT {_ITEM}, key - 1000000 FROM json_each({_METADATA}, '$.controls'))"
    " ORDER BY place DESC LIMIT :length) ORDER BY place))) WHERE id = :id"
)


def admission(*, sender: bool) -> str:
    """Return the conditional INSERT of a control (SPEC A-31..A-36).

    Args:
        sender: The table has the columns ``by`` and ``host``.
    """
    columns, values = "", ""
    if sender:
        columns, values = ', "by", host', ", :by, :host"
    return (
        "INSERT INTO session_controls (id, session_id, verb, payload, created_at"
        f"{columns}) SELECT :id, s.id, :verb, :payload, :now{values}"
        " FROM sessions AS s WHERE s.id = :session AND s.status = 'running' AND ("
        f" (s.invocation_kind IN ('flow', 'play') AND {_MARKER} IN ('pending',"
        f" 'active')) OR (:verb = 'message' AND s.invocation_kind = 'agent'"
        f" AND s.run_id IS NOT NULL AND {_DRAINS}))"
    )


def merge(
    session_id: str, patch: Mapping[str, object]
) -> tuple[str, tuple[object, ...]]:
    """Return the statement that merges members into ``node_metadata`` by name.

    A member replaces the one of its name whole; others stay (SPEC A-16).

    Raises:
        ValueError: A name is no plain word.
    """
    paths = []
    given: list[object] = []
    for name, value in patch.items():
        if re.fullmatch(r"\w{1,64}", name, re.ASCII) is None:
            raise ValueError("a metadata member needs a plain name")
        paths.append(f"'$.{name}', json(?)")
        given.append(json_text(value))
    sql = (
        f"UPDATE sessions SET node_metadata = json_set({_METADATA},"
        f" {', '.join(paths)}) WHERE id = ?"
    )
    return sql, (*given, session_id)


def status_parameters(
    session_id: str,
    status: RunStatus | str,
    *,
    now: float,
    reason_code: str,
    reason_summary: str | None,
    source: str,
    actor: str | None,
) -> dict[str, object]:
    """Check the word and return what NOTE_TRANSITION and SET_STATUS take.

    Raises:
        StateDBError: ``status_unknown``: no status that ends a run.
    """
    if status not in TERMINAL_RUN:
        raise StateDBError("no status that ends a run", code="status_unknown")
    return {
        "id": session_id,
        "transition": uuid4().hex,
        "status": str(status),
        "reason": reason_code,
        "summary": reason_summary,
        "source": source,
        "actor": actor,
        "now": now,
    }
