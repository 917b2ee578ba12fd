"""The recovery report: what a load found, in positions, counts and codes (FORMATS 5).

A report never holds a prompt, a response, a context value, a member name, a pointer or
the text of an exception. Unavailable values are None, never invented (SPEC F-25..F-37).
Every reader makes the same report of the same bytes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Literal

__all__ = ["REPORT_VERSION", "Reason", "ReasonCode", "RecoveryReport", "RecoveryStatus"]

REPORT_VERSION = 1


class RecoveryStatus(StrEnum):
    """How a load ended."""

    CLEAN = "clean"
    RECOVERED_PREFIX = "recovered_prefix"
    REFUSED = "refused"


class ReasonCode(StrEnum):
    """The closed list of what a report can say (FORMATS 5.3)."""

    TORN_TAIL = "torn_tail"
    STALE_GENERATION = "stale_generation"

    BASE_MISSING = "base_missing"
    BASE_UNREADABLE = "base_unreadable"
    BASE_MALFORMED = "base_malformed"
    BASE_DUPLICATE_MEMBER = "base_duplicate_member"
    BASE_NONFINITE_NUMBER = "base_nonfinite_number"
    BASE_INVALID_FIELD = "base_invalid_field"
    VERSION_AMBIGUOUS = "version_ambiguous"
    VERSION_UNSUPPORTED = "version_unsupported"
    SPLICE_UNGUARDED = "splice_unguarded"

    JOURNAL_MISSING = "journal_missing"
    JOURNAL_UNREADABLE = "journal_unreadable"
    RECORD_MALFORMED = "record_malformed"
    RECORD_DUPLICATE_MEMBER = "record_duplicate_member"
    RECORD_NONFINITE_NUMBER = "record_nonfinite_number"
    RECORD_UNSUPPORTED_VERSION = "record_unsupported_version"
    RECORD_UNKNOWN_KIND = "record_unknown_kind"
    RECORD_UNKNOWN_MEMBER = "record_unknown_member"
    RECORD_INVALID_FIELD = "record_invalid_field"
    RECORD_INVALID_ENTRY = "record_invalid_entry"
    SEQUENCE_INVALID = "sequence_invalid"
    SEQUENCE_GAP = "sequence_gap"
    SEQUENCE_DUPLICATE = "sequence_duplicate"
    PATCH_INVALID = "patch_invalid"
    PATCH_CONFLICT = "patch_conflict"

    INCOHERENT_UNIT = "incoherent_unit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One thing that a load found.

    ``line`` counts journal lines from 1, ``offset`` is that line's first byte, ``seq``
    is what was found where an integer was found, ``op_index`` counts operations of a
    patch from 0, ``count`` is stale records or bytes of a tail.
    """

    code: ReasonCode
    fatal: bool
    where: Literal["base", "journal", "unit"]
    line: int | None = None
    offset: int | None = None
    seq: int | None = None
    expected_seq: int | None = None
    op_index: int | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """What a load found; see FORMATS 5.1 for when a field is None.

    A report is clean exactly when ``reasons`` is empty, and refused exactly when its
    last reason is fatal; there is never another fatal one.
    """

    checkpoint_version: int | None = None
    generation: str | None = None
    base_seq: int | None = None
    last_seq: int | None = None
    applied_records: int | None = None
    stale_records: int | None = None
    valid_bytes: int | None = None
    discarded_tail_bytes: int | None = None
    attempts: int = 1
    reasons: tuple[Reason, ...] = ()

    @property
    def status(self) -> RecoveryStatus:
        """Tell the outcome, which follows from the reasons."""
        if not self.reasons:
            return RecoveryStatus.CLEAN
        if self.reasons[-1].fatal:
            return RecoveryStatus.REFUSED
        return RecoveryStatus.RECOVERED_PREFIX

    def as_dict(self) -> dict[str, object]:
        """Return the inner object of ``checkpoint_recovery``, plain JSON values."""
        fields = asdict(self)
        reasons = [
            {**reason, "code": str(reason["code"])} for reason in fields.pop("reasons")
        ]
        return {
            "report_version": REPORT_VERSION,
            "status": str(self.status),
            **fields,
            "reasons": reasons,
        }
