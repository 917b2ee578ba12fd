"""Running flows: the one way in for the command line and for programs.

:func:`run_flow` runs a flow in a home and says how it ended; ``heaveto.run`` is the
same for programs. See :mod:`heaveto.runner.lifecycle` for the order of things.
"""

from __future__ import annotations

from heaveto.runner.api import RunResult, run
from heaveto.runner.contract import Finished, Options, Registered, Reporter, Trouble
from heaveto.runner.ending import Cause
from heaveto.runner.lifecycle import run_flow
from heaveto.runner.notify import notify
from heaveto.runner.notify import parse as parse_notify

__all__ = [
    "Cause",
    "Finished",
    "Options",
    "Registered",
    "Reporter",
    "RunResult",
    "Trouble",
    "notify",
    "parse_notify",
    "run",
    "run_flow",
]
