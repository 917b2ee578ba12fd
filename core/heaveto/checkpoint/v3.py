r"""Version 3: a base, and a journal of what happened since (FORMATS 2 and 3).

``checkpoint.json``, the base, is the object of version 2 with ``"version":3`` and two
more members: ``"generation"``, 32 characters of ``[0-9a-f]``, new for every published
base, and ``"journal_seq"``, the integer 0. It is UTF-8 without a byte order mark, with
no repeated member name at any depth and finite numbers only.

``checkpoint.json.journal`` is a sequence of records, each one JSON object and one LF::

    {"version":3,"generation":"<32 hex>","seq":N,"kind":"op"|"spawned","entry":{…}
     [,"flow_context":{"patch":[…]}]}\n

Nothing else may be in a record. ``seq`` runs from 1 without a gap for the base's
generation and ends at 2**63-1. A writer writes ASCII, compact, members in this order; a
reader takes any spelling of the same JSON. ``flow_context`` is there only when the
context changes, and its patch is what :mod:`heaveto.checkpoint.patch` describes.

**Validity.** The state is the base plus, in order, every complete record of the base's
generation. Bytes after the last LF are a torn tail: left out and reported, whatever
they are. A complete record of another well-formed generation is stale: checked in form,
counted, never applied. Anything else that is not a valid next record stops the reading
with a refusal; nothing is sorted, skipped or guessed. Only the byte 0x0A ends a record.

Pure: bytes in, values and findings out. One :class:`Replay` belongs to one thread.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from heaveto.checkpoint import patch as patches
from heaveto.checkpoint.report import Reason, ReasonCode, RecoveryReport
from heaveto.checkpoint.state import (
    MEMBERS,
    Entry,
    Folding,
    Kind,
    State,
    Transition,
    read_entry,
)
from heaveto.jsonvalue import (
    Frozen,
    Json,
    JsonError,
    encode,
    freeze,
    loads_strict,
    pieces,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = [
    "MAX_SEQ",
    "Base",
    "Record",
    "Replay",
    "base_pieces",
    "decode_base",
    "decode_record",
    "encode_patch",
    "encode_record",
    "record_line",
    "replay",
]

VERSION = 3
MAX_SEQ = 2**63 - 1
_GENERATION = re.compile("[0-9a-f]{32}")
_REQUIRED = ("version", "generation", "seq", "kind", "entry")
_ALLOWED = frozenset({*_REQUIRED, "flow_context"})
_OWN = frozenset({*MEMBERS, "version", "max_spawn", "generation", "journal_seq"})


# --- writing


def encode_patch(ops: Iterable[Mapping[str, Frozen]]) -> bytes:
    """Encode the ``flow_context`` member of a record.

    Args:
        ops: What :func:`heaveto.checkpoint.patch.diff` returned; not empty.
    """
    return b'{"patch":' + encode(list(ops)) + b"}"


def record_line(
    generation: str, seq: int, entry: Entry, flow_context: bytes | None = None
) -> bytes:
    """Return a journal line, LF included.

    Args:
        generation: Of the base it follows.
        seq: 1..:data:`MAX_SEQ`.
        entry: Its value frozen or ``Encoded``; an encoded one is copied as it is, so
            that an entry is encoded once for the journal and for every later base.
        flow_context: From :func:`encode_patch`; None leaves the member out.
    """
    return b"".join(
        (
            b'{"version":3,"generation":"%b","seq":%d,"kind":"%b","entry":'
            % (generation.encode(), seq, entry.kind.encode()),
            *pieces(entry.value),
            *((b',"flow_context":', flow_context) if flow_context else ()),
            b"}\n",
        )
    )


def encode_record(record: Mapping[str, object]) -> bytes:
    """Return the canonical line of a whole record, LF included (SPEC E-14).

    Args:
        record: Its members; they are written in the order of the format.

    Raises:
        CheckpointValueError: It holds what JSON cannot.
    """
    ordered = {
        name: record[name] for name in (*_REQUIRED, "flow_context") if name in record
    }
    return encode(freeze({**ordered, **record})) + b"\n"


def base_pieces(state: State, generation: str) -> Iterator[bytes]:
    """Give the bytes of a base, in pieces that are cheap to make.

    Args:
        state: Its values plain or frozen.
        generation: Fresh, 32 lowercase hex characters.
    """
    yield b'{"version":3,'
    yield from state.pieces()
    yield b',"generation":"%b","journal_seq":0}' % generation.encode()


# --- reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """An accepted base."""

    generation: str
    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record whose form is right; whether it applies is another question."""

    generation: str
    seq: int
    entry: Entry
    patch: list[Json] | None


class RecordError(Exception):
    """A complete record is refused; holds a code and positions, no content."""

    def __init__(
        self,
        code: ReasonCode,
        *,
        seq: int | None = None,
        expected_seq: int | None = None,
        op_index: int | None = None,
    ) -> None:
        """Keep the code and the numbers of the reason."""
        super().__init__(code)
        self.code = code
        self.seq = seq
        self.expected_seq = expected_seq
        self.op_index = op_index


def decode_base(document: dict[str, Json]) -> Base | ReasonCode:
    """Take the base out of a strictly parsed version 3 document.

    Returns:
        The base, or why it is refused.
    """
    generation, seq = document.get("generation"), document.get("journal_seq")
    if not _is_generation(generation) or type(seq) is not int or seq != 0:
        return ReasonCode.BASE_INVALID_FIELD
    if any(not isinstance(document.get(name), kind) for name, kind in MEMBERS.items()):
        return ReasonCode.BASE_INVALID_FIELD
    max_spawn = document.get("max_spawn", 0)
    if type(max_spawn) is not int or max_spawn < 0:
        return ReasonCode.BASE_INVALID_FIELD
    if not all(isinstance(step, dict) for step in document["plan"]):
        return ReasonCode.BASE_INVALID_FIELD
    ops = {name: read_entry(Kind.OP, v) for name, v in document["ops"].items()}
    spawned = [read_entry(Kind.SPAWNED, value) for value in document["spawned"]]
    table = {entry.id: entry for entry in spawned if entry is not None}
    if len(table) != len(document["spawned"]) or any(
        entry is None or entry.id != name for name, entry in ops.items()
    ):
        return ReasonCode.BASE_INVALID_FIELD
    state = State(
        session_id=document["session_id"],
        prompt=document["prompt"],
        plan=document["plan"],
        flow_context=document["flow_context"],
        ops={entry.id: entry for entry in ops.values() if entry is not None},
        spawned=table,
        config=document["config"],
        max_spawn=document.get("max_spawn"),
        extra={name: v for name, v in document.items() if name not in _OWN},
    )
    if not state.guarded():
        return ReasonCode.SPLICE_UNGUARDED
    return Base(generation=str(generation), state=state)


def _is_generation(value: Json) -> bool:
    return isinstance(value, str) and _GENERATION.fullmatch(value) is not None


_FAULTS = {
    "malformed": ReasonCode.RECORD_MALFORMED,
    "duplicate": ReasonCode.RECORD_DUPLICATE_MEMBER,
    "nonfinite": ReasonCode.RECORD_NONFINITE_NUMBER,
}


def decode_record(line: bytes) -> Record:
    """Check the form of one record, in the order of SPEC F-18.

    Args:
        line: The bytes of a line, without its LF.

    Raises:
        RecordError: The earliest fault.
    """
    try:
        record = loads_strict(line)
    except JsonError as error:
        raise RecordError(_FAULTS[error.kind]) from None
    if not isinstance(record, dict):
        raise RecordError(ReasonCode.RECORD_MALFORMED)
    _check_members(record)
    seq = record["seq"]
    if type(seq) is not int or not 1 <= seq <= MAX_SEQ:
        found = seq if type(seq) is int else None
        raise RecordError(ReasonCode.SEQUENCE_INVALID, seq=found)
    kind = Kind(record["kind"])
    if not isinstance(record["entry"], dict):
        raise RecordError(ReasonCode.RECORD_INVALID_FIELD)
    entry = read_entry(kind, record["entry"])
    if entry is None:
        raise RecordError(ReasonCode.RECORD_INVALID_ENTRY)
    return Record(
        generation=record["generation"],
        seq=seq,
        entry=entry,
        patch=_patch_of(record),
    )


def _check_members(record: dict[str, Json]) -> None:
    """Version, kind, members, generation form: the order of SPEC F-18."""
    if "version" not in record:
        raise RecordError(ReasonCode.RECORD_INVALID_FIELD)
    if type(record["version"]) is not int or record["version"] != VERSION:
        raise RecordError(ReasonCode.RECORD_UNSUPPORTED_VERSION)
    if "kind" not in record:
        raise RecordError(ReasonCode.RECORD_INVALID_FIELD)
    if not isinstance(record["kind"], str) or record["kind"] not in ("op", "spawned"):
        raise RecordError(ReasonCode.RECORD_UNKNOWN_KIND)
    if not record.keys() <= _ALLOWED:
        raise RecordError(ReasonCode.RECORD_UNKNOWN_MEMBER)
    if any(name not in record for name in _REQUIRED):
        raise RecordError(ReasonCode.RECORD_INVALID_FIELD)
    if not _is_generation(record["generation"]):
        raise RecordError(ReasonCode.RECORD_INVALID_FIELD)


def _patch_of(record: dict[str, Json]) -> list[Json] | None:
    if "flow_context" not in record:
        return None
    change = record["flow_context"]
    if not isinstance(change, dict) or change.keys() != {"patch"}:
        raise RecordError(ReasonCode.RECORD_INVALID_FIELD)
    ops = change["patch"]
    if not isinstance(ops, list):
        raise RecordError(ReasonCode.RECORD_INVALID_FIELD)
    try:
        patches.check(ops)
    except patches.PatchError as error:
        raise RecordError(ReasonCode.PATCH_INVALID, op_index=error.op_index) from None
    return ops


class Replay:
    """Folds journal bytes into a base, as many or as few at a time as there are.

    It owns the base's plain context and changes it in place.

    Attributes:
        last_seq: Of the last applied record; 0 for the base alone.
        applied: Records applied.
        stale: Complete records of other generations.
        valid_bytes: Where the last applied or stale record ends.
        tail: Bytes after the last LF so far.
        fatal: Why reading stopped, or None.
    """

    def __init__(self, base: Base) -> None:
        """Begin at the base."""
        self.generation = base.generation
        self.last_seq = 0
        self.applied = 0
        self.stale = 0
        self.valid_bytes = 0
        self.tail = b""
        self.fatal: Reason | None = None
        self._folding = Folding(base.state)
        self._line = 1
        self._first_stale: tuple[int, int] | None = None

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the journal; does nothing once reading has stopped."""
        if self.fatal is not None:
            return
        text = self.tail + data if self.tail else data
        start = 0
        while (end := text.find(b"\n", start)) >= 0:
            try:
                self._take(decode_record(text[start:end]))
            except RecordError as error:
                self._stop(error)
                return
            self.valid_bytes += end + 1 - start
            self._line += 1
            start = end + 1
        self.tail = text[start:]

    def _take(self, record: Record) -> None:
        if record.generation != self.generation:
            self.stale += 1
            self._first_stale = self._first_stale or (self._line, self.valid_bytes)
            return
        expected = self.last_seq + 1
        if record.seq != expected:
            code = (
                ReasonCode.SEQUENCE_GAP
                if record.seq > expected
                else ReasonCode.SEQUENCE_DUPLICATE
            )
            raise RecordError(code, seq=record.seq, expected_seq=expected)
        if not self._folding.guarded(record.entry):
            raise RecordError(ReasonCode.SPLICE_UNGUARDED)
        if record.patch:
            self._apply(record.patch)
        self._folding.add(Transition(entry=record.entry))
        self.last_seq = expected
        self.applied += 1

    def _apply(self, ops: list[Json]) -> None:
        try:
            self._folding.context = patches.apply_in_place(self._folding.context, ops)
        except patches.PatchError as error:
            raise RecordError(
                ReasonCode.PATCH_CONFLICT, op_index=error.op_index
            ) from None

    def _stop(self, error: RecordError) -> None:
        self.tail = b""
        self.fatal = Reason(
            code=error.code,
            fatal=True,
            where="journal",
            line=self._line,
            offset=self.valid_bytes,
            seq=error.seq,
            expected_seq=error.expected_seq,
            op_index=error.op_index,
        )

    def state(self) -> State:
        """Return the state folded so far; it shares the context with this replay."""
        return self._folding.state()

    def report(self, *, attempts: int = 1) -> RecoveryReport:
        """Return what has been found so far."""
        reasons = []
        if self._first_stale is not None:
            line, offset = self._first_stale
            reasons.append(
                _finding(ReasonCode.STALE_GENERATION, line, offset, self.stale)
            )
        if self.fatal is not None:
            reasons.append(self.fatal)
        elif self.tail:
            reasons.append(
                _finding(
                    ReasonCode.TORN_TAIL, self._line, self.valid_bytes, len(self.tail)
                )
            )
        return RecoveryReport(
            checkpoint_version=VERSION,
            generation=self.generation,
            base_seq=0,
            last_seq=self.last_seq,
            applied_records=self.applied,
            stale_records=self.stale,
            valid_bytes=self.valid_bytes,
            discarded_tail_bytes=None if self.fatal is not None else len(self.tail),
            attempts=attempts,
            reasons=tuple(reasons),
        )


def _finding(code: ReasonCode, line: int, offset: int, count: int) -> Reason:
    where: Literal["journal"] = "journal"
    return Reason(
        code=code, fatal=False, where=where, line=line, offset=offset, count=count
    )


def replay(base: bytes, journal: bytes) -> Replay:
    """Fold a whole journal into a base, both as bytes; for a writer that reconciles.

    Raises:
        JsonError: The base is not strict JSON.
        ValueError: The base is no valid version 3 base.
    """
    document = loads_strict(base)
    found = (
        decode_base(document)
        if isinstance(document, dict) and document.get("version") == VERSION
        else ReasonCode.VERSION_UNSUPPORTED
    )
    if not isinstance(found, Base):
        raise ValueError(f"no version 3 base: {found}")
    run = Replay(found)
    run.feed(journal)
    return run
