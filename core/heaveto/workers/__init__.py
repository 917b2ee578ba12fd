"""Who does the work: programs, functions and scripts behind one call.

:class:`Workers` is what an executor is given; :func:`survivors` and
:func:`end_survivors` are about what a dead run left running.
"""

from __future__ import annotations

from heaveto.workers.call import Request
from heaveto.workers.pool import Workers
from heaveto.workers.records import Survivor, end_survivors, survivors

__all__ = ["Request", "Survivor", "Workers", "end_survivors", "survivors"]
