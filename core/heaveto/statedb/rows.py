"""Rows of the state database as frozen values, read without trust.

A database may be another program's, older, or damaged: a column may be missing, hold
another type, or hold text that is no JSON. None of that stops a listing (SPEC A-20).
What cannot be decoded is given as ``raw`` beside an empty value. Pure.

The metadata of a session is by far the largest thing in its row, and a list holds
thousands of them: they stay text, and are decoded while somebody looks into them
(:class:`StoredObject`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, overload

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
    "StoredObject",
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


_Default = TypeVar("_Default")
_DECODED = 4
"""Stored objects that stay decoded: those somebody just looks into. More would be let
go of only after they have left the processor's cache, which takes a third longer."""


class StoredObject(Mapping[str, object]):
    """A JSON object as it is stored, decoded when it is looked into.

    It holds the text alone, so thousands of rows cost no more than their text. What was
    decoded last is kept for a moment, and a text that is no JSON object is an empty
    one. Immutable; safe in any thread.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        """Hold a text.

        Args:
            text: As stored.
        """
        self.text = text

    @property
    def raw(self) -> str | None:
        """The text when it is no JSON object, else None."""
        return None if _decoded_object(self.text) is not None else self.text

    @property
    def size(self) -> int:
        """The bytes of the text."""
        return len(self.text) if self.text.isascii() else len(self.text.encode())

    def may_hold(self, name: str) -> bool:
        """Tell, without decoding it, whether there may be a member of a name."""
        return f'"{name}"' in self.text or "\\" in self.text

    def __getitem__(self, name: str) -> object:
        """Return a member."""
        return (_decoded_object(self.text) or {})[name]

    @overload
    def get(self, name: str, /) -> object | None: ...
    @overload
    def get(self, name: str, /, default: object | _Default) -> object | _Default: ...
    def get(self, name: str, /, default: object = None) -> object:
        """Return a member, or the default where there is none."""
        found = _decoded_object(self.text)
        return default if found is None else found.get(name, default)

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(_decoded_object(self.text) or {})

    def __len__(self) -> int:
        """Return how many members there are."""
        return len(_decoded_object(self.text) or {})

    def __eq__(self, other: object) -> bool:
        """Compare with any mapping; the same text needs no decoding."""
        if isinstance(other, StoredObject) and self.text == other.text:
            return True
        if not isinstance(other, Mapping):
            return NotImplemented
        return dict(self) == dict(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Return a text that quotes nothing of it."""
        return f"StoredObject({len(self.text)} characters)"


@lru_cache(maxsize=_DECODED)
def _decoded_object(text: str) -> dict[str, object] | None:
    """Return a decoded object that nobody changes; None when a text is none."""
    found = _json(text)
    return found if isinstance(found, dict) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """One session: the row that a run's status and controls hang on.

    ``status`` is the stored word whatever it is; ``node_metadata`` is empty and
    ``metadata_raw`` the stored text when that text is no JSON object.
    """

    id: str
    run_id: str | None = None
    name: str | None = None
    status: str | None = None
    invocation_kind: str | None = None
    invocation_id: str | None = None
    node_metadata: Mapping[str, object] = field(default_factory=dict)
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
    def metadata_raw(self) -> str | None:
        """The stored text of ``node_metadata`` when it is no JSON object."""
        found = self.node_metadata
        return found.raw if isinstance(found, StoredObject) else None

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
    if type(value) is float:
        return value if math.isfinite(value) else None
    return float(value) if isinstance(value, int) else None


def _moment(value: object) -> float:
    """Return epoch seconds, 0 when unknown."""
    return _time(value) or 0.0


def _count(value: object) -> int:
    """Return a stored integer, 0 when it is none."""
    return value if isinstance(value, int) else 0


def _json(value: object) -> object:
    """Return decoded JSON, or :class:`_Raw` with the text that is none."""
    if value is None or value == "null":  # as most rows have it
        return None
    if _is_number(value):
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


def _stored(value: object) -> Mapping[str, object]:
    """Return a JSON object, to be decoded later; NULL is an empty one."""
    if value is None:
        return {}
    return StoredObject(json.dumps(value) if _is_number(value) else _word(value))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float))  # a union is made anew at each call


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

    @property
    def is_number(self) -> bool:
        """Tell whether a number is what stands in it."""
        return self.decode in (_time, _moment, _count)


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
    Column("node_metadata", _stored, _METADATA_LIMIT),
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


_AS_IT_IS: dict[Callable[[object], object], tuple[type, ...]] = {
    _text: (str, type(None)),
    _word: (str,),
    _time: (type(None),),
    _json: (type(None),),
}
"""Types of values that a decoder gives back as they are: most of a long list."""
_Plan = tuple[tuple[str, Callable[[object], object], tuple[type, ...]], ...]


def _plan(columns: Sequence[Column]) -> _Plan:
    """Return for each column its name, its decoder, and what needs none."""
    return tuple(
        (one.name, one.decode, _AS_IT_IS.get(one.decode, ())) for one in columns
    )


_SESSION_PLAN = _plan(SESSION_COLUMNS)
_CONTROL_PLAN = _plan(CONTROL_COLUMNS)
_SIGNAL_PLAN = _plan(SIGNAL_COLUMNS)
_TRANSITION_PLAN = _plan(TRANSITION_COLUMNS)


def _fields(plan: _Plan, values: Values) -> dict[str, Any]:
    """Decode one result row by its columns."""
    return {
        name: value if type(value) in kept else decode(value)
        for (name, decode, kept), value in zip(plan, values, strict=True)
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


_SESSION_JSON = tuple(one.name for one in SESSION_COLUMNS if one.decode is _json)


def session_row(values: Values) -> SessionRow:
    """Make a row of values in the order of :data:`SESSION_COLUMNS`."""
    fields = _fields(_SESSION_PLAN, values)
    for name in _SESSION_JSON:
        if type(fields[name]) is _Raw:
            fields[name] = None
    if fields["run_id"] is None:  # an older lionagi keeps it in the metadata alone
        fields["run_id"] = _given_text(fields["node_metadata"].get("run_id"))
    return SessionRow(**fields)


def _given_text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def control_row(values: Values) -> ControlRow:
    """Make a row of values in the order of :data:`CONTROL_COLUMNS`."""
    fields = _fields(_CONTROL_PLAN, values)
    raw = _plain_json(fields, "payload")
    return ControlRow(payload_raw=raw, **fields)


def signal_row(values: Values) -> SignalRow:
    """Make a row of values in the order of :data:`SIGNAL_COLUMNS`."""
    fields = _fields(_SIGNAL_PLAN, values)
    _object(fields, "payload")
    return SignalRow(**fields)


def transition_row(values: Values) -> TransitionRow:
    """Make a row of values in the order of :data:`TRANSITION_COLUMNS`."""
    return TransitionRow(**_fields(_TRANSITION_PLAN, values))


def json_text(value: object) -> str:
    """Encode a value for a JSON column.

    Raises:
        ValueError: It holds a number that is not finite.
        TypeError: It is no JSON value.
    """
    return json.dumps(value, allow_nan=False, separators=(",", ":"))
