"""Steering: each control asked for, its effect said, then handed to the feed.

These functions connect an action to its question and the answer to the one thing that
writes: a row in the state database, or a process of the command line. None of them
touches a run's files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heaveto.model import Verb
from heaveto.text import short_id
from heaveto_tui import effects
from heaveto_tui.actions import twin
from heaveto_tui.lines import EMPTY, Line
from heaveto_tui.screens.dialogs import Choice, Question, Typed
from heaveto_tui.screens.message import Composer
from heaveto_tui.state import home_option
from heaveto_tui.widgets.detail import wrapped

if TYPE_CHECKING:
    from collections.abc import Callable

    from heaveto.observe.snapshot import ControlView, RunDetail, RunSummary
    from heaveto_tui.screens.place import Place

__all__ = ["STEERING", "steer"]


def steer(name: str, place: Place) -> None:
    """Ask what an action of :data:`STEERING` would do, and do it on yes."""
    run = place.run
    if run is not None:
        STEERING[name](place, run)


def _same_as(place: Place, name: str, run: RunSummary, **words: str) -> str:
    """Return the command line that does the same, with the run's home if needed."""
    prefix = home_option(place.console.store, run)
    line = twin(name, {"id": short_id(run.session_id), **words}, prefix)
    return "" if line is None else f"Same as:  {line}"


def _off(place: Place, name: str, run: RunSummary) -> Callable[[], str | None]:
    return lambda: place.why_off_for(name, run)


def _body(
    place: Place, run: RunSummary, say: Callable[[RunDetail], list[str]], same: str
) -> Callable[[int], list[Line]]:
    """Return a builder of a question's body: the present effect, then the command."""
    console = place.console

    def build(width: int) -> list[Line]:
        look = console.painter.look
        detail = console.store.detail(run)
        lines: list[Line] = []
        if detail is None:
            lines.append((("Reading what it would do …", "muted"),))
        else:
            for sentence in say(detail):
                lines.extend(wrapped(sentence, width, look, "text", indent=0))
        if same:
            lines.append(((look.clip(same, width), "muted"),))
        return lines

    return build


def _who(run: RunSummary, place: Place) -> str:
    name = place.console.painter.look.plain(run.name or "")
    return f"{short_id(run.session_id)}  {name}".rstrip()


def _pause(place: Place, run: RunSummary) -> None:
    console = place.console
    question = Question(
        console,
        title=f"Pause {_who(run, place)}",
        yes="pause",
        body=_body(
            place,
            run,
            lambda detail: effects.pause_effect(
                detail, console.settings.now(), console.painter.look
            ),
            _same_as(place, "ctl.pause", run),
        ),
        off=_off(place, "ctl.pause", run),
    )
    _ask(place, question, lambda: _send(place, "ctl.pause", run, Verb.PAUSE))


def _resume(place: Place, run: RunSummary) -> None:
    console = place.console
    question = Question(
        console,
        title=f"Resume {_who(run, place)}",
        yes="resume",
        body=_body(
            place,
            run,
            lambda detail: effects.resume_effect(detail, console.painter.look),
            _same_as(place, "ctl.resume", run),
        ),
        off=_off(place, "ctl.resume", run),
    )
    _ask(place, question, lambda: _send(place, "ctl.resume", run, Verb.RESUME))


def _stop(place: Place, run: RunSummary) -> None:
    question = Typed(
        place.console,
        title=f"Stop {_who(run, place)}",
        yes="stop it",
        body=_stop_body(place, run),
        expected=short_id(run.session_id),
        off=_off(place, "ctl.stop", run),
    )
    _ask(place, question, lambda: _send(place, "ctl.stop", run, Verb.STOP))


def _stop_body(place: Place, run: RunSummary) -> Callable[[int], list[Line]]:
    console = place.console

    def build(width: int) -> list[Line]:
        look = console.painter.look
        lines: list[Line] = [(("Stops this flow for good.", "text"),), EMPTY]
        detail = console.store.detail(run)
        if detail is not None:
            for count, fate in effects.stop_effect(detail, look):
                parts = look.wrap(fate, max(10, width - 14))
                for index, part in enumerate(parts):
                    head = count if index == 0 else ""
                    lines.append(((f"  {head:<12}", "text"), (part, "text")))
        lines.append(EMPTY)
        lines.append((("What is saved can be used again by a resume.", "muted"),))
        same = _same_as(place, "ctl.stop", run)
        lines.append(((look.clip(same, width), "muted"),))
        return lines

    return build


def _message(place: Place, run: RunSummary) -> None:
    composer = Composer(place.console, place, run)

    def done(text: str | None) -> None:
        if text is not None:
            place.console.feed.control("ctl.message", run, Verb.MESSAGE, text)

    place.app.push_screen(composer, done)


def _end_now(place: Place, run: RunSummary) -> None:
    console = place.console

    def build(width: int) -> list[Line]:
        look = console.painter.look
        detail = console.store.detail(run)
        running = "What runs"
        if detail is not None:
            found = [each for each in detail.operations if each.status == "running"]
            names = effects.names(found, look)
            running = f"What runs ({names})" if names else "What runs"
        sentences = (
            "Sends SIGTERM to the runner's process, which is checked first.",
            f"{running} gets its worker's grace (10s unless it says otherwise), "
            "then is ended; it is not saved and a resume runs it again.",
            "Then the run ends as cancelled (exit 143).",
            "To let running work finish instead, use x (stop).",
        )
        return [
            line
            for sentence in sentences
            for line in wrapped(sentence, width, look, "text", indent=0)
        ]

    question = Typed(
        console,
        title=f"End now {_who(run, place)}",
        yes="end its process",
        body=build,
        expected=short_id(run.session_id),
        off=_off(place, "run.end_now", run),
    )
    _ask(place, question, lambda: console.feed.end_now(run))


def _close(place: Place, run: RunSummary) -> None:
    console = place.console

    def say(detail: RunDetail) -> list[str]:
        lines = [
            "Its process is gone. Its row gets an end; what it saved stays and can be "
            "resumed."
        ]
        if detail.survivors:
            count = effects.plural(len(detail.survivors), "process")
            lines.append(f"{count} that it started still runs; that is not changed.")
        return lines

    question = Question(
        console,
        title=f"Close {_who(run, place)}",
        yes="close it",
        no="leave it",
        body=_body(place, run, say, _same_as(place, "run.close", run)),
        off=_off(place, "run.close", run),
    )
    words = ["--home", run.home, "close", run.session_id or run.run_id]
    _ask(place, question, lambda: console.feed.command("run.close", run, words))


def _resolve(place: Place, run: RunSummary) -> None:
    control = place.control
    if control is None:
        return
    console = place.console
    look = console.painter.look
    body: list[Line] = []
    if control.text is not None:
        body.extend(wrapped(f"“{control.text}”", 68, look, "text", indent=0)[:3])
    body.extend(
        wrapped(
            "The flow took it and never reported back. Whether an operation acted on "
            "it cannot be told. You decide what the record says; it is not sent again "
            "either way.",
            68,
            look,
            "text",
            indent=0,
        )
    )
    choice = Choice(
        console,
        title=f"Close {control.verb} {short_id(control.id)} by hand",
        options=(
            ("applied", "applied", "I know that it was acted on"),
            ("abandoned", "abandoned", "it was not acted on, or I do not know"),
        ),
        chosen="abandoned",
        body=body,
    )

    def done(outcome: str | None) -> None:
        match outcome:
            case "applied" | "abandoned":
                console.feed.resolve(run, control.id, outcome)

    place.app.push_screen(choice, done)


def _again(place: Place, run: RunSummary) -> None:
    control = place.control
    successor = place.console.store.successor(run)
    if control is None or control.text is None or successor is None:
        return
    text = control.text
    question = Question(
        place.console,
        title=f"Send again to {_who(successor, place)}",
        yes="send it again",
        body=_again_body(place, successor, control),
        off=_off(place, "ctl.again", run),
    )
    _ask(
        place,
        question,
        lambda: place.console.feed.control("ctl.again", successor, Verb.MESSAGE, text),
    )


def _again_body(
    place: Place, successor: RunSummary, control: ControlView
) -> Callable[[int], list[Line]]:
    look = place.console.painter.look

    def build(width: int) -> list[Line]:
        words = f"“{control.text}”"
        sentence = (
            "It was applied and lost with the process. The run that took over does not "
            "know it. The next operation that starts there reads it."
        )
        return [
            *wrapped(words, width, look, "text", indent=0)[:4],
            *wrapped(sentence, width, look, "text", indent=0),
            (
                (
                    look.clip(_same_as(place, "ctl.again", successor), width),
                    "muted",
                ),
            ),
        ]

    return build


def _send(place: Place, name: str, run: RunSummary, verb: Verb) -> None:
    place.console.feed.control(name, run, verb)


def _ask(place: Place, question: Question, act: Callable[[], None]) -> None:
    """Show a question; say when it was answered with no."""

    def done(answer: str | None) -> None:
        if answer is None:
            place.console.say("Nothing has been sent.")
        else:
            act()

    place.app.push_screen(question, done)


STEERING: dict[str, Callable[[Place, RunSummary], None]] = {
    "ctl.pause": _pause,
    "ctl.resume": _resume,
    "ctl.message": _message,
    "ctl.stop": _stop,
    "run.end_now": _end_now,
    "run.close": _close,
    "ctl.resolve": _resolve,
    "ctl.again": _again,
}
"""Every action that writes, by id."""
