"""Controls: how a person steers a live flow from another process.

A control is a row. The sender's side (:func:`enqueue`) writes it under conditions that
are part of the INSERT; the runner's side (:mod:`heaveto.controls.poller`) claims it
where the effect must not happen twice, applies it, and stamps the outcome into it.
Nothing else carries a control: no socket, signal or handle of a process (SPEC M-02).

===========  =======================================  ================================
verb         order in the runner (SPEC M-09)          after a crash in between
===========  =======================================  ================================
pause        effect, then stamp                       applied again: the same state
resume       effect, then stamp                       applied again: the same state
stop         effect, then stamp                       applied again: the same state
message      claim, effect, stamp guarded by claim    never again by itself; a person
                                                      resolves a claim that was left
===========  =======================================  ================================
"""

from __future__ import annotations

from heaveto.controls.sending import (
    MESSAGE_LIMIT,
    Receipt,
    acknowledgement,
    enqueue,
    enqueue_async,
    resolve,
    resolve_async,
)
from heaveto.controls.words import ControlClass, check_text, classify

__all__ = [
    "MESSAGE_LIMIT",
    "ControlClass",
    "Receipt",
    "acknowledgement",
    "check_text",
    "classify",
    "enqueue",
    "enqueue_async",
    "resolve",
    "resolve_async",
]
