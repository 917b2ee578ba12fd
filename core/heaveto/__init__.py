"""heaveto: watch, steer and recover live agent flows.

The public API (PRODUCT 4) is imported on first use, so that ``import heaveto`` costs
nothing to a program that only wants one part of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heaveto.definition import Operation
    from heaveto.flowfile import Flow
    from heaveto.runner import RunResult, run

__all__ = ["Flow", "Operation", "RunResult", "run"]

_HOME = {
    "Flow": "heaveto.flowfile",
    "Operation": "heaveto.definition",
    "RunResult": "heaveto.runner",
    "run": "heaveto.runner",
}


def __getattr__(name: str) -> object:
    """Import a public name on its first use."""
    if name not in _HOME:
        raise AttributeError(f"module 'heaveto' has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(_HOME[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Name the public API."""
    return sorted({*globals(), *__all__})
