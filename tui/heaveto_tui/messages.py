"""What the feed tells the app: frozen values inside messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from heaveto.errors import HeavetoError
    from heaveto.observe.snapshot import HomeView, RunDetail, RunSummary

__all__ = [
    "Answer",
    "Beat",
    "ControlAnswered",
    "DetailRead",
    "OperationText",
    "RunsListed",
    "TextRead",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationText:
    """What was said to an operation and what it wrote.

    Attributes:
        instruction: As sent; None when it is not kept (lionagi) or not sent yet.
        output: The end of its standard output, inert characters not yet ensured.
        error: The end of its standard error.
        output_bytes: How much standard output there is in all.
        error_bytes: How much standard error there is in all.
        cut: Text before what is here was left out.
    """

    run_id: str
    operation_id: str
    instruction: str | None = None
    output: str = ""
    error: str = ""
    output_bytes: int = 0
    error_bytes: int = 0
    cut: bool = False


class RunsListed(Message):
    """The runs of every open home, as they are now."""

    def __init__(
        self, runs: tuple[RunSummary, ...], sources: tuple[HomeView, ...]
    ) -> None:
        """Hold the runs and how their homes answered."""
        super().__init__()
        self.runs = runs
        self.sources = sources

    def can_replace(self, message: Message) -> bool:
        """Only the newest list matters."""
        return isinstance(message, RunsListed)


class Beat(Message):
    """How the homes answer, once a second."""

    def __init__(self, sources: tuple[HomeView, ...]) -> None:
        """Hold it."""
        super().__init__()
        self.sources = sources

    def can_replace(self, message: Message) -> bool:
        """Only the newest answer matters."""
        return isinstance(message, Beat)


class DetailRead(Message):
    """One run whole, or why it could not be read."""

    def __init__(
        self, run: RunSummary, detail: RunDetail | None, error: HeavetoError | None
    ) -> None:
        """Name the run that was asked for."""
        super().__init__()
        self.run = run
        self.detail = detail
        self.error = error


class TextRead(Message):
    """What an operation was told and wrote."""

    def __init__(self, text: OperationText) -> None:
        """Hold the text."""
        super().__init__()
        self.text = text

    def can_replace(self, message: Message) -> bool:
        """A newer text of the same operation is all that matters."""
        return (
            isinstance(message, TextRead)
            and message.text.operation_id == self.text.operation_id
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of an action that writes.

    Attributes:
        action: The action's id.
        short: The run, as people call it.
        ok: It was accepted; what becomes of it is seen in the ledger.
        text: One sentence.
        control_id: The row that was written, if any.
    """

    action: str
    short: str
    ok: bool
    text: str
    control_id: str | None = None


class ControlAnswered(Message):
    """A control was queued, or refused before it was."""

    def __init__(self, answer: Answer) -> None:
        """Hold the answer."""
        super().__init__()
        self.answer = answer
