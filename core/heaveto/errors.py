"""Every error heaveto raises on purpose, grouped by the part that raises it.

An error carries a stable ``code`` (lower snake case, part of the public contract), a
sentence for a person, and fields for a program. No message and no field ever holds
a prompt, a response, a context value or a control's text; positions, counts and names
of members of the flow file are what tells the reader where to look.

``HeavetoError`` is the one base. A surface maps ``code`` to an exit status; nothing
else in the project decides by the words of a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "CheckpointBusyError",
    "CheckpointError",
    "CheckpointIdentityError",
    "CheckpointPersistenceError",
    "CheckpointRefused",
    "CheckpointValueError",
    "CheckpointVersionError",
    "ControlError",
    "FileIdentityError",
    "FileMissingError",
    "FileTypeError",
    "FlowError",
    "FlowFileError",
    "FlowResumeError",
    "ForeignOwnerError",
    "GenerationError",
    "HeavetoError",
    "HomeError",
    "IncompatibleEngineStateError",
    "LockHeldError",
    "OperationError",
    "PatchError",
    "RunError",
    "StateDBError",
    "TargetError",
    "UsageError",
    "told",
]


class HeavetoError(Exception):
    """The base of every error that heaveto raises on purpose.

    Attributes:
        code: A stable word for programs.
        message: One sentence for a person, without content from a run.
        candidates: Full ids the reader may have meant; empty when there are none.
    """

    default_code: ClassVar[str] = "error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        candidates: Sequence[str] = (),
    ) -> None:
        """Keep the sentence, its code and the candidates."""
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.candidates = tuple(candidates)

    def __str__(self) -> str:
        """Return the sentence alone."""
        return self.message


class UsageError(HeavetoError):
    """The command line asks for something that cannot be asked for."""

    default_code = "usage"


# --- files: raised by heaveto.files and mapped to their owners' errors above it


class FileMissingError(HeavetoError):
    """A name that was expected in a directory is not there."""

    default_code = "file_missing"


class FileTypeError(HeavetoError):
    """A name holds something else than a regular file or a real directory."""

    default_code = "file_type"


class FileIdentityError(HeavetoError):
    """A name no longer leads to the object that was opened or created."""

    default_code = "file_identity"


class LockHeldError(HeavetoError):
    """Another process holds the lock.

    Attributes:
        pid: The holder where the system tells it, else None.
    """

    default_code = "locked"

    def __init__(self, message: str, *, pid: int | None = None) -> None:
        """Keep the holder's pid, which may be unknown."""
        super().__init__(message)
        self.pid = pid


class ForeignOwnerError(HeavetoError):
    """Another user owns the path, or others may write to it (PRODUCT 6.9)."""

    default_code = "foreign_owner"


# --- homes, targets, the state database


class HomeError(HeavetoError):
    """A home cannot be used; surfaces end with status 78."""

    default_code = "home_unusable"


class TargetError(HeavetoError):
    """A target does not name exactly one run: unknown, ambiguous or malformed."""

    default_code = "target_unknown"


class StateDBError(HeavetoError):
    """The state database cannot be read or written.

    Codes: ``db_missing db_elsewhere db_busy db_newer db_corrupt db_readonly db_full
    db_error``.
    """

    default_code = "db_error"


class RunError(HeavetoError):
    """A run directory or its row does not allow what was asked.

    Codes: ``run_live run_missing run_damaged not_dead``.
    """

    default_code = "run_error"


class ControlError(HeavetoError):
    """A control was refused before a row was written, or could not be resolved.

    Codes: ``not_running dead_run no_consumer poller_stopped unsupported_kind
    text_too_long text_invalid unknown_control not_claimed``.
    """

    default_code = "refused"


# --- flows


class FlowError(HeavetoError):
    """A flow cannot be run as described: a cycle, an unknown id, a bad condition."""

    default_code = "flow_invalid"


class FlowFileError(FlowError):
    """A flow file holds a mistake.

    ``str()`` is ``file:line: member: text``; ``member`` is a dotted path.
    """

    default_code = "flow_file"

    def __init__(
        self, text: str, *, path: str, line: int | None = None, member: str = ""
    ) -> None:
        """Compose the sentence from where the mistake is and what it is."""
        where = path if line is None else f"{path}:{line}"
        super().__init__(": ".join(part for part in (where, member, text) if part))
        self.path = path
        self.line = line
        self.member = member
        self.text = text


class FlowResumeError(HeavetoError):
    """A run that was found cannot be resumed; nothing was started.

    Attributes:
        reasons: :class:`heaveto.resume.ResumeReason`, the decisive one first.
    """

    default_code = "resume_refused"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        reasons: Sequence[object] = (),
    ) -> None:
        """Keep every reason beside the sentence of the first."""
        super().__init__(message, code=code)
        self.reasons = tuple(reasons)


class OperationError(HeavetoError):
    """An operation ended with an error.

    Codes are those of PRODUCT 3: ``exit_nonzero timeout output_invalid output_limit
    context_invalid not_started worker_error cancelled``.
    """

    default_code = "worker_error"


# --- checkpoints (PRODUCT 4)


class CheckpointError(HeavetoError):
    """The base of what a checkpoint can refuse or fail at."""

    default_code = "checkpoint_error"


class CheckpointRefused(CheckpointError):
    """A checkpoint must not be used; nothing of it was applied to anything.

    Attributes:
        report: The content-free recovery report (FORMATS 5).
        prefix: The diagnostic state before the fatal record, or None. It is an object
            for inspection and is never resumed (SPEC F-50).
    """

    default_code = "checkpoint_refused"

    def __init__(
        self,
        message: str,
        *,
        report: object,
        prefix: Mapping[str, object] | None = None,
        code: str | None = None,
    ) -> None:
        """Keep the report and the diagnostic prefix beside the sentence."""
        super().__init__(message, code=code)
        self.report = report
        self.prefix = prefix


class CheckpointVersionError(CheckpointRefused):
    """The declared version is unknown, ambiguous or missing (SPEC F-38..F-40)."""

    default_code = "version_unsupported"


CheckpointValueReason = Literal[
    "non_finite", "key_collision", "bad_key", "serialization", "depth"
]


class CheckpointValueError(CheckpointError, ValueError):
    """A value cannot be captured; nothing was written and no sequence was used.

    Attributes:
        reason: Which rule it breaks.
        path: Where, as a JSON path such as ``$.out[1].h``. Member names in it come from
            the value and pass the sanitiser before they reach a terminal.
    """

    default_code = "value"

    def __init__(self, reason: CheckpointValueReason, path: str, text: str) -> None:
        """Name the rule and the place."""
        super().__init__(f"{path}: {text}", code=reason)
        self.reason: CheckpointValueReason = reason
        self.path = path


class PatchError(CheckpointError):
    """A patch of a flow context is refused; nothing of it was applied.

    Codes: ``patch_invalid`` (its shape, a pointer's syntax, the rule of the root) and
    ``patch_conflict`` (it does not apply to this context).

    Attributes:
        op_index: Which operation, from 0; None when the patch is no list.
    """

    default_code = "patch_invalid"

    def __init__(self, code: str, op_index: int | None) -> None:
        """Keep the position; nothing of the content."""
        super().__init__(f"patch refused: {code}, operation {op_index}", code=code)
        self.op_index = op_index


class CheckpointPersistenceError(CheckpointError):
    """An input or output error kept a transition from being acknowledged.

    Attributes:
        published: ``"no"`` when nothing of it can be on disk, ``"uncertain"`` when it
            may be; an uncertain writer stops until it has reconciled (SPEC E-44, E-45).
    """

    default_code = "persistence"

    def __init__(
        self,
        message: str,
        *,
        published: Literal["no", "uncertain"],
        code: str | None = None,
    ) -> None:
        """Keep what is known about the publication."""
        super().__init__(message, code=code)
        self.published: Literal["no", "uncertain"] = published


class CheckpointIdentityError(CheckpointPersistenceError):
    """A published name no longer leads to the writer's own object (SPEC E-55..E-62)."""

    default_code = "identity"


class CheckpointBusyError(CheckpointError):
    """Another writer owns the unit (SPEC E-04)."""

    default_code = "busy"


# --- the generation store (ADR-0219)


class GenerationError(HeavetoError):
    """The generation store refuses: pointer, pending directory, lock or content.

    Codes: ``pointer_malformed pointer_dangling not_begun not_pending busy immutable
    state_corrupt state_value io committed_unsynced``.

    Attributes:
        survivors: Names of generation directories that are there, in order.
    """

    default_code = "generation"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        survivors: Sequence[str] = (),
    ) -> None:
        """Keep the names of the generations that can still be chosen."""
        super().__init__(message, code=code)
        self.survivors = tuple(survivors)


class IncompatibleEngineStateError(GenerationError):
    """The stored state declares a schema that this version does not know."""

    default_code = "incompatible"


def told(error: BaseException) -> str:
    """Return the type of a foreign exception, and what it says where it says anything.

    Foreign exceptions may fail even at that; then what they say is left out.
    """
    try:
        text = str(error).strip()
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
