"""Generation stores written by the store itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heaveto.generations import EngineStateStore

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["commit_turn"]


def commit_turn(root: Path, turn: int, state: Any = None, **manifest: Any) -> None:
    """Commit one generation whose session state is small."""
    store = EngineStateStore(root, revision=lambda: "unknown")
    number, directory = store.begin_generation()
    pending = EngineStateStore(directory, revision=lambda: "unknown")
    pending.save_session_state({"turn": turn} if state is None else state)
    pending.save_manifest(turn, **manifest)
    store.commit_generation(number)
