"""heaveto: watch, steer and recover live agent flows.

The public names are loaded on use, so that a short command pays for none of them::

    from heaveto import Flow, Operation, run

    flow = Flow("greet", [Operation("hello", "shell", "Say hello")],
                workers={"shell": {"kind": "command", "argv": ["cat"]}})
    result = await run(flow)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heaveto.flowfile import Flow, Operation
    from heaveto.runner.api import RunResult, run

__all__ = ["Flow", "Operation", "RunResult", "run"]

_HOME_OF = {
    "Flow": "heaveto.flowfile",
    "Operation": "heaveto.flowfile",
    "RunResult": "heaveto.runner.api",
    "run": "heaveto.runner.api",
}


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
