"""The generation store: a checkpoint as one committed directory (ADR-0219).

Public: :class:`EngineStateStore`, its errors, :func:`get_git_revision`, and the
read-only view of a store that ``heaveto generations`` prints.
"""

from __future__ import annotations

from heaveto.errors import GenerationError, IncompatibleEngineStateError
from heaveto.generations.inspection import (
    GenerationView,
    StoreView,
    diff_generations,
    inspect_store,
)
from heaveto.generations.revision import get_git_revision
from heaveto.generations.store import EngineState, EngineStateStore

__all__ = [
    "EngineState",
    "EngineStateStore",
    "GenerationError",
    "GenerationView",
    "IncompatibleEngineStateError",
    "StoreView",
    "diff_generations",
    "get_git_revision",
    "inspect_store",
]
