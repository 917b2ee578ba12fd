"""The state database: rows, reading that changes nothing, and the writers' side.

The front door gives what readers and short verbs need. The runner's connection is
:class:`heaveto.statedb.store.StateDB`, apart from here because it needs asyncio.
"""

from __future__ import annotations

from heaveto.statedb.opening import BOUND, LINEAGE, VERSION, Schema, busy_timeout
from heaveto.statedb.reading import ReadDB, peek
from heaveto.statedb.rows import ControlRow, SessionRow, SignalRow, TransitionRow
from heaveto.statedb.writing import prepare, writing

__all__ = [
    "BOUND",
    "LINEAGE",
    "VERSION",
    "ControlRow",
    "ReadDB",
    "Schema",
    "SessionRow",
    "SignalRow",
    "TransitionRow",
    "busy_timeout",
    "peek",
    "prepare",
    "writing",
]
