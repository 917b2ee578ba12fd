"""Rows of the state database as frozen values, read without trust.

A database may be another program's, older, or damaged: a column may be missing, hold
another type, or hold text that is no JSON. None of that stops a listing (SPEC A-20).
What cannot be decoded is given as ``raw`` beside an empty value. Pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

__all__ = [
    "CONTROL_COLUMNS",
    "PAYLOAD_LIMIT",
    "SESSION_COLUMNS",
    "SIGNAL_COLUMNS",
    "TOO_LARGE",
    "TRANSITION_COLUMNS",
    "Column",
    "ControlRow",
    "SessionRow",
    "SignalRow",
    "TransitionRow",
    "control_row",
    "is_claim",
    "json_text",
    "session_row",
    "signal_row",
    "transition_row",
]

Values = Sequence[object]
"""One result row, in the order of the columns it was selected with."""


def is_claim(result: str | None) -> bool:
    """Tell whether a stored result is a claim: ``applying`` or ``applying:<owner>``."""
    return result is not None and (
        result == "applying" or result.startswith("applying:")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """One session: the row that a run's status and controls hang on.

    ``status`` is the stored word whatever it is; ``node_metadata`` is ``{}`` and
    ``metadata_raw`` the stored text when that text is no JSON object.
    """

    id: str
    run_id: str | None = None
    name: str | None = None
    status: str | None = None
    invocation_kind: str | None = None
    invocation_id: str | None = None
    node_metadata: Mapping[str, object] = field(default_factory=dict)
    metadata_raw: str | None = None
    current_phase: str | None = None
    playbook_name: str | None = None
    agent_name: str | None = None
    project: str | None = None
    model: str | None = None
    provider: str | None = None
    source_kind: str | None = None
    artifacts_path: str | None = None
    artifact_contract_json: object = None
    artifact_verification_json: object = None
    created_at: float | None = None
    updated_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    last_message_at: float | None = None
    status_reason_code: str | None = None
    status_reason_summary: str | None = None
    status_evidence_refs: object = None
    user_label: str | None = None

    @property
    def poller(self) -> str | None:
        """The published state of its control poller: pending, active, stopped."""
        return _text(self.node_metadata.get("flow_control_poller"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRow:
    """One control. ``payload`` is None and ``payload_raw`` the text if undecodable."""

    id: str
    session_id: str
    verb: str
    payload: object = None
    payload_raw: str | None = None
    created_at: float = 0.0
    claimed_at: float | None = None
    applied_at: float | None = None
    result: str | None = None
    by: str | None = None
    host: str | None = None

    @property
    def text(self) -> str:
        """The text of a message; "" when the payload holds none (SPEC B-33)."""
        if isinstance(self.payload, dict):
            found = self.payload.get("text")
            if isinstance(found, str):
                return found
        return ""

    @property
    def claim(self) -> str | None:
        """The claim that is in ``result``, verbatim; None when it is not claimed."""
        return self.result if is_claim(self.result) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRow:
    """One signal; ``payload`` is ``{}`` when it is no JSON object."""

    seq: int
    kind: str
    op_id: str
    ts: float
    payload: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionRow:
    """One entry of the status audit."""

    entity_type: str
    entity_id: str
    previous_status: str | None
    status: str
    reason_code: str | None
    reason_summary: str | None
    source: str | None
    actor: str | None
    created_at: float


def _text(value: object) -> str | None:
    """Return stored text; a number or bytes in its place is spelled out."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


def _word(value: object) -> str:
    """Return stored text, "" for NULL."""
    return _text(value) or ""


def _time(value: object) -> float | None:
    """Return epoch seconds; what is no finite number is unknown."""
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return None


def _moment(value: object) -> float:
    """Return epoch seconds, 0 when unknown."""
    return _time(value) or 0.0


def _count(value: object) -> int:
    """Return a stored integer, 0 when it is none."""
    return value if isinstance(value, int) else 0


def _json(value: object) -> object:
    """Return decoded JSON, or :class:`_Raw` with the text that is none."""
    if value is None or isinstance(value, int | float):
        return value
    text = _word(value)
    try:
        return orjson.loads(text)
    except ValueError:
        pass
    try:  # what only the standard library reads: NaN and escaped lone surrogates
        return json.loads(text)
    except (ValueError, RecursionError):
        return _Raw(text)


class _Raw(NamedTuple):
    """Text from a JSON column that is no JSON."""

    text: str


class Column(NamedTuple):
    """A column that heaveto reads.

    Attributes:
        name: As in the table.
        decode: From what SQLite gives to what the row holds.
        limit: Characters at most; what is longer is cut, and JSON cut so is damaged.
    """

    name: str
    decode: Callable[[object], object] = _text
    limit: int = 4096


_METADATA_LIMIT = 8 << 20
PAYLOAD_LIMIT = 1 << 20
"""Characters of a payload; a text of 65,536 bytes fits, even wholly escaped."""
TOO_LARGE = "(too large to read)"
"""Stands for a value that is beyond all bounds; it is no JSON."""

SESSION_COLUMNS = (
    Column("id", _word),
    Column("run_id"),
    Column("name"),
    Column("status"),
    Column("invocation_kind"),
    Column("invocation_id"),
    Column("node_metadata", _json, _METADATA_LIMIT),
    Column("current_phase"),
    Column("playbook_name"),
    Column("agent_name"),
    Column("project"),
    Column("model"),
    Column("provider"),
    Column("source_kind"),
    Column("artifacts_path"),
    Column("artifact_contract_json", _json, _METADATA_LIMIT),
    Column("artifact_verification_json", _json, _METADATA_LIMIT),
    Column("created_at", _time),
    Column("updated_at", _time),
    Column("started_at", _time),
    Column("ended_at", _time),
    Column("last_message_at", _time),
    Column("status_reason_code"),
    Column("status_reason_summary", _text, 65_536),
    Column("status_evidence_refs", _json, 65_536),
    Column("user_label"),
)
CONTROL_COLUMNS = (
    Column("id", _word),
    Column("session_id", _word),
    Column("verb", _word),
    Column("payload", _json, PAYLOAD_LIMIT),
    Column("created_at", _moment),
    Column("claimed_at", _time),
    Column("applied_at", _time),
    Column("result"),
    Column("by"),
    Column("host"),
)
SIGNAL_COLUMNS = (
    Column("seq", _count),
    Column("kind", _word),
    Column("op_id", _word),
    Column("ts", _moment),
    Column("payload", _json, PAYLOAD_LIMIT),
)
TRANSITION_COLUMNS = (
    Column("entity_type", _word),
    Column("entity_id", _word),
    Column("previous_status"),
    Column("status", _word),
    Column("reason_code"),
    Column("reason_summary", _text, 65_536),
    Column("source"),
    Column("actor"),
    Column("created_at", _moment),
)


def _fields(columns: Sequence[Column], values: Values) -> dict[str, Any]:
    """Decode one result row by its columns."""
    return {
        column.name: column.decode(value)
        for column, value in zip(columns, values, strict=True)
    }


def _object(fields: dict[str, Any], name: str) -> str | None:
    """Make a member an object and return the text that it held instead, if any."""
    found = fields[name]
    if isinstance(found, dict):
        return None
    fields[name] = {}
    if found is None:
        return None
    return found.text if isinstance(found, _Raw) else json.dumps(found)


def _plain_json(fields: dict[str, Any], name: str) -> str | None:
    """Make a member plain JSON and return the text that is none, if any."""
    found = fields[name]
    if not isinstance(found, _Raw):
        return None
    fields[name] = None
    return found.text


def session_row(values: Values) -> SessionRow:
    """Make a row of values in the order of :data:`SESSION_COLUMNS`."""
    fields = _fields(SESSION_COLUMNS, values)
    raw = _object(fields, "node_metadata")
    _plain_json(fields, "artifact_contract_json")
    _plain_json(fields, "artifact_verification_json")
    _plain_json(fields, "status_evidence_refs")
    if fields["run_id"] is None:  # an older lionagi keeps it in the metadata alone
        fields["run_id"] = _given_text(fields["node_metadata"].get("run_id"))
    return SessionRow(metadata_raw=raw, **fields)


def _given_text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def control_row(values: Values) -> ControlRow:
    """Make a row of values in the order of :data:`CONTROL_COLUMNS`."""
    fields = _fields(CONTROL_COLUMNS, values)
    raw = _plain_json(fields, "payload")
    return ControlRow(payload_raw=raw, **fields)


def signal_row(values: Values) -> SignalRow:
    """Make a row of values in the order of :data:`SIGNAL_COLUMNS`."""
    fields = _fields(SIGNAL_COLUMNS, values)
    _object(fields, "payload")
    return SignalRow(**fields)


def transition_row(values: Values) -> TransitionRow:
    """Make a row of values in the order of :data:`TRANSITION_COLUMNS`."""
    return TransitionRow(**_fields(TRANSITION_COLUMNS, values))


def json_text(value: object) -> str:
    """Encode a value for a JSON column.

    Raises:
        ValueError: It holds a number that is not finite.
        TypeError: It is no JSON value.
    """
    return json.dumps(value, allow_nan=False, separators=(",", ":"))
