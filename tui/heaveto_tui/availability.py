"""Whether an action works now, and in words why it does not.

An action that cannot work stays visible in round brackets; pressing its key prints the
sentence from here. The engine's own admission stays the judge: what passes here can
still be refused by :mod:`heaveto.controls`, and that refusal is shown as it comes.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from heaveto.model import OperationStatus, RunState, RunStatus
from heaveto.text import duration
from heaveto_tui.presentation import control_word, is_live, is_over, run_face

if TYPE_CHECKING:
    from collections.abc import Callable

    from heaveto.observe.snapshot import ControlView, RunDetail, RunSummary

__all__ = ["CHECKS", "STALE_AFTER", "Situation", "why_off"]

STALE_AFTER = 10.0
"""Seconds without an answer from a home after which steering by it is off."""

_AHEAD = (
    OperationStatus.PAUSED,
    OperationStatus.QUEUED,
    OperationStatus.WAITING,
    OperationStatus.UNKNOWN,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What decides whether an action works.

    Attributes:
        place: Where the operator is.
        run: The current run, or None.
        detail: The same run whole, as far as it has been read.
        control: The control under the cursor, in the ledger.
        successor: The run that took over from the current one.
        data_age: Seconds since its home last answered.
        problems: How many things need somebody.
        wide: Two panes stand beside each other.
        live_output: The output shown can still grow.
        now: Epoch seconds.
        view: How the operations are shown.
        folded_in: Operations that were added to the canvas since its layout.
        started: An operation has started.
    """

    place: str
    run: RunSummary | None = None
    detail: RunDetail | None = None
    control: ControlView | None = None
    successor: RunSummary | None = None
    data_age: float = 0.0
    problems: int = 0
    wide: bool = False
    live_output: bool = False
    now: float = 0.0
    view: str = ""
    folded_in: int = 0
    started: bool = True


def why_off(name: str, at: Situation) -> str | None:
    """Return why an action does not work here and now, or None when it does."""
    check = CHECKS.get(name)
    if check is None:
        return None
    return check(at)


def _no_run(at: Situation) -> str | None:
    return "No run is chosen. Move to one in Runs." if at.run is None else None


def _steerable(at: Situation) -> str | None:
    """Refuse what admission would refuse, in the operator's words."""
    run = at.run
    if run is None:
        return _no_run(at)
    if run.state is RunState.DEAD or (is_live(run) and run.alive is False):
        return "Not sent: its process is gone, nobody would take it."
    if is_over(run):
        ago = (
            ""
            if run.ended_at is None
            else f" {duration(max(0.0, at.now - run.ended_at))} ago"
        )
        return f"Not sent: the run ended as {run_face(run).word}{ago}."
    if at.data_age > STALE_AFTER:
        return (
            f"Not sent: the state is {duration(at.data_age)} old. Wait for the home "
            "to answer, or send with heaveto ctl."
        )
    return None


def _pause(at: Situation) -> str | None:
    off = _steerable(at)
    if off is None and at.run is not None:
        if at.run.state in {RunState.PAUSED, RunState.PAUSING}:
            return "It is paused already. r resumes it."
        if at.run.state in {RunState.STOPPING, RunState.DRAINING}:
            return "It is stopping; nothing new starts anyway."
    return off


def _resume(at: Situation) -> str | None:
    off = _steerable(at)
    if (
        off is None
        and at.run is not None
        and at.run.state not in {RunState.PAUSED, RunState.PAUSING, RunState.STALLED}
    ):
        return "It is not paused."
    return off


def _message(at: Situation) -> str | None:
    off = _steerable(at)
    if off is not None or at.run is None:
        return off
    if at.run.state in {RunState.STOPPING, RunState.DRAINING}:
        return "Not sent: it is stopping; nothing new starts that could read it."
    if at.detail is not None and at.detail.operations and not _something_ahead(at):
        return "Not sent: every operation has started, so nobody would read it."
    return None


def _something_ahead(at: Situation) -> bool:
    assert at.detail is not None
    return any(each.status in _AHEAD for each in at.detail.operations)


def _stop(at: Situation) -> str | None:
    off = _steerable(at)
    if off is None and at.run is not None:
        if at.run.source == "lionagi":
            short = at.run.session_id[:8]
            return (
                "Not sent: lionagi flows do not know stop. To end the process: "
                f"li kill {short}"
            )
        if at.run.state is RunState.STOPPING:
            return "It is stopping already."
    return off


def _end_now(at: Situation) -> str | None:
    run = at.run
    if run is None:
        return _no_run(at)
    if run.source != "heaveto":
        return "Only a heaveto run of this user on this host can be ended."
    if is_over(run) or run.alive is False:
        return "Its process has ended already."
    if run.alive is None:
        return "Its process cannot be checked from here, so it is not ended from here."
    return None


def _close(at: Situation) -> str | None:
    run = at.run
    if run is None:
        return _no_run(at)
    if run.source != "heaveto":
        return "lionagi keeps its own rows; heaveto does not end them."
    if run.state is not RunState.DEAD:
        word = run_face(run).word
        return f"Only the row of a dead run can be closed. This one is {word}."
    return None


def _resolve(at: Situation) -> str | None:
    off = _no_run(at)
    if off is not None or at.run is None:
        return off
    if at.control is None:
        return "No control is chosen."
    word = control_word(at.control, over=is_over(at.run))
    if at.control.klass != "claimed":
        return (
            "Only a control that was taken and not reported can be closed. "
            f"This one is {word}."
        )
    return None


def _again(at: Situation) -> str | None:
    if at.control is None or not at.control.lost:
        return "Only a lost message can be sent again."
    if at.successor is None or at.successor.status is not RunStatus.RUNNING:
        return "No recovered run is alive to read it."
    return None


def _problems(at: Situation) -> str | None:
    return "Nothing needs you." if at.problems == 0 else None


def _pane(at: Situation) -> str | None:
    return None if at.wide else "There is one pane at this width."


def _follow(at: Situation) -> str | None:
    return None if at.live_output else "It has ended; nothing will come."


def _timeline(at: Situation) -> str | None:
    return None if at.started else "Nothing has started yet."


def _scale(at: Situation) -> str | None:
    if at.view in ("around", "timeline"):
        return None
    return "Only around and the timeline have more and less."


def _fold(at: Situation) -> str | None:
    return None if at.view == "outline" else "Only the outline has branches to fold."


def _save(at: Situation) -> str | None:
    if at.detail is None or not at.detail.operations:
        return "No operation is known yet."
    return None


def _direction(at: Situation) -> str | None:
    return None if at.view == "canvas" else "Only the canvas has a direction."


def _tidy(at: Situation) -> str | None:
    if at.view != "canvas":
        return "Only the canvas is laid out."
    return None if at.folded_in else "It is tidy: nothing was added."


def _idle(at: Situation) -> str | None:
    return None if at.view == "timeline" else "Only the timeline folds idle time."


def _chain(at: Situation) -> str | None:
    if at.view in ("timeline", "table"):
        return None
    return "Only timeline and table show the longest chain alone."


def _sort(at: Situation) -> str | None:
    if at.view in ("", "table"):
        return None
    return "Only the table is sorted; T shows it."


def _store(at: Situation) -> str | None:
    return None if at.view else "This run keeps no generation store."


def _compare(at: Situation) -> str | None:
    if at.view == "store":
        return None
    return _store(at) or "Only generations are compared here; v shows them."


CHECKS: dict[str, Callable[[Situation], str | None]] = {
    "go.run": _no_run,
    "go.checkpoint": _no_run,
    "ck.store": _store,
    "ck.compare": _compare,
    "go.controls": _no_run,
    "copy.menu": _no_run,
    "ctl.pause": _pause,
    "ctl.resume": _resume,
    "ctl.message": _message,
    "ctl.stop": _stop,
    "run.end_now": _end_now,
    "run.close": _close,
    "ctl.resolve": _resolve,
    "ctl.again": _again,
    "nav.next_problem": _problems,
    "nav.prev_problem": _problems,
    "nav.pane": _pane,
    "log.follow": _follow,
    "list.sort": _sort,
    "view.timeline": _timeline,
    "view.less": _scale,
    "view.more": _scale,
    "view.unfold": _fold,
    "view.fold": _fold,
    "file.save": _save,
    "view.direction": _direction,
    "view.tidy": _tidy,
    "view.idle": _idle,
    "view.chain": _chain,
}
