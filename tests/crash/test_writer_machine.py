"""The state machine of ``test_checkpoint_writer_machine.py``, for longer."""

from __future__ import annotations

import pytest
from hypothesis import settings

from test_checkpoint_writer_machine import Writers


class _Long(Writers):
    """The same rules."""


TestWritersForLong = pytest.mark.timeout(3600)(pytest.mark.slow(_Long.TestCase))
TestWritersForLong.settings = settings(Writers.TestCase.settings, max_examples=1000)
