"""The message composer: write, look at what the model will read, queue.

The draft belongs to the run and stays when the composer is closed. The second step
shows the very block that will stand before the next instruction. What became of earlier
messages stands below, so that nobody sends one twice because he cannot see the first.
"""

from __future__ import annotations

import shlex
import unicodedata
from typing import TYPE_CHECKING, ClassVar

from textual.containers import Vertical
from textual.widgets import TextArea

from heaveto.text import plain_lines, short_id
from heaveto_tui.effects import message_effect
from heaveto_tui.lines import EMPTY, Line, fit, pad
from heaveto_tui.presentation import control_face, is_over
from heaveto_tui.screens.place import Overlay
from heaveto_tui.state import home_option
from heaveto_tui.widgets.detail import wrapped
from heaveto_tui.widgets.ledger import rungs
from heaveto_tui.widgets.lineview import Bar
from heaveto_tui.widgets.run_table import run_key

if TYPE_CHECKING:
    from textual import events
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.widget import Widget

    from heaveto.observe.snapshot import RunDetail, RunSummary
    from heaveto_tui.screens.place import Console, Place

__all__ = ["LIMIT", "Composer"]

LIMIT = 65_536
"""Bytes of UTF-8 that a message may have (PRODUCT 6.6)."""
_LEDGER_ROWS = 4


def clean(text: str) -> tuple[str, int]:
    """Return pasted text with line breaks as LF, without control characters.

    Returns:
        The text, and how many characters were left out.
    """
    flat = text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", "    ")
    kept = [
        char
        for char in flat
        if char == "\n" or unicodedata.category(char) not in {"Cc", "Cs", "Cf"}
    ]
    return "".join(kept), len(flat) - len(kept)


class Editor(TextArea):
    """Where a message is written: Enter looks at it, a paste keeps its lines."""

    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(self, composer: Composer, text: str) -> None:
        """Belong to a composer; begin with its draft."""
        super().__init__(
            text,
            id="editor",
            soft_wrap=True,
            show_line_numbers=False,
            highlight_cursor_line=False,
            compact=True,
        )
        self.cursor_blink = False
        self._composer = composer

    async def _on_key(self, event: events.Key) -> None:
        """Hand Enter and Esc to the composer, recall at the edges, else edit."""
        composer = self._composer
        if event.key in {"enter", "escape", "ctrl+j"}:
            event.stop()
            event.prevent_default()
            if event.key == "ctrl+j":
                self.insert("\n")
            else:
                composer.key(event)
            return
        row = self.cursor_location[0]
        at_edge = (event.key == "up" and row == 0) or (
            event.key == "down" and row == self.document.line_count - 1
        )
        if at_edge and composer.recall(-1 if event.key == "up" else 1):
            event.stop()
            event.prevent_default()
            return
        await super()._on_key(event)

    async def _on_paste(self, event: events.Paste) -> None:
        """Insert pasted text as text: inert, lines kept, nothing obeyed."""
        event.stop()
        event.prevent_default()
        text, dropped = clean(event.text)
        room = LIMIT - len(self.text)
        self.insert(text[: max(0, room)])
        self._composer.pasted(dropped, cut=max(0, len(text) - room))


class Composer(Overlay):
    """Write and queue one message to one run."""

    def __init__(self, console: Console, place: Place, run: RunSummary) -> None:
        """Open for a run, with its draft."""
        super().__init__(console)
        self._place = place
        self._run = run
        painter = console.painter
        self._above = Bar(painter, id="above", panel=True)
        self._shown = Bar(painter, id="block", panel=True)
        self._under = Bar(painter, id="below", panel=True)
        self._draft = console.store.draft(run_key(run))
        self._checking = False
        self._note = ""
        self._recalled: int | None = None
        self.editor = Editor(self, self._draft.text)
        self._shown.display = False

    def compose(self) -> ComposeResult:
        """Stack title, editor or block, effect, ledger, keys."""
        with Vertical(id="question"):
            yield self._above
            yield self.editor
            yield self._shown
            yield self._under

    def first(self) -> Widget:
        """The editor has the keys, with the caret where it was."""
        self.editor.move_cursor(self._draft.caret)
        return self.editor

    @property
    def detail(self) -> RunDetail | None:
        """The run whole, as it is now."""
        return self.console.store.detail(self._run)

    def off(self) -> str | None:
        """Return why it cannot be sent any more."""
        return self._place.why_off_for("ctl.message", self._run)

    # --- drawing

    def redraw(self) -> None:
        """Build everything but the editor, which is never touched (F-181)."""
        width = self._above.size.width or self.size.width
        step = "step 2 of 2, check" if self._checking else "step 1 of 2, write"
        who = f"Message to {short_id(self._run.session_id)}"
        rule = "─" * max(0, width - len(who) - len(step) - 6)
        top: Line = (
            ("─ ", "muted"),
            (who, "text+bold"),
            (f" {rule} {step} ─", "muted"),
        )
        self._above.set_lines([top])
        self.editor.display = not self._checking
        self._shown.display = self._checking
        if self._checking:
            self._shown.set_lines(self._block(width))
        self._under.set_lines(self._below(width))

    def _block(self, width: int) -> list[Line]:
        """Return the block as the model will read it."""
        look = self.console.painter.look
        said = [
            "[OPERATOR STEER]",
            "A human operator sent these live corrections while this flow is running.",
            "Attend to them before continuing. Most recent last.",
        ]
        lines = plain_lines(self._draft.text)
        said.append(f"- (time it is taken): {lines[0]}")
        said.extend(f"  {line}" for line in lines[1:])
        said.append("[/OPERATOR STEER]")
        found: list[Line] = [
            (
                (
                    " This stands before the instruction of the next operation:",
                    "text",
                ),
            ),
            EMPTY,
        ]
        for line in said:
            found.extend(
                ((" ┃", "note"), (part, "note"))
                for part in look.wrap(look.plain(line), max(8, width - 4))
            )
        return found[: max(4, self.app.size.height - 12)]

    def _below(self, width: int) -> list[Line]:
        """Return the effect, the ledger and the keys."""
        look = self.console.painter.look
        detail = self.detail
        lines: list[Line] = [EMPTY]
        if detail is not None:
            for sentence in message_effect(detail, look):
                lines.extend(wrapped(sentence, width - 2, look, "text"))
        if self._checking:
            lines.append(
                (
                    (
                        " It can be lost if the flow dies before the next save; "
                        "heaveto shows it then.",
                        "muted",
                    ),
                )
            )
            lines.append(((f" Same as:  {self._twin(width)}", "muted"),))
        else:
            size = len(self.editor.text.encode("utf-8", "replace"))
            count = len(self.editor.text)
            words = f" {count} character{'' if count == 1 else 's'}."
            if size > LIMIT:
                words = f" {size} bytes: {size - LIMIT} more than a message may have."
            lines.append(((words, "bad" if size > LIMIT else "muted"),))
        off = self.off()
        if off is not None:
            lines.append(((f" {off}", "bad"),))
        elif self._note:
            lines.append(((f" {self._note}", "hold"),))
        lines.extend(self._ledger(detail, width))
        lines.append(self._keys())
        return [fit(line, width, mark=look.cut) for line in lines]

    def _twin(self, width: int) -> str:
        """Return the command that sends the same."""
        look = self.console.painter.look
        quoted = shlex.quote(look.plain(self._draft.text))
        prefix = home_option(self.console.store, self._run)
        words = ["heaveto", *prefix, "ctl", "msg", short_id(self._run.session_id)]
        return look.clip(f"{' '.join(words)} {quoted}", width - 12)

    def _ledger(self, detail: RunDetail | None, width: int) -> list[Line]:
        """Return what became of the messages before this one."""
        if detail is None:
            return []
        sent = [each for each in detail.controls if each.verb == "message"]
        if not sent:
            return []
        look = self.console.painter.look
        title = "─ Sent to this run "
        lines: list[Line] = [((title + "─" * (width - len(title)), "muted"),)]
        over = is_over(detail.run)
        for each in sent[-_LEDGER_ROWS:]:
            face = control_face(each, over=over)
            room = max(8, width // 3)
            lines.append(
                (
                    (f" {short_id(each.id)} ", "text"),
                    (pad(look.plain(each.text or ""), room, mark=look.cut), "text"),
                    (f"  {face.glyph} ", face.role),
                    (rungs(each, detail, look), face.role),
                )
            )
        return lines

    def _keys(self) -> Line:
        look = self.console.painter.look
        if self._checking:
            yes, role = f" {look.enter} queue the message", "text+bold"
            if self.off() is not None:
                yes, role = f" ({yes[1:]})", "muted"
            return (
                (yes, role),
                ("   Backspace edit again   Esc keep as draft", "text"),
            )
        return (
            (f" {look.enter} look before sending", "text+bold"),
            (f"   Esc keep as draft   {look.arrows} earlier messages", "text"),
        )

    # --- keys

    def key(self, event: events.Key) -> None:
        """Take Enter or Esc from the editor."""
        meant = self.meant(event)
        if event.key == "escape":
            self._leave()
        elif meant and self._sendable():
            self._checking = True
            self._last_key = event.time
            self.set_focus(None)
            self.redraw()

    def _sendable(self) -> bool:
        text = self.editor.text
        self._keep()
        if not text.strip():
            self._note = "There is nothing to send yet."
        elif len(text.encode("utf-8", "replace")) > LIMIT:
            self._note = ""
        else:
            self._note = ""
            return self.off() is None
        self.redraw()
        return False

    def on_key(self, event: events.Key) -> None:
        """Answer the second step."""
        if not self._checking:
            return
        event.stop()
        event.prevent_default()
        meant = self.meant(event)
        if event.key == "escape":
            self._leave()
        elif event.key in {"backspace", "up", "e"}:
            self._checking = False
            self.editor.display = True
            self.editor.focus(scroll_visible=False)
            self.redraw()
        elif event.key == "enter" and meant and self.off() is None:
            self._send()

    def _send(self) -> None:
        text = self._draft.text
        store = self.console.store
        store.history.append(text)
        store.drafts.pop(run_key(self._run), None)
        self.answer_with(text)

    def _leave(self) -> None:
        self._keep()
        if self._draft.text.strip():
            who = short_id(self._run.session_id)
            self.console.say(
                f"Your message to {who} is not sent. It is kept as a draft."
            )
        self.answer_with(None)

    def _keep(self) -> None:
        self._draft.text = self.editor.text
        row, column = self.editor.cursor_location
        self._draft.caret = (row, column)

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Count."""
        event.stop()
        self._keep()
        self.redraw()

    def recall(self, step: int) -> bool:
        """Put an earlier message into the editor; False when there is none."""
        detail = self.detail
        earlier = [
            each.text
            for each in (detail.controls if detail is not None else ())
            if each.verb == "message" and each.text
        ]
        earlier = list(dict.fromkeys([*earlier, *self.console.store.history]))
        if not earlier:
            return False
        place = len(earlier) if self._recalled is None else self._recalled
        if self._recalled is None and self.editor.text.strip():
            return False
        place = min(max(0, place + step), len(earlier))
        self._recalled = place if place < len(earlier) else None
        text = earlier[place] if place < len(earlier) else ""
        self.editor.load_text(text)
        self.editor.move_cursor(self.editor.document.end)
        return True

    def pasted(self, dropped: int, *, cut: int) -> None:
        """Tell what of a paste was left out."""
        notes = []
        if dropped:
            noun = "character was" if dropped == 1 else "characters were"
            notes.append(f"{dropped} control {noun} left out of the paste.")
        if cut:
            notes.append(f"The paste was cut by {cut} characters.")
        self._note = " ".join(notes)
        self.redraw()
