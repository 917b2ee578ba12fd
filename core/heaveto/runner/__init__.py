"""Running flows: the one way in for the command line and for programs.

:func:`run_flow` runs a flow in a home and says how it ended; ``heaveto.run`` is the
same for programs. See :mod:`heaveto.runner.run` for the order of things.
"""

from __future__ import annotations

from heaveto.runner.contract import Finished, Options, Registered, Reporter, Trouble
from heaveto.runner.ending import Cause
from heaveto.runner.notify import notify
from heaveto.runner.notify import parse as parse_notify
from heaveto.runner.run import run_flow

__all__ = [
    "Cause",
    "Finished",
    "Options",
    "Registered",
    "Reporter",
    "Trouble",
    "notify",
    "parse_notify",
    "run_flow",
]
