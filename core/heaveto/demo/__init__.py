"""The bundled demo flows, and how each of them is meant to end.

A flow file is data beside this module, and reads like one that a user writes. The
script of the headless demo is here too: what is steered when, and what must have come
of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from heaveto.model import RunStatus

__all__ = ["FLOWS", "MESSAGE", "PATIENCE", "DemoFlow"]

MESSAGE = "name the three alarms, and who was called"
"""What the demo tells the flow that is there to be steered."""

PATIENCE = {"HEAVETO_DEMO_PATIENCE": "20"}
"""The environment of the flows where somebody looks on: the one to be steered is there
for a minute, so that a newcomer can read the screen before it has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoFlow:
    """One bundled flow."""

    name: str
    ends: RunStatus
    """The status that it ends with when nobody interferes."""
    pauses_at: str | None = None
    """The headless demo pauses it while this operation runs, and sends a message."""
    reads: str | None = None
    """The operation that must have read the message."""

    @property
    def path(self) -> Path:
        """Where its flow file is."""
        return Path(__file__).with_name(f"{self.name}.toml")


FLOWS = (
    DemoFlow(name="release-notes", ends=RunStatus.COMPLETED),
    DemoFlow(name="nightly-build", ends=RunStatus.FAILED),
    DemoFlow(
        name="steer-me",
        ends=RunStatus.COMPLETED,
        pauses_at="collect",
        reads="draft",
    ),
)
