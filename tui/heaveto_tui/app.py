"""The console: every run and every operation live, and the controls to steer them.

The app owns every change of state. The feed reads on threads and posts messages; their
handlers put what was read into the store and ask the place in view to draw itself, at
most once in a tenth of a second. A second-hand moves the clocks of running rows while
there are any in view; otherwise nothing is written to the terminal until something
happens.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import Binding
from textual.events import Key

from heaveto.text import short_id
from heaveto_tui.feed import Feed
from heaveto_tui.lines import Look
from heaveto_tui.painting import FRAME_S, CellApp
from heaveto_tui.presentation import Clock
from heaveto_tui.screens.place import PASTED_S, Overlay, Place, too_small
from heaveto_tui.screens.runs import RunsScreen
from heaveto_tui.screens.small import Small
from heaveto_tui.state import Settings, Store
from heaveto_tui.theme import PALETTES, Painter, theme_of
from heaveto_tui.wording import delivery_words

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from textual import events
    from textual.binding import BindingType
    from textual.geometry import Size

    from heaveto.cli.console import ConsoleOptions
    from heaveto.observe.snapshot import ControlView, RunDetail
    from heaveto_tui.feed import Source
    from heaveto_tui.messages import (
        Answer,
        Beat,
        ControlAnswered,
        DetailRead,
        RunsListed,
        TextRead,
    )
    from heaveto_tui.theme import Palette

__all__ = ["PERFORM", "HeavetoApp", "run_console"]

TICK_S = 1.0
SLOW_TICKS = 5
"""Every so many ticks the ages of what goes on without a running row are told anew."""


class HeavetoApp(CellApp, inherit_bindings=False):
    """The console over the runs of some homes."""

    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "hint", show=False),
    ]

    def __init__(
        self,
        source: Source,
        *,
        homes: tuple[str, ...],
        usual: tuple[str, ...] = (),
        target: Hashable | None = None,
        palette: Palette | None = None,
        look: Look | None = None,
        clock: Clock | None = None,
        settings: Settings | None = None,
        driver_class: type[Any] | None = None,
    ) -> None:
        """Build the console; nothing is read before it runs.

        Args:
            source: What is read from.
            homes: The open homes, as paths.
            usual: Homes that a command opens without being told to.
            target: The key of a run to open.
            palette: Colours.
            look: How text is spelled.
            clock: How moments are told.
            settings: How it was started.
            driver_class: What draws; None is the terminal.
        """
        chosen = palette or PALETTES["night"]
        super().__init__(colours=chosen.name != "none", driver_class=driver_class)
        self.register_theme(theme_of(chosen))
        self.theme = f"heaveto-{chosen.name}"
        self.store = Store(homes, usual)
        self.settings = settings or Settings()
        self.painter = Painter(chosen, look or Look())
        self.clock = clock or Clock(None)
        self.feed = Feed(source, self.post_message)
        self.last_word = ""
        self._target = target
        self.places: dict[str, Place] = {}
        self._due = False
        self._drawn_at = float("-inf")
        self._stale = False
        self._ticks = 0
        self._pending: Answer | None = None
        self._reader: asyncio.Task[None] | None = None
        self._key_at, self._key_gap = 0.0, 0.0

    # --- life

    def on_mount(self) -> None:
        """Install the places and start reading."""
        self.push_screen(self.place_named("runs"))
        self._mind_size(self.size)
        self._reader = asyncio.create_task(self.feed.run())
        self._reader.add_done_callback(self._reader_ended)
        self.set_interval(TICK_S, self._tick)

    def _reader_ended(self, task: asyncio.Task[None]) -> None:
        """End with a report when the feed broke: it has no other way to be seen."""
        if not task.cancelled() and (error := task.exception()) is not None:
            cause = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
            if isinstance(cause, Exception):
                self._handle_exception(cause)

    async def on_event(self, event: events.Event) -> None:
        """Note how fast keys follow each other; one that bubbles comes again."""
        if isinstance(event, Key) and event.time != self._key_at:
            self._key_gap, self._key_at = event.time - self._key_at, event.time
        await super().on_event(event)

    async def on_unmount(self) -> None:
        """Stop reading."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)

    def place_named(self, name: str) -> Place:
        """Return a place, made and kept when it is first asked for.

        What is not in view at the start is not even imported before its first use.
        """
        place = self.places.get(name)
        if place is None:
            place = self.places[name] = _make_place(name, self)
            self.install_screen(place, name)
        return place

    def _mind_size(self, size: Size) -> None:
        """Put the advice on top while the terminal is too small."""
        if not self.screen_stack:
            return
        top = self.screen
        if too_small(size):
            if not isinstance(top, Small):
                self.push_screen(Small(self))
        elif isinstance(top, Small):
            top.leave()
            self.set_timer(2 * FRAME_S, self.draw_now)

    def on_resize(self, event: events.Resize) -> None:
        """Put the advice on top, or take it away; the base draws every cell again."""
        self._mind_size(event.size)

    # --- what was read

    def on_runs_listed(self, message: RunsListed) -> None:
        """Take a new list."""
        first = not self.store.listed
        if not self.store.set_runs(message.runs, message.sources):
            return
        if first:
            self._open_target()
        self.soon()

    def on_beat(self, message: Beat) -> None:
        """Draw when a home's age passes its limit, either way."""
        self.store.sources = message.sources
        age = self.store.data_age(self.settings.now())
        stale = age is not None and age > STALE_S
        older = self.store.grow_older(self.settings.now())
        if stale != self._stale or stale or older:
            self._stale = stale
            self.soon()

    def on_detail_read(self, message: DetailRead) -> None:
        """Take a run whole."""
        if message.detail is None:
            return
        if self.store.set_detail(message.detail):
            self._progress()
            self.soon()

    def on_text_read(self, message: TextRead) -> None:
        """Take what an operation wrote."""
        self.store.set_text(message.text)
        self.soon()

    def on_control_answered(self, message: ControlAnswered) -> None:
        """Say what came of a control, and follow it until it is applied."""
        answer = message.answer
        stamp = self.clock.moment(self.settings.now(), self.settings.now())
        if answer.ok:
            self._pending = answer if answer.control_id else None
            self.say(f"{stamp}  {answer.text}")
        else:
            self._pending = None
            self.say(f"{stamp}  Not sent to {answer.short}: {answer.text}")

    def _progress(self) -> None:
        """Tell in the last word how far the last control came."""
        answer = self._pending
        found = None if answer is None else self._find_control(answer.control_id)
        if answer is None or found is None:
            return
        control, detail = found
        told = delivery_words(control, detail)
        if told is None or told == answer.text:
            return
        now = self.settings.now()
        self._pending = replace(answer, text=told)
        self.say(f"{self.clock.moment(now, now)}  {self.painter.look.plain(told)}")
        if (
            control.klass != "applied"
            or control.verb != "message"
            or control.rendered_into is not None
        ):
            self._pending = None

    def _find_control(
        self, control_id: str | None
    ) -> tuple[ControlView, RunDetail] | None:
        """Return a control and its run, where it has been read."""
        for detail in self.store.details():
            for control in detail.controls:
                if control.id == control_id:
                    return control, detail
        return None

    def _open_target(self) -> None:
        """Go to the run that was asked for at the start."""
        if self._target is None:
            return
        if self.store.run(self._target) is None:
            self.say("The run that was asked for is not there any more.")
            return
        self.choose_run(self._target)
        self.go("run")

    # --- drawing

    def soon(self) -> None:
        """Draw now, or a tenth of a second after the last drawing, whatever is later.

        However often it is asked meanwhile, it is one drawing.
        """
        if self._due:
            return
        self._due = True
        wait = self._drawn_at + FRAME_S - self.settings.monotonic()
        if wait <= 0:
            self.call_next(self._draw)
        else:
            self.set_timer(wait, self._draw)

    def _draw(self) -> None:
        self._due = False
        self._drawn_at = self.settings.monotonic()
        self.draw_now()

    def draw_now(self) -> None:
        """Ask the place in view, and what is on top of it, to draw themselves."""
        for screen in self.screen_stack:
            if isinstance(screen, Place) and screen is not self.place:
                continue
            if isinstance(screen, (Place, Overlay, Small)):
                screen.redraw()
        stack = self.screen_stack  # empty while the console ends
        if stack and isinstance(stack[-1], (Overlay, Small)):
            stack[-1].refresh()  # what lies below shows through

    def _tick(self) -> None:
        """Move the clocks of what goes on: of running rows, and of the first rows."""
        place = self.place
        if place is None or not self.settings.motion:
            return
        self._ticks += 1
        if place.ticks():
            place.tick()
            place.draw_head()
        elif self._ticks % SLOW_TICKS == 0 and self.store.going_on:
            self.soon()

    @property
    def place(self) -> Place | None:
        """The place in view, below anything on top of it."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, Place):
                return screen
        return None

    # --- what screens ask for

    def say(self, text: str) -> None:
        """Show the last word."""
        self.last_word = text
        self.draw_now()

    def go(self, place: str) -> None:
        """Show another place."""
        self.last_word = ""
        wanted = self.place_named(place)
        if self.place is wanted:
            return
        advice = isinstance(self.screen, Small)
        if advice:
            self.pop_screen()
        self.switch_screen(wanted)
        if advice:
            self.push_screen(Small(self))

    def choose_run(self, key: Hashable | None) -> None:
        """Make a run the current one and keep it fresh."""
        self.store.current = key
        self.feed.show(self.store.run(key))

    def open_operation(self, operation_id: str) -> None:
        """Show an operation of the current run."""
        from heaveto_tui.screens.operation import OperationScreen
        from heaveto_tui.screens.run import RunScreen

        run_place, place = self.place_named("run"), self.place_named("operation")
        assert isinstance(run_place, RunScreen)
        assert isinstance(place, OperationScreen)
        run_place.select(operation_id)
        place.choose(operation_id)
        if self.place is place:
            place.redraw()
        else:
            self.go("operation")

    def next_problem(self, step: int) -> None:
        """Go to the next run that needs somebody."""
        runs = self.place_named("runs")
        assert isinstance(runs, RunsScreen)
        key = runs.problem_after(self.store.current, step)
        if key is None:
            self.say("Nothing needs you.")
            return
        self.choose_run(key)
        if self.place is runs:
            runs.table.select(key)
        self.draw_now()

    def perform(self, name: str, place: Place) -> None:
        """Do what belongs to no place in particular."""
        if name in PERFORM:
            PERFORM[name](self, place)
            return
        from heaveto_tui.screens.steering import steer

        steer(name, place)

    def suspend_now(self, place: Place) -> None:
        """Go to the shell; ``fg`` comes back."""
        self.action_suspend_process()

    def toggle_utc(self, place: Place) -> None:
        """Tell moments in UTC, or in local time again."""
        utc = Clock()
        self.clock = Clock(None) if self.clock == utc else utc
        self.say("Times are UTC." if self.clock == utc else "Times are local.")

    def leave(self, place: Place) -> None:
        """End the console; flows go on. A ``q`` among other keys is pasted text."""
        at, alone = self._key_at, self._key_gap >= PASTED_S

        def decide() -> None:
            if alone and self._key_at == at:
                self.exit(0)
            else:
                self.say("That q came with other keys, as pasted text does.")

        if self.is_headless:
            self.exit(0)
        else:
            self.set_timer(4 * PASTED_S, decide)

    def open_help(self, place: Place) -> None:
        """Show the keys of a place."""
        from heaveto_tui.screens.help import Help

        self.push_screen(Help(self, place))

    def open_palette(self, place: Place) -> None:
        """Ask for any action, run or operation."""
        from heaveto_tui.screens.palette import Palette

        palette = Palette(self, place)

        def done(answer: str | None) -> None:
            found = palette.chosen
            if answer is None or found is None:
                return
            if found.kind == "action":
                place.action_act(str(found.key))
            elif found.kind == "run":
                self.choose_run(found.key)
                self.go("run")
            else:
                self.open_operation(str(found.key))

        self.push_screen(palette, done)

    def open_copy(self, place: Place) -> None:
        """Offer what can be copied."""
        from heaveto_tui.screens.dialogs import Choice

        run = place.run
        if run is None:
            return
        short = short_id(run.session_id or run.run_id)
        options = [
            ("short", "short id", short),
            ("session", "session id", run.session_id),
            ("run", "run id", run.run_id),
            ("show", "command", f"heaveto show {short}"),
        ]
        look = self.painter.look
        shown = [(key, word, look.plain(text)) for key, word, text in options]
        values = {key: text for key, _, text in options}

        def done(key: str | None) -> None:
            if key is not None:
                self.copy_to_clipboard(values[key])
                self.say(f"Copied: {values[key]}")

        self.push_screen(Choice(self, title="Copy", options=shown), done)

    def action_hint(self) -> None:
        """Say how to leave, for those who press Ctrl-C."""
        self.say("q leaves; your flows keep running.")

    # --- faults

    def _handle_exception(self, error: Exception) -> None:
        """Write a defect to a log without values of runs, and end with 70."""
        from heaveto.cli.defects import write_report

        super_exception = self._exception
        if super_exception is None:
            self._exception = error
            self._exception_event.set()
        where = write_report(error)
        kind = type(error).__name__
        self.defect = f"heaveto: internal error ({kind}); " + (
            f"the report is {where}" if where else "no report could be written"
        )
        self._return_code = 70
        self._close_messages_no_wait()

    defect: str | None = None
    """What to print after the terminal is restored, when something was defective."""


STALE_S = 10.0


def _make_place(name: str, app: HeavetoApp) -> Place:
    """Import and make a place."""
    if name == "run":
        from heaveto_tui.screens.run import RunScreen

        return RunScreen(app)
    if name == "operation":
        from heaveto_tui.screens.operation import OperationScreen

        return OperationScreen(app)
    if name == "checkpoint":
        from heaveto_tui.screens.checkpoint import CheckpointScreen

        return CheckpointScreen(app)
    if name == "controls":
        from heaveto_tui.screens.controls import ControlsScreen

        return ControlsScreen(app)
    return RunsScreen(app)


PERFORM: dict[str, Callable[[HeavetoApp, Place], None]] = {
    "go.runs": lambda app, place: app.go("runs"),
    "go.run": lambda app, place: app.go("run"),
    "go.checkpoint": lambda app, place: app.go("checkpoint"),
    "go.controls": lambda app, place: app.go("controls"),
    "go.help": HeavetoApp.open_help,
    "nav.palette": HeavetoApp.open_palette,
    "nav.next_problem": lambda app, place: app.next_problem(1),
    "nav.prev_problem": lambda app, place: app.next_problem(-1),
    "app.leave": HeavetoApp.leave,
    "app.suspend": HeavetoApp.suspend_now,
    "app.utc": HeavetoApp.toggle_utc,
    "copy.menu": HeavetoApp.open_copy,
}


def run_console(options: ConsoleOptions) -> int:
    """Run the console for a command line; see :func:`heaveto_tui.launch.launch`."""
    from heaveto_tui.launch import launch

    return launch(options)
