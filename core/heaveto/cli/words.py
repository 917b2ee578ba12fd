"""The words for people: what a status is called, what a code means, what to do.

JSON keeps the words of the contract; text for people uses these (the operator's words:
*done*, *cut off*, *held back*). Pure; safe in any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heaveto.model import OperationStatus, RunState

if TYPE_CHECKING:
    from heaveto.observe.words import Explanation

__all__ = [
    "REFUSALS",
    "control_word",
    "explain",
    "operation_mark",
    "operation_word",
    "run_word",
]

_RUN_WORDS = {
    RunState.EXECUTING: "running",
    RunState.COMPLETED: "done",
    RunState.COMPLETED_EMPTY: "done, empty",
    RunState.TIMED_OUT: "timed out",
    RunState.STALLED: "silent",
}

_OPERATION_WORDS = {
    OperationStatus.WAITING: "queued",
    OperationStatus.COMPLETED: "done",
    OperationStatus.PENDING: "deferred",
    OperationStatus.LOST: "cut off",
    OperationStatus.UNSTARTED: "not started",
}


def run_word(state: RunState | str, *, superseded: bool = False) -> str:
    """Return what people call the state of a run.

    Args:
        state: A state of PRODUCT 3; an unknown word is returned as it is.
        superseded: Another run took over.
    """
    if superseded and state == RunState.DEAD:
        return "superseded"
    try:
        known = RunState(state)
    except ValueError:
        return state
    return _RUN_WORDS.get(known, known.value)


def operation_word(status: OperationStatus | str) -> str:
    """Return what people call the status of an operation."""
    try:
        known = OperationStatus(status)
    except ValueError:
        return status
    return _OPERATION_WORDS.get(known, known.value)


_MARKS = {
    OperationStatus.RUNNING: "◐%",
    OperationStatus.PAUSED: "‖=",
    OperationStatus.COMPLETED: "●#",
    OperationStatus.FAILED: "✗X",
    OperationStatus.SKIPPED: "\u2013-",
    OperationStatus.CANCELLED: "⊘C",
    OperationStatus.ESCALATED: "▲^",
    OperationStatus.PENDING: "◊:",
    OperationStatus.LOST: "//",
    OperationStatus.UNKNOWN: "??",
}


def operation_mark(status: OperationStatus | str, *, ascii_only: bool = False) -> str:
    """Return the one sign that stands for a status in a picture."""
    try:
        pair = _MARKS.get(OperationStatus(status), "○.")
    except ValueError:
        pair = "??"
    return pair[1] if ascii_only else pair[0]


def control_word(
    *, klass: str, result: str | None, run_over: bool, rendered: bool, lost: bool
) -> str:
    """Return what people call what a control came to.

    Args:
        klass: Its class of PRODUCT 3.
        result: What is stored in its row.
        run_over: The run has ended or its process is gone.
        rendered: Its text stands in an operation's instruction.
        lost: It was applied and is in no acknowledged checkpoint.
    """
    stored = result or ""
    if lost:
        return "lost"
    if ": resolved by " in stored:
        return "closed by hand"
    if klass == "claimed":
        return "not reported" if run_over else "taken"
    if klass == "rejected":
        return "too late" if stored.startswith("rejected: ") else "refused"
    if klass == "applied" and rendered:
        return "read"
    return {"never_landed": "never landed"}.get(klass, klass)


def explain(code: str) -> Explanation | None:
    """Return what a state, status, error, warning or reason code means."""
    from heaveto.observe.words import Explanation
    from heaveto.observe.words import explain as explain_shown

    if code in REFUSALS:
        return Explanation(*REFUSALS[code])
    return explain_shown(code)


def _table(rows: str) -> dict[str, tuple[str, str]]:
    """Read ``code | text | what to do`` lines."""
    table = {}
    for row in filter(None, map(str.strip, rows.splitlines())):
        code, text, what_to_do = (part.strip() for part in row.split("|"))
        table[code] = (text, what_to_do)
    return table


# Written as prose, a line an entry: it is read and grows by whole lines.
# ruff: noqa: E501
REFUSALS = _table("""
usage | The command line is not one that heaveto knows. | heaveto --help, or --help after the command.
not_available | This version does not have it yet. |
no_console | The console is not installed. | The plain commands work; install heaveto with Textual for the console.
target_unknown | No run, session, invocation or play has that id or begins with it. | heaveto ls --all shows what is there.
target_ambiguous | Several things begin with that. | Give more characters of the id.
target_malformed | That cannot be an id. | heaveto ls shows ids.
locked | Another process holds it. | Wait until that process has ended.
run_live | The run is alive. | Stop it first, or wait.
run_missing | The run directory is gone. |
run_damaged | The run directory is not as heaveto leaves it. | heaveto doctor says more.
not_dead | The run is not dead, so its row is not ended by hand. | heaveto ctl stop ends a live run.
not_running | The run has ended; nothing was sent. |
dead_run | The run's process is gone, so nobody would take a control; nothing was sent. | heaveto close ends its row.
no_consumer | Runs of this kind take no controls; nothing was sent. |
poller_stopped | The run no longer looks for controls; nothing was sent. |
unsupported_kind | Runs of this kind do not take that verb; nothing was sent. |
text_too_long | The message is longer than 65,536 bytes; nothing was sent. | Send less, or put it into a file that the flow reads.
text_invalid | The message has a character that cannot be sent (NUL, or half of a pair); nothing was sent. |
unknown_control | No control that can be closed has that full id. | heaveto ctl status shows them.
not_claimed | Only a control that was taken and not reported can be closed by hand. | heaveto ctl status shows what it came to.
flow_invalid | The flow cannot be run as it is described. |
flow_file | The flow file has a mistake; nothing was created. | The message names file, line and member.
cycle | Operations wait for each other in a circle. | Take one of the dependencies out.
internal | heaveto has a defect. | The report that it names says where.
runner_failed | The runner ended before its run was registered. | The message holds its last words.
output | Standard output could not be written. |
bad_condition | A condition on a dependency cannot be asked. | Correct the flow.
bad_limit | A limit is no whole number of 0 or more. | Correct the flow or the option.
duplicate_id | Two operations have one id. | Correct the flow.
unknown_id | A dependency names an operation that is not there. | Correct the flow.
worker_unusable | A worker cannot be loaded; nothing was created. | Correct its call, or install what it imports.
config_invalid | The settings file is there and cannot be used, so nothing was started. | The message names file, line and setting.
home_remote | The home is on a network file system, where locks and logs do not hold. | Use a home on a local disk.
no_drawing | The drawing is not part of this command. | heaveto show --dag has it; python -m heaveto does not.
db_replaced | Another file has taken the place of the state database; what was written went into the old one. | Put back the file, or leave the run to its end and look at its run.json.
target_no_session | The invocation or play has no session behind it. | Name the session or the run.
unknown_session | The session is not there any more. | heaveto ls shows what is there.
not_ours | A row of lionagi is not heaveto's to end. | li kill ends the process and the row.
run_error | The run directory or the row does not allow it. |
run_exists | There is a run with this id already. | Start again.
run_name | What was given cannot be the name of a run or an operation. |
file_missing | A file or folder that was expected is not there. |
file_type | A name holds something else than a regular file or a real folder. |
file_identity | A name leads to another object than before. | Look who moves files there.
checkpoint_error | A checkpoint could not be used. | heaveto inspect says more.
persistence | A checkpoint could not be written. | Make room, or look at the run directory.
identity | The checkpoint's name leads to another file than the writer's own; nothing was written into it. | Look who moves files there.
busy | Another writer owns the checkpoint or the store. | Wait until it has ended.
closed | The writer was closed. |
cleanup | All is saved, and a former file could not be removed. | Remove the stale temporary file.
close | All is saved, and a file could not be closed. |
poisoned | The writer does not know what is on disk and stopped. | Look at the disk.
would_lose_outcomes | A checkpoint that is there holds outcomes which would be lost. | Use another folder.
value | A value cannot be written into a checkpoint. | The message names its place.
json | Text is not strict JSON. |
generation | The generation store refused. | heaveto generations PATH says more.
incompatible | The engine state was written in a schema that is not known here. | Use the program that wrote it.
pointer_dangling | The pointer of a generation store names a generation that is not there. | Choose one of those that are.
pointer_malformed | The pointer of a generation store cannot be read. | Write the name of a generation into it.
not_pending | The generation is not one that was begun. |
immutable | A committed generation is not changed. | Begin another one.
state_corrupt | A file of a generation is damaged. | Choose an older generation.
state_value | A value cannot be stored in a generation. |
superseded | A later begin took the place of this one. |
validator_refused | The check before a commit said no. |
committed_unsynced | The generation is committed and may not survive a loss of power. |
io | The system gave an error. |
resume_refused | The run was found and cannot be resumed; nothing was started. | heaveto resume RUN --dry-run tells every reason.
failed_entries | The checkpoint records failed operations, and a resume does not take their place by itself. | Resume with --retry-failed; what they did outside the flow may be done again.
spawn_check_1 | A spawned operation was recorded without its kind, so it cannot be rebuilt. | Start the flow anew.
spawn_check_2 | A spawned operation has a recorded status that cannot be replayed. | Start the flow anew.
spawn_check_3 | A spawned operation names a role and no spawn id, so it cannot be rebuilt. | Start the flow anew.
spawn_check_4 | A spawned operation would run again with rights other than those it was asked for with. | Start the flow anew.
spawn_check_5 | A spawned operation would run again where the user's settings are read, and it first ran where they are not. | Start the flow anew.
spawn_check_6 | A spawned operation names a parent that the resumed plan does not have, or whose outcome cannot be replayed. lionagi 0.36 gives planned operations new ids, so none of its runs that spawned passes this. | Start the flow anew; the results are in heaveto logs RUN.
empty_plan | The checkpoint holds no plan. | Start the flow anew.
no_checkpoint | The run has no checkpoint, so there is nothing to resume. | Start the flow anew.
signals_wait | The state database is busy; signals are kept and written later. | Nothing.
log_gap | What an operation printed could not be written whole. | Make room.
""")
"""Codes of refusals; what :mod:`heaveto.observe.words` explains is not repeated."""
