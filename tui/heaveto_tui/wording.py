"""Sentences about a run and about what became of a control.

What happened; why; what to do. Short, in the operator's words, without blame; nothing
of a response or an error goes into a sentence unless it is the thing asked for. Pure.
Strings from runs inside a sentence are not yet inert: whoever draws it sanitises it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heaveto.model import OperationStatus as Status
from heaveto.model import RunState
from heaveto.text import duration, short_id
from heaveto_tui.effects import plural
from heaveto_tui.lines import DASH
from heaveto_tui.presentation import (
    SOURCE_WORDS,
    Clock,
    control_word,
    is_live,
    is_over,
    run_face,
    whole_duration,
)

if TYPE_CHECKING:
    from heaveto.observe.snapshot import (
        ControlView,
        OperationView,
        RunDetail,
        RunSummary,
    )

__all__ = [
    "control_sentence",
    "delivery_words",
    "failure_words",
    "list_when",
    "reason_sentence",
    "run_sentence",
    "state_line",
    "summary_of_controls",
]


_NAME = 64
"""Characters of a name in a sentence: behind it stands what happened."""


def list_when(run: RunSummary, now: float) -> str:
    """Return the time column of the list: how long it runs, or since when it ended."""
    if is_live(run):
        if run.started_at is None:
            return DASH
        return whole_duration(now - run.started_at)
    if run.state is RunState.DEAD:
        last = run.last_sign_at
        return DASH if last is None else f"silent {ago(now - last)}"
    if run.ended_at is None:
        return DASH
    return f"{ago(now - run.ended_at)} ago"


def ago(seconds: float) -> str:
    """Return an age in one unit: a list of them changes as rarely as it can."""
    whole = int(max(0.0, seconds))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if whole >= size:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def state_line(run: RunSummary, now: float, checked_at: float | None = None) -> str:
    """Return ``word since (source age, process)``: no state without its source.

    Args:
        run: The run.
        now: Epoch seconds.
        checked_at: When its home was last read; None is when it was last told.
    """
    word = run_face(run).word
    span = ""
    if is_live(run) and run.started_at is not None:
        span = f" {whole_duration(now - run.started_at)}"
    elif run.started_at is not None and run.ended_at is not None:
        span = f" {duration(run.ended_at - run.started_at)}"
    source = SOURCE_WORDS.get(run.status_source, run.status_source)
    age = ago(now - max(run.observed_at, checked_at or 0.0))
    alive = {
        True: "process alive",
        False: "process ended",
        None: "process not checked",
    }[run.alive]
    sign = ""
    if run.state in {RunState.DEAD, RunState.STALLED} and run.last_sign_at is not None:
        sign = f", last sign of life {ago(now - run.last_sign_at)} ago"
    return f"{word}{span} ({source} {age}, {alive}{sign})"


def failure_words(operation: OperationView) -> str:
    """Return how an operation failed, in one line."""
    text = (operation.error_text or "").strip()
    first = text.splitlines()[0] if text else ""
    code = operation.error_code or "failed"
    return first or code.replace("_", " ")


def reason_sentence(run: RunSummary, detail: RunDetail | None, now: float) -> str:
    """Return the sentence under a row that needs somebody.

    Args:
        run: The run.
        detail: The same run whole, when it has been read: then the operation that
            explains the state is named.
        now: Epoch seconds.
    """
    parts = [_cause(run, detail, now)]
    parts.extend(
        warning.text for warning in run.warnings if warning.text not in parts[0]
    )
    return " · ".join(part for part in parts if part)


def _cause(run: RunSummary, detail: RunDetail | None, now: float) -> str:
    """Return the first half of the sentence: what is wrong."""
    failed = _failed(detail)
    if run.state is RunState.DEAD:
        return "its process is gone, the row still says running"
    if failed:
        return _failure(failed, run, detail)
    match run.state:
        case RunState.FAILED:
            return _failed_without_operation(run)
        case RunState.TIMED_OUT:
            return "the time limit came first"
        case RunState.PAUSED:
            return _pause_cause(run, detail, now)
        case RunState.PAUSING:
            return _pausing_cause(run)
        case RunState.STALLED:
            return "the process is alive but has written nothing for 10 minutes"
        case RunState.UNKNOWN:
            return "cannot be told from here whether it is alive"
        case RunState.COMPLETED_EMPTY:
            return "it ended without any result"
        case RunState.ABORTED:
            return "was interrupted from the keyboard"
        case _:
            if run.nodes.get("failed"):
                return f"{plural(run.nodes['failed'], 'operation')} failed"
            return ""


def _failed(detail: RunDetail | None) -> list[OperationView]:
    if detail is None:
        return []
    return [each for each in detail.operations if each.status is Status.FAILED]


def _failure(
    failed: list[OperationView], run: RunSummary, detail: RunDetail | None
) -> str:
    """Name the failed operation, its error, and what it meant for the others."""
    assert detail is not None
    first = failed[0]
    name = first.name if len(first.name) <= _NAME else f"{first.name[:_NAME]}\u2026"
    sentence = f"{name} failed: {failure_words(first)}"
    if len(failed) > 1:
        sentence = f"{sentence} (and {len(failed) - 1} more)"
    stale = sum(1 for each in detail.operations if each.stale)
    skipped = sum(1 for each in detail.operations if each.status is Status.SKIPPED)
    if stale:
        sentence += f" · {plural(stale, 'operation')} ran on its error"
    elif skipped:
        sentence += f" · {plural(skipped, 'operation')} skipped after it"
    return sentence


def _failed_without_operation(run: RunSummary) -> str:
    if run.nodes.get("failed"):
        return f"{plural(run.nodes['failed'], 'operation')} failed"
    reason = (run.reason_code or "").replace("_", " ")
    return f"the run ended as failed: {reason}" if reason else "the run ended as failed"


def _pause_cause(run: RunSummary, detail: RunDetail | None, now: float) -> str:
    """Tell who waits at the pause."""
    if detail is not None:
        held = [each for each in detail.operations if each.status is Status.PAUSED]
        if held:
            who = held[0].name if len(held) == 1 else f"{len(held)} operations"
            verb = "waits" if len(held) == 1 else "wait"
            return f"{who} {verb} at the pause · nothing else is running"
    if run.deadline_at is not None:
        left = duration(run.deadline_at - now)
        return f"waits for your resume · the time limit keeps counting, {left} left"
    return "waits for your resume"


def _pausing_cause(run: RunSummary) -> str:
    running = run.nodes.get("running", 0)
    verb = "finishes" if running == 1 else "finish"
    return f"{plural(running, 'operation')} still {verb}, then it holds"


def run_sentence(run: RunSummary, detail: RunDetail | None, now: float) -> list[str]:
    """Return the state of a run in whole sentences, for preview and detail."""
    running = run.nodes.get("running", 0)
    match run.state:
        case RunState.DEAD:
            short = short_id(run.session_id or run.run_id)
            way = (
                f"What it saved can be resumed: heaveto resume {short}. C ends its row."
                if run.source == "heaveto"
                else f"What it saved can be resumed: li o flow --resume {short}."
            )
            return ["Its process is gone; the row still says running.", way]
        case RunState.PAUSING:
            return [
                f"The pause is in place. {plural(running, 'operation')} still "
                f"{'runs' if running == 1 else 'run'} and will finish; "
                "nothing new starts."
            ]
        case RunState.PAUSED:
            return [
                f"{_sentence_case(_pause_cause(run, detail, now))}.",
                "Only your resume starts it again.",
            ]
        case RunState.STOPPING | RunState.DRAINING:
            why = "The time limit came. " if run.state is RunState.DRAINING else ""
            return [
                f"{why}Stopping. {plural(running, 'operation')} "
                f"{'finishes' if running == 1 else 'finish'}, then the run ends."
            ]
        case RunState.STALLED:
            return [
                "The process is alive but has written nothing for 10 minutes.",
                "A long call looks the same. See its output, or wait.",
            ]
        case RunState.UNKNOWN:
            return ["Whether it is alive cannot be told from here."]
        case _:
            return [_plain_state(run, detail, now) + "."]


def _plain_state(run: RunSummary, detail: RunDetail | None, now: float) -> str:
    if run.superseded_by is not None and not is_live(run):
        return "A later run took over"
    if is_live(run):
        running = run.nodes.get("running", 0)
        if not running:
            return "Nothing runs at this moment"
        verb = "runs" if running == 1 else "run"
        return f"{plural(running, 'operation')} {verb}"
    if _failed(detail):
        return _cause(run, detail, now)  # it begins with a name, which stays as it is
    cause = _cause(run, detail, now)
    return _sentence_case(cause or f"it ended as {run_face(run).word}")


def _sentence_case(text: str) -> str:
    return text[:1].upper() + text[1:]


# --- controls


def control_sentence(
    control: ControlView, detail: RunDetail, now: float, clock: Clock
) -> str:
    """Return in one or two sentences what became of a control."""
    over = is_over(detail.run)
    word = control_word(control, over=over)
    writer = _CONTROL_SENTENCES.get(word, _unknown)
    return writer(control, detail, now, clock)


def _queued(control: ControlView, detail: RunDetail, now: float, _: Clock) -> str:
    age = max(0.0, now - control.created_at)
    if age > 10:
        return (
            f"Queued {duration(age)} ago and not taken. The flow is busy or stuck; "
            "it still counts when it looks."
        )
    return f"Queued {ago(age)} ago. The flow looks every 2s at the latest."


def _taken(control: ControlView, detail: RunDetail, now: float, clock: Clock) -> str:
    at = control.claimed_at
    when = "" if at is None else f" at {clock.moment(at, now)}"
    return f"Taken{when}. If the flow dies now, nobody will know whether it was read."


def _not_reported(
    control: ControlView, detail: RunDetail, now: float, clock: Clock
) -> str:
    at = control.claimed_at
    when = "" if at is None else f" at {clock.moment(at, now)}"
    return (
        f"Taken{when}, then the process ended. Whether it was read cannot be told. "
        "C closes it by hand."
    )


def _applied(control: ControlView, detail: RunDetail, now: float, _: Clock) -> str:
    if control.verb == "message":
        return (
            "Applied. It waits for the next operation to start. Nobody has read it yet."
        )
    took = ""
    if control.applied_at is not None:
        took = f" {duration(control.applied_at - control.created_at)} after it was sent"
    return f"Applied{took}."


def _read(control: ControlView, detail: RunDetail, now: float, _: Clock) -> str:
    reader = next(
        (each for each in detail.operations if each.id == control.rendered_into), None
    )
    name = reader.name if reader is not None else (control.rendered_into or "")[:8]
    if reader is not None and reader.persisted:
        return f"Read by {name}, and saved."
    return f"Read by {name}. Not saved yet."


def _refused(control: ControlView, detail: RunDetail, now: float, _: Clock) -> str:
    result = control.result or ""
    if result.startswith("rejected:no-pending-ops"):
        return "Refused: every operation had started already, so nobody would read it."
    if result.startswith("rejected:unsupported-verb"):
        return f"Refused: this flow does not know {control.verb}."
    if result.startswith("rejected:error:"):
        said = result.removeprefix("rejected:error:")
        return f"Refused: the flow hit an error while applying it. {said}"
    return f"Refused: {result.removeprefix('rejected:')}"


def _lost(control: ControlView, detail: RunDetail, now: float, clock: Clock) -> str:
    at = control.applied_at
    when = "" if at is None else f"applied at {clock.moment(at, now)}, and "
    return (
        f"Lost: {when}the process ended before the next save. "
        "A sends it again to a run that took over."
    )


def _closed(control: ControlView, detail: RunDetail, now: float, _: Clock) -> str:
    who = control.by or "a person"
    kept = "applied" if (control.result or "").startswith("applied") else "abandoned"
    again = "" if kept == "applied" else " It is not sent again."
    return f"Closed by {who} as {kept}.{again}"


_CONTROL_SENTENCES = {
    "queued": _queued,
    "taken": _taken,
    "not reported": _not_reported,
    "applied": _applied,
    "read": _read,
    "refused": _refused,
    "lost": _lost,
    "closed by hand": _closed,
    "too late": lambda *_: "Too late: the run had ended before the flow looked.",
    "never landed": lambda *_: "Never landed: no process is left to take it.",
}


def _unknown(control: ControlView, *_: object) -> str:
    return f"Result not known to this version: {control.result}"


def delivery_words(control: ControlView, detail: RunDetail) -> str | None:
    """Return how far a control came, for the last word; None while it is on its way.

    What it means for the operations stands behind it.
    """
    word = control_word(control, over=is_over(detail.run))
    if word in {"queued", "taken"}:
        return None
    took = ""
    if control.applied_at is not None:
        took = f" after {_shortly(control.applied_at - control.created_at)}"
    head = f"{control.verb} {short_id(control.id)}"
    running = sum(1 for each in detail.operations if each.status is Status.RUNNING)
    if word == "read":
        reader = next(
            (
                each.name
                for each in detail.operations
                if each.id == control.rendered_into
            ),
            short_id(control.rendered_into or ""),
        )
        return f"{head} read by {reader}."
    if word == "applied" and control.verb == "message":
        return f"{head} applied{took}. Nobody has read it yet."
    if word == "applied" and control.verb in {"pause", "stop"} and running:
        verb = "is" if running == 1 else "are"
        count = plural(running, "operation")
        return f"{head} applied{took}. {count} {verb} still running."
    if word in {"refused", "too late"}:
        return f"{head} {word}. 5 shows why."
    return f"{head} {word}{took}."


def _shortly(seconds: float) -> str:
    """Return a length that is never rounded to zero."""
    return duration(max(0.1, seconds))


def summary_of_controls(detail: RunDetail) -> str:
    """Return how many of each: ``6 sent: 2 read, 2 applied, 1 refused``."""
    over = is_over(detail.run)
    tally: dict[str, int] = {}
    for control in detail.controls:
        word = control_word(control, over=over)
        tally[word] = tally.get(word, 0) + 1
    if not tally:
        return "Nothing was sent to this run."
    parts = ", ".join(f"{count} {word}" for word, count in tally.items())
    return f"{len(detail.controls)} sent: {parts}."
