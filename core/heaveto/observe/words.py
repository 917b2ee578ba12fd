"""What the words of a snapshot mean, and what to do about them.

One table for ``explain``, for warnings and for the console's help: every run state, every
operation status, every class of control, every reason, report and warning code that this
package can show. A test walks the enumerations and the source and finds each of them.

Warnings are made here too, so that a warning's advice is the table's. Nothing in them
quotes a prompt, a response or a context.
"""

from __future__ import annotations

from typing import NamedTuple

from heaveto.observe.snapshot import Notice

__all__ = ["EXPLANATIONS", "Explanation", "explain", "notice"]


class Explanation(NamedTuple):
    """A code in words: what it says and what can be done about it."""

    text: str
    what_to_do: str


def explain(code: str) -> Explanation | None:
    """Return the explanation of a state, status, class, reason or warning code.

    Args:
        code: As it stands in JSON; ``rejected:no-pending-ops`` and the like are found
            by their stable part.
    """
    found = EXPLANATIONS.get(code)
    if found is not None:
        return found
    for prefix in _PREFIXES:
        if code.startswith(prefix):
            return EXPLANATIONS[prefix]
    return None


def notice(code: str, text: str | None = None) -> Notice:
    """Return a warning: a code of the table, with a sentence of its own if given."""
    known = EXPLANATIONS[code]
    return Notice(code=code, text=text or known.text, what_to_do=known.what_to_do)


def _table(rows: str) -> dict[str, Explanation]:
    """Read ``code | text | what to do`` lines."""
    table = {}
    for row in filter(None, map(str.strip, rows.splitlines())):
        code, text, what_to_do = (part.strip() for part in row.split("|"))
        table[code] = Explanation(text, what_to_do)
    return table


# Written as prose, a line an entry: it is read and grows by whole lines.
# ruff: noqa: E501
_STATES = """
planning | The run has started and nothing of it has been announced yet. | Wait; controls are taken once operations start.
executing | The run goes on and its process is there, as far as it can be seen. | Nothing.
pausing | A pause is in place and something still runs; it will finish, and nothing new starts. | Wait for it, or resume.
paused | A pause is in place and nothing runs. A deadline keeps counting. | heaveto ctl resume RUN lets it go on; nothing else does.
stopping | A stop is in place: what runs will finish and is saved, then the run ends as cancelled. | Wait; what is saved stays in the checkpoint.
draining | The time limit has come: what runs will finish and is saved, nothing new starts. | Wait.
synthesizing | All operations have ended; the summary is being written. | Nothing.
stalled | The process is there and something runs, yet nothing was written for ten minutes. A long call looks the same. | Look at heaveto logs RUN; wait, or end it.
dead | The row says running, but the process is gone. Nothing of it goes on. | heaveto inspect RUN tells what was saved; heaveto close RUN ends the row.
unknown | Whether it goes on cannot be told from here. | Look from the host it runs on, or wait for a sign of it.
completed | It ended well. | Nothing.
completed_empty | It ended without any result. | Look at heaveto logs RUN.
failed | It ended with an error. | heaveto show RUN names the operation; heaveto logs RUN shows its output.
timed_out | The time limit came first; work that was left was held back. | heaveto inspect RUN tells what was saved.
aborted | It was interrupted from the keyboard. | heaveto inspect RUN tells what was saved.
cancelled | It was ended on purpose, by a stop or a signal. | heaveto inspect RUN tells what was saved.
running | It is at work. | Nothing.
"""
_STATUSES = """
waiting | Something it depends on has not ended. | Nothing; it starts by itself.
queued | It is ready and no slot is free; for a control: the row is stored and not taken yet. | Nothing; it is taken by itself.
skipped | A condition, a gate or a failed operation before it kept it from running. | Nothing; its reason is in heaveto show RUN.
escalated | It asked for help, and a second try stands in its place. | Nothing.
pending | It was asked for and held back by the time limit; it was never started. | It runs when the run is resumed.
lost | It had started when its run ended, and its end was not seen. What it did outside may have been done. | heaveto logs RUN shows how far it got.
unstarted | It never started, and will not in this run. | Nothing; it left no trace.
"""
_CONTROLS = """
claimed | The flow has taken the control and has not reported back. | Wait; when the flow is gone, heaveto ctl resolve CONTROL --as applied or abandoned closes it.
applied | The control took effect; a message waits for the next operation that starts. | Nothing.
rejected | The flow did not take the control; the rest of its result says why. | Nothing; send another when it can be taken.
abandoned | A person closed the claim as not done. It is not sent again. | Send it anew if it is still wanted.
rejected:no-pending-ops | Every operation had started already, so nobody would have read the message. | Nothing.
rejected:unsupported-verb: | The flow does not know this verb. | Nothing.
rejected:error: | The flow met an error while it applied the control. | Look at heaveto logs RUN; send it again.
rejected: | The run had ended before the flow looked at the control. | Resume the run and send it to the new one.
applying | The flow has taken the control and has not reported back. | Wait; see claimed.
applied: | A person closed the claim as done. | Nothing.
abandoned: | A person closed the claim as not done. | Send it anew if it is still wanted.
"""
_REASONS = """
process_gone | No process has the number that was recorded, and nothing holds the run's lock. | heaveto inspect RUN tells what was saved.
pid_reused | The recorded process number belongs to another program that started later. | heaveto inspect RUN tells what was saved.
rebooted | This machine was restarted after the run began. | heaveto inspect RUN tells what was saved.
lock_held | The run's lock is held: its process is there. | Nothing.
process_found | The recorded process is there, with the recorded start time. | Nothing.
other_host | It runs on another host, whose processes cannot be looked at from here. | Look from there; controls are taken if it lives.
no_permission | The process may not be looked at by this user. | Look as its user; controls are taken if it lives.
no_process_recorded | No process was recorded for this run. | Judge by its signals; heaveto close RUN ends the row once it is dead.
silent | Nothing was written for ten minutes though something runs. | Look at heaveto logs RUN; wait, or end it.
row_missing | The run directory has no row in the state database, so only what it holds itself is known. | heaveto doctor looks for the cause.
status_unknown | The row holds a status that this version does not know. | Look with the program that wrote it.
ended | The run has ended. | Nothing.
upstream_failed | An operation it depends on failed, and the flow skips what depends on a failure. | heaveto show RUN names the failed one.
upstream_gate_reject | A gate before it said no. | Nothing; the gate is named in heaveto show RUN.
upstream_skipped | What it depends on was skipped. | Nothing; the first reason is in heaveto show RUN.
upstream_cancelled | What it depends on was cancelled. | Start the flow again to run both.
condition_false | No condition on the way to it was true. | Nothing.
stop | A stop held it back. | Start the flow again to run it.
on_failure | Another operation failed, and the flow ends at the first failure. | heaveto show RUN names it.
"""
_WARNINGS = """
checkpoint_refused | Its checkpoint must not be used, so nothing of it is shown. | heaveto inspect RUN says where and why; put back a copy of both files from the same moment.
checkpoint_prefix | Its checkpoint is good up to a point; the end was left out. | heaveto inspect RUN tells what.
checkpoint_missing | It has no checkpoint, so it cannot be resumed. | Start the flow anew.
checkpoint_unread | Its checkpoint was not read for the list, to keep the list fast. | heaveto show RUN reads it.
persist_failed | Saving failed; what ended after that would not survive a crash. | Free space or rights where its directory lies; see heaveto doctor.
unsaved | Results were seen to end and are in no checkpoint. | heaveto logs RUN shows what they wrote.
open_ends | It ended, and operations have no end on record. They are shown as lost. | heaveto logs RUN shows what they wrote.
input_failed | Operations ran on the error of another one; they count as done, and what depends on them rests on it. | Take their results with care; start the flow again to make them anew.
stale_result | Operations were kept from before although one they depend on was made anew. | Take their results with care; start the flow again to make them anew.
never_landed | Controls were never taken: no process is left to take them. | Resume the run and send them to the new one.
not_reported | Controls were taken, then the run ended without a word about them. Whether they took effect cannot be told. | heaveto ctl resolve CONTROL --as applied or abandoned closes one by hand.
wedged_claim | A control was taken and not reported for more than half a minute. | Look at heaveto logs RUN; wait, or close it with heaveto ctl resolve.
control_waiting | A control was not taken for more than ten seconds. The flow is busy or stuck; it still counts when it looks. | Wait; look at heaveto logs RUN.
steer_lost | Messages were applied and are in no checkpoint: the run ended before the next save. | Send them again to a run that lives; nothing is sent by itself.
survivors | The run is dead and processes that it started are still there. | heaveto show RUN lists them by process number; end them by hand.
liveness_unknown | Whether its process is there cannot be told from here; a control may never be taken. | Look from its host and as its user.
run_dir_missing | Its run directory is not there, so nothing of it can be resumed or read. | Put it back, or end the row with heaveto close RUN.
run_json_damaged | Its run.json cannot be read. | heaveto doctor names the file; what the row says is shown.
row_damaged | A part of its row is no valid JSON and was left out. | heaveto doctor looks for the cause.
clock_odd | Its times do not fit together: a clock was set. Lengths of time are not to be trusted. | Nothing; order follows the sequence numbers.
signals_gap | The flow could not write its log for a while, so steps may be missing from the picture. Saved results are not affected. | Compare with heaveto inspect RUN.
verdict_differs | What the run says it came to and what became of its operations differ. | heaveto show RUN names the operations; the reason is in the text.
li_refuses | A resume by lionagi will be refused: the run spawned, and lionagi gives planned operations new ids on a resume, so a spawn's parent is not found. Its message names the wrong cause. | heaveto resume RUN --dry-run tells the rest; start the flow anew. The results so far are in heaveto logs RUN.
persistence_off | Saving was switched off for this run, so nothing of it survives and it cannot be resumed. | Let the flow end; heaveto doctor looks for the cause.
runs_twice | It was resumed while its process is there: what is left runs twice. | End one of the two: li kill RUN ends its process.
terminal_write_lost | It ended and could not write that into its row, which says running for ever. | li kill ends the row.
spawn_dropped | Spawns were refused, as a rule because the limit of operations was reached; the run does not count that as a failure. | Plan them, or start the flow with a higher limit.
spawn_ignored | A spawned operation asked for another one, and lionagi ignored it without a word. | Plan it as an operation of its own.
resume_attempts | Resumes of it were refused or only tried; each left a session that did nothing. | heaveto ls --all lists them.
did_nothing | A refused resume, or a dry run of one: no operation ran. | Nothing; heaveto ls hides it without --all.
mirrored | Another program runs it, or ran it; lionagi only keeps a copy. It takes no controls. | Look with the program that runs it.
foreign_owner | Another user owns its files, or others may write to them; it can be looked at but not resumed. | Correct owner and mode of the home and the run directory.
"""
_HOMES = """
home_unusable | The folder cannot be used as a home. | heaveto doctor looks for the cause.
home_missing | The home is not there now; what was last read of it is shown. | Put it back; it is looked for all the time.
db_missing | The home has no state database; only run directories are shown. | heaveto run makes one.
db_elsewhere | lionagi keeps the state of this home in a server (LIONAGI_STATE_DB_URL), which heaveto does not read; only run directories are shown, and nothing can be steered. | Use li monitor; resume --dry-run and inspect work on the run directories.
db_busy | The state database is locked by another program; what was last read is shown. | Wait; heaveto doctor looks for the cause.
db_newer | The state database was written by a newer heaveto. | Use that heaveto.
db_corrupt | The state database is damaged or is none. | Put back a copy; checkpoints in the run directories are not affected.
db_readonly | There is no permission to read the state database. | Correct owner and mode of the home.
db_full | The disk is full. | Free space.
db_error | The state database cannot be read. | heaveto doctor looks for the cause.
schema_newer | The home was written by a newer lionagi; what is new in it is not shown. | Use a newer heaveto; controls may not be taken.
schema_partial | The home was written by an older lionagi, and less of its runs can be told. | Nothing; lionagi brings its database up to date when it runs.
polling | This file system gives no notice of changes, so files are looked at again and again. | Nothing; changes show within two seconds.
watch_limited | The system's limit of file watches is reached, so files are looked at again and again. | Raise fs.inotify.max_user_watches, or nothing.
source_unsupported | This kind of home cannot be read by this version. | Use the program that wrote it.
"""
_REPORTS = """
clean | The checkpoint is whole. | Nothing.
recovered_prefix | The checkpoint is good up to a point; the rest was left out. | heaveto inspect RUN tells what.
refused | It must not be used; for a control: it was not taken. | The code beside it says why.
torn_tail | The last write did not finish; all that was confirmed is there. | Nothing; what was confirmed is used.
stale_generation | Records belong to an older base; they are in the base already and are left out. | Nothing.
base_missing | There is no checkpoint.json. | Put back a copy of both files, or start the flow anew.
base_unreadable | checkpoint.json cannot be read. | Correct the access and look again.
base_malformed | checkpoint.json is not valid JSON: it was cut or edited. | Put back a copy of both files, or start the flow anew.
base_duplicate_member | A name stands twice in checkpoint.json; which one counts cannot be known. | Put back a copy of both files.
base_nonfinite_number | A number in checkpoint.json is not a number. | Put back a copy of both files.
base_invalid_field | A part of checkpoint.json is missing or of the wrong kind. | Put back a copy of both files, or use the heaveto that wrote it.
version_ambiguous | checkpoint.json names its version twice. | Put back a copy of both files.
version_unsupported | The checkpoint has a version that this heaveto does not know. | Use the heaveto that wrote it.
splice_unguarded | A second try is recorded without the ids that it needs; its place cannot be rebuilt for certain. | Start the flow anew.
journal_missing | The journal is not there; without it the base alone is not the truth. | Put back a copy of both files.
journal_unreadable | The journal cannot be read. | Correct the access and look again.
record_malformed | A finished line of the journal is no record: it was edited or the disk erred. | Put back a copy of both files.
record_duplicate_member | A name stands twice in a record; which one counts cannot be known. | Put back a copy of both files.
record_nonfinite_number | A number in a record is not a number. | Put back a copy of both files.
record_unsupported_version | A record was written by another version; base and journal do not belong together. | Put back a copy of both files.
record_unknown_kind | A record is of a kind that this heaveto does not know; to skip it could lose a result. | Use the heaveto that wrote it.
record_unknown_member | A record holds a part that this heaveto does not know; to skip it could lose a result. | Use the heaveto that wrote it.
record_invalid_field | A part of a record is missing or of the wrong kind. | Put back a copy of both files.
record_invalid_entry | The result in a record is not complete. | Put back a copy of both files.
sequence_invalid | The number of a record is no valid number. | Put back a copy of both files.
sequence_gap | A record is missing, so nothing after it can be trusted. | Put back a copy of both files, or start the flow anew.
sequence_duplicate | A number stands twice in the journal; which record counts cannot be known. | Put back a copy of both files.
patch_invalid | A change of the shared context is not well formed. | Put back a copy of both files.
patch_conflict | A change of the shared context does not fit what was there. | Put back a copy of both files.
incoherent_unit | The two files kept changing while they were read. | Look again; if nothing writes, put back a copy of both files.
"""
_ERRORS = """
exit_nonzero | The command ended with another code than 0. | heaveto logs RUN OPERATION shows what it wrote.
timeout | The operation took longer than its worker allows. | Give the worker more time, or the operation less to do.
output_invalid | What the operation gave back is not what its worker promises. | heaveto logs RUN OPERATION shows it.
output_limit | The operation wrote more than its worker allows. | Raise output_limit, or write to a file.
context_invalid | The context that the operation gave back cannot be merged. | Correct what the worker writes.
not_started | The command could not be started. | Look whether it is there and may be run.
worker_error | The worker failed. | heaveto logs RUN OPERATION shows what it wrote.
"""

_ENDS = """
run.started | The run was started. | Nothing.
run.started.ok | The run was started. | Nothing.
run.completed | Everything was done. | Nothing.
run.completed.ok | Everything was done. | Nothing.
run.completed.skipped | Everything was done or skipped for a reason. | heaveto show RUN names the reasons.
run.completed.gate_rejected | A gate said no, so what depends on it was skipped. | heaveto show RUN names the gate.
run.completed.spawn_refused | A spawn was refused, and everything else was done. | heaveto show RUN names it.
run.failed.operation | An operation failed and no completed retry took its place. | heaveto show RUN names it; heaveto logs RUN shows its output.
run.failed.exception | An operation failed, or the flow itself did. | heaveto show RUN names it.
run.failed.missing_artifact | Every operation finished, but a required file is not there. | heaveto show RUN names the operation.
run.failed.artifact_write | A result could not be written as a file. | Free space or rights where the artifacts lie.
run.failed.escalated | An operation asked for help; lionagi ends such a run as failed although the second try worked. | heaveto show RUN tells what the second try came to.
run.failed.checkpoint | The checkpoint could not be written, so the run ended. | Free space or rights where the run directory lies; see heaveto doctor.
run.failed.internal | The program itself failed. | heaveto logs RUN shows what was printed; report it.
run.failed.process_gone | Its process was gone, and a person ended its row. | heaveto inspect RUN tells what was saved.
run.timed_out.deadline | The time limit came first; work that was left was held back. | heaveto inspect RUN tells what was saved.
run.cancelled.stop | A stop ended it. | heaveto inspect RUN tells what was saved.
run.cancelled.withheld | It ended before all of its work was begun. | heaveto inspect RUN tells what was saved.
run.cancelled.sigterm | A signal asked its process to end. | heaveto inspect RUN tells what was saved.
run.cancelled.sighup | The terminal of its process was closed. | heaveto inspect RUN tells what was saved; --detach keeps the next one going.
run.cancelled.task | The program that ran the flow cancelled it. | heaveto inspect RUN tells what was saved.
run.cancelled.system | It was cancelled from outside the flow; lionagi records an interrupt from the keyboard so, too. | heaveto inspect RUN tells what was saved.
run.aborted.sigint | It was interrupted from the keyboard. | heaveto inspect RUN tells what was saved.
session.phantom.process_dead | Its process was found gone by lionagi, which ended its row. | heaveto inspect RUN tells what was saved.
"""

EXPLANATIONS = _table(
    _STATES
    + _STATUSES
    + _CONTROLS
    + _REASONS
    + _ENDS
    + _WARNINGS
    + _HOMES
    + _REPORTS
    + _ERRORS
)
"""Every code that this package shows, in words."""

_PREFIXES = tuple(
    sorted((code for code in EXPLANATIONS if code.endswith(":")), key=len, reverse=True)
)
