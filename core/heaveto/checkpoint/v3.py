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
from typing import TYPE_CHECKING, Literal, NamedTuple

from heaveto.checkpoint import patch as patches
from heaveto.checkpoint.report import Reason, ReasonCode, RecoveryReport
from heaveto.checkpoint.state import (
    MEMBERS,
    Entry,
    Folding,
    Kind,
    State,
    read_entry,
)
from heaveto.errors import PatchError
from heaveto.jsonvalue import (
    Frozen,
    Json,
    JsonError,
    encode,
    freeze,
    loads_strict,
    scan_strict,
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
]

VERSION = 3
MAX_SEQ = 2**63 - 1
_WINDOW = 1 << 18
"""Bytes of lines that are decoded together."""

_GENERATION = re.compile("[0-9a-f]{32}")
_REQUIRED = ("version", "generation", "seq", "kind", "entry")
_NEEDED = frozenset(_REQUIRED)
_ALLOWED = _NEEDED | {"flow_context"}
_FORMS = (_NEEDED, _ALLOWED)
_KINDS = {str(kind): kind for kind in Kind}
_BETWEEN = {kind: b',"kind":"%b","entry":' % kind.encode() for kind in Kind}
_OWN = frozenset({*MEMBERS, "version", "max_spawn", "generation", "journal_seq"})


# --- writing


def encode_patch(ops: Iterable[Mapping[str, Frozen]]) -> bytes:
    """Encode the ``flow_context`` member of a record.

    Args:
        ops: What :func:`heaveto.checkpoint.patch.diff` returned; not empty.
    """
    return b'{"patch":' + encode(list(ops)) + b"}"


def record_line(
    generation: str,
    seq: int,
    kind: Kind,
    entry: bytes,
    flow_context: bytes | None = None,
) -> bytes:
    """Return a journal line, LF included.

    Args:
        generation: Of the base it follows.
        seq: 1..:data:`MAX_SEQ`.
        kind: Which collection the entry belongs to.
        entry: Encoded, so that it is encoded once for the journal and for every base.
        flow_context: From :func:`encode_patch`; None leaves the member out.
    """
    head = b'{"version":3,"generation":"%b","seq":%d' % (generation.encode(), seq)
    if flow_context is None:
        return b"".join((head, _BETWEEN[kind], entry, b"}\n"))
    tail = (b',"flow_context":', flow_context, b"}\n")
    return b"".join((head, _BETWEEN[kind], entry, *tail))


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


def base_pieces(
    state: State, generation: str, **encoded: Iterable[bytes]
) -> Iterator[bytes]:
    """Give the bytes of a base, in pieces that are cheap to make.

    Args:
        state: Its values plain or frozen.
        generation: Fresh, 32 lowercase hex characters.
        encoded: Entries that are encoded already, as for :meth:`State.pieces`.
    """
    yield b'{"version":3,'
    yield from state.pieces(**encoded)
    yield b',"generation":"%b","journal_seq":0}' % generation.encode()


# --- reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """An accepted base."""

    generation: str
    state: State


class Record(NamedTuple):
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
    ops = {}
    for name, value in document["ops"].items():
        entry = read_entry(Kind.OP, value)
        if entry is None or entry.id != name:
            return ReasonCode.BASE_INVALID_FIELD
        ops[name] = entry
    spawned = [read_entry(Kind.SPAWNED, value) for value in document["spawned"]]
    table = {entry.id: entry for entry in spawned if entry is not None}
    if len(table) != len(document["spawned"]):
        return ReasonCode.BASE_INVALID_FIELD
    state = State(
        session_id=document["session_id"],
        prompt=document["prompt"],
        plan=document["plan"],
        flow_context=document["flow_context"],
        ops=ops,
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
        value = loads_strict(line)
    except JsonError as error:
        raise RecordError(_FAULTS[error.kind]) from None
    return _read_record(value)


def _read_record(record: Json) -> Record:
    """Check the form of a parsed record."""
    if type(record) is not dict:
        raise RecordError(ReasonCode.RECORD_MALFORMED)
    version, kind = record.get("version"), record.get("kind")
    if (
        version != VERSION
        or type(version) is not int
        or type(kind) is not str
        or kind not in _KINDS
        or record.keys() not in _FORMS
        or not _is_generation(record["generation"])
    ):
        raise RecordError(_member_fault(record))
    seq = record["seq"]
    if type(seq) is not int or not 1 <= seq <= MAX_SEQ:
        found = seq if type(seq) is int else None
        raise RecordError(ReasonCode.SEQUENCE_INVALID, seq=found)
    entry = read_entry(_KINDS[kind], record["entry"])
    if entry is None:
        code = ReasonCode.RECORD_INVALID_ENTRY
        if type(record["entry"]) is not dict:
            code = ReasonCode.RECORD_INVALID_FIELD
        raise RecordError(code)
    return Record(record["generation"], seq, entry, _patch_of(record))


def _member_fault(record: dict[str, Json]) -> ReasonCode:
    """Name the earliest fault: version, kind, members, form of the generation."""
    version, kind = record.get("version"), record.get("kind")
    if "version" not in record:
        return ReasonCode.RECORD_INVALID_FIELD
    if type(version) is not int or version != VERSION:
        return ReasonCode.RECORD_UNSUPPORTED_VERSION
    if "kind" not in record:
        return ReasonCode.RECORD_INVALID_FIELD
    if type(kind) is not str or kind not in _KINDS:
        return ReasonCode.RECORD_UNKNOWN_KIND
    if not record.keys() <= _ALLOWED:
        return ReasonCode.RECORD_UNKNOWN_MEMBER
    return ReasonCode.RECORD_INVALID_FIELD


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
    except PatchError as error:
        raise RecordError(ReasonCode.PATCH_INVALID, op_index=error.op_index) from None
    return ops


class Replay:
    """Folds journal bytes into a base, as many or as few at a time as there are.

    Attributes:
        last_seq: Of the last applied record; 0 for the base alone.
        applied: Records applied.
        stale: Complete records of other generations.
        valid_bytes: Where the last applied or stale record ends.
        fatal: Why reading stopped, or None.
    """

    def __init__(self, base: Base) -> None:
        """Begin at the base, whose plain context becomes the replay's own."""
        self.generation = base.generation
        self.last_seq = 0
        self.applied = 0
        self.stale = 0
        self.valid_bytes = 0
        self.fatal: Reason | None = None
        self._folding = Folding(base.state)
        self._editing = patches.Editing(owner=True)
        self._line = 1
        self._first_stale: tuple[int, int] | None = None
        self._rest: list[bytes] = []

    @property
    def tail_bytes(self) -> int:
        """Count the bytes after the last LF so far."""
        return sum(map(len, self._rest))

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the journal; does nothing once reading has stopped."""
        if self.fatal is not None:
            return
        if b"\n" not in data:
            self._rest.append(data)
            return
        if self._rest:
            data = b"".join((*self._rest, data))
            self._rest.clear()
        start = 0
        while True:
            end = data.rfind(b"\n", start, start + _WINDOW) + 1
            end = end or data.find(b"\n", start + _WINDOW) + 1
            if not end:
                break
            if not self._feed_lines(data, start, end):
                return
            start = end
        if start < len(data):
            self._rest.append(data[start:])

    def _feed_lines(self, data: bytes, begin: int, stop: int) -> bool:
        """Take whole lines from one place to another; False when reading stopped."""
        text = _ascii(memoryview(data)[begin:stop])
        start = begin
        try:
            while start < stop:
                end = data.index(b"\n", start)
                found = None if text is None else scan_strict(text, start - begin)
                if found is not None and found[1] == end - begin:
                    self._take(_read_record(found[0]))
                else:
                    self._take(decode_record(data[start:end]))
                self.valid_bytes += end + 1 - start
                self._line += 1
                start = end + 1
        except RecordError as error:
            self._stop(error)
            return False
        return True

    def rewind(self) -> None:
        """Forget the torn tail; the next bytes begin at ``valid_bytes``."""
        self._rest.clear()

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
        self._folding.put(record.entry)
        self.last_seq = expected
        self.applied += 1

    def _apply(self, ops: list[Json]) -> None:
        folding = self._folding
        try:
            folding.context = self._editing.apply(folding.context, ops)
        except PatchError as error:
            raise RecordError(
                ReasonCode.PATCH_CONFLICT, op_index=error.op_index
            ) from None

    def _stop(self, error: RecordError) -> None:
        self._rest.clear()
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
        """Return the state folded so far; feeding more does not change it."""
        self._editing = patches.Editing(owner=False)
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
        elif tail := self.tail_bytes:
            reasons.append(
                _finding(ReasonCode.TORN_TAIL, self._line, self.valid_bytes, tail)
            )
        return RecoveryReport(
            checkpoint_version=VERSION,
            generation=self.generation,
            base_seq=0,
            last_seq=self.last_seq,
            applied_records=self.applied,
            stale_records=self.stale,
            valid_bytes=self.valid_bytes,
            discarded_tail_bytes=None if self.fatal is not None else self.tail_bytes,
            attempts=attempts,
            reasons=tuple(reasons),
        )


def _ascii(data: memoryview) -> str | None:
    """Decode lines that are all ASCII, as those of a writer are; None for others."""
    try:
        return str(data, "ascii")
    except UnicodeDecodeError:
        return None


def _finding(code: ReasonCode, line: int, offset: int, count: int) -> Reason:
    where: Literal["journal"] = "journal"
    return Reason(
        code=code, fatal=False, where=where, line=line, offset=offset, count=count
    )
