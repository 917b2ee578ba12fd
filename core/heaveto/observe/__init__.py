"""The read side: frozen snapshots of runs and a stream of what changed."""

from __future__ import annotations

from heaveto.observe.observer import Observer, RunSource, is_over

__all__ = ["Observer", "RunSource", "is_over"]
