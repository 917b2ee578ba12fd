"""A python worker that does what the test at hand says."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["doing", "perform"]

_now: list[Callable[[Any], Any]] = []


def doing(function: Callable[[Any], Any]) -> dict[str, object]:
    """Return the worker that calls a function, until another one is named."""
    _now[:] = [function]
    return {"kind": "python", "call": perform}


async def perform(request: Any) -> Any:
    """Call what the test named last, on the loop or in a thread."""
    function = _now[0]
    if inspect.iscoroutinefunction(function):
        return await function(request)
    return await asyncio.to_thread(function, request)
