"""Crash-safe checkpoints: base and journal, one unit (SPEC D, E, F).

The front door; import from here. Reading: :func:`load_checkpoint`. Writing:
:class:`CheckpointWriter`. Pure helpers: :func:`diff`, :func:`apply_patch`,
:func:`encode_record`, :func:`normalize`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heaveto.checkpoint import patch
from heaveto.checkpoint.loader import Loaded, load_checkpoint
from heaveto.checkpoint.report import (
    Reason,
    ReasonCode,
    RecoveryReport,
    RecoveryStatus,
)
from heaveto.checkpoint.v3 import encode_record
from heaveto.errors import (
    CheckpointBusyError,
    CheckpointError,
    CheckpointIdentityError,
    CheckpointPersistenceError,
    CheckpointRefused,
    CheckpointValueError,
    CheckpointVersionError,
    PatchError,
)
from heaveto.frozen import is_object
from heaveto.jsonvalue import freeze, normalize, thaw

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from heaveto.checkpoint.writer import CheckpointWriter, Statistics
    from heaveto.jsonvalue import Json

__all__ = [
    "CheckpointBusyError",
    "CheckpointError",
    "CheckpointIdentityError",
    "CheckpointPersistenceError",
    "CheckpointRefused",
    "CheckpointValueError",
    "CheckpointVersionError",
    "CheckpointWriter",
    "Loaded",
    "PatchError",
    "Reason",
    "ReasonCode",
    "RecoveryReport",
    "RecoveryStatus",
    "Statistics",
    "apply_patch",
    "diff",
    "encode_record",
    "load_checkpoint",
    "normalize",
]


def __getattr__(name: str) -> object:
    """Load the writing side on use: who only reads needs no thread and no loop."""
    if name not in ("CheckpointWriter", "Statistics"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from heaveto.checkpoint import writer

    found: object = getattr(writer, name)
    return found


def diff(old: object, new: object) -> list[dict[str, Json]]:
    """Return the patch that turns one context into another.

    Args:
        old: The earlier object; normalised first, as a checkpoint would.
        new: The later one; likewise.

    Returns:
        Operations with plain values; empty when both mean the same JSON.

    Raises:
        CheckpointValueError: A value cannot be captured, or is no object.
    """
    before = freeze(old)
    after = freeze(new, before)
    if not is_object(before) or not is_object(after):
        text = "only an object can be a flow context"
        raise CheckpointValueError("serialization", "$", text)
    return [
        {name: thaw(part) for name, part in op.items()}
        for op in patch.diff(before, after)
    ]


def apply_patch(
    doc: Mapping[str, Json], ops: Sequence[Mapping[str, Json]]
) -> dict[str, Json]:
    """Return the document after a patch; the one given stays as it is.

    Args:
        doc: A plain object.
        ops: Operations of the subset.

    Raises:
        PatchError: The patch is refused (``patch_invalid`` or ``patch_conflict``), and
            ``op_index`` says at which operation.
    """
    made: dict[str, Json] = patch.apply(doc, ops)
    return made
