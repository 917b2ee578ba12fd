"""What holds for every test: no deadline for properties, no loop in passing."""

from __future__ import annotations

import asyncio

from hypothesis import HealthCheck, settings

# Properties are about values, never about time: a slow machine fails none of them.
settings.register_profile(
    "heaveto", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("heaveto")

# Asked for the current loop where none was ever set, asyncio makes one; pytest-asyncio
# asks before its first test, and the first asyncio.run of a test then drops that loop
# unclosed, which some later test is blamed for. With none set, nothing is made.
asyncio.set_event_loop(None)
