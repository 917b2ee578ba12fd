"""What a flow is made of: kinds of workers, scripted replies, conditions on edges.

Values only, already checked; :mod:`heaveto.flowfile` makes them and
:mod:`heaveto.workers` runs them. ``as_dict`` gives the members of the flow file, with
every default written out, so that what a checkpoint holds says all there is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "ABSENT",
    "GRACE_S",
    "CommandWorker",
    "Dependency",
    "Operation",
    "PythonWorker",
    "Reply",
    "ScriptedWorker",
    "When",
    "WorkerSpec",
    "parse_pointer",
    "same_json",
]

GRACE_S: Final = 10.0
"""How long an operation may go on after a request to end, when its worker says none."""

_CONTEXT = "context:"


class _Absent:
    """The type of :data:`ABSENT`."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()
"""What a JSON pointer finds where nothing is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandWorker:
    """A program, started without a shell."""

    argv: tuple[str, ...]
    cwd: str
    """Absolute."""
    input: Literal["stdin", "argument"] = "stdin"
    env: Mapping[str, str] = field(default_factory=dict)
    output: Literal["text", "json"] = "text"
    output_limit: int = 1 << 20
    """Bytes of a response; more fails the operation."""
    log_limit: int = 64 << 20
    """Bytes of each log; more keeps its head and its tail."""
    grace: float = GRACE_S
    """Seconds between TERM and KILL at a timeout, and of the drain at an end."""
    timeout: float | None = None
    workload: str | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the members of the flow file."""
        return {
            "kind": "command",
            "argv": list(self.argv),
            "cwd": self.cwd,
            "input": self.input,
            "env": dict(self.env),
            "output": self.output,
            "output_limit": self.output_limit,
            "log_limit": self.log_limit,
            "grace": self.grace,
            **_common(self),
        }

    @property
    def summary(self) -> str:
        """What it runs, in one line of JSON."""
        return json.dumps(list(self.argv), ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonWorker:
    """A function, given as ``module:function``."""

    call: str
    folder: str
    """Where its module is looked for after the usual places; absolute."""
    timeout: float | None = None
    workload: str | None = None
    function: Callable[..., object] | None = field(default=None, compare=False)
    """The function itself, when the flow was made in the program that runs it."""

    def as_dict(self) -> dict[str, object]:
        """Return the members of the flow file, and the folder."""
        return {
            "kind": "python",
            "call": self.call,
            "folder": self.folder,
            **_common(self),
        }

    @property
    def summary(self) -> str:
        """What it runs."""
        return self.call


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a scripted worker answers, and when it applies."""

    operation: str = "*"
    attempt: int | None = None
    """Only this attempt; None is any."""
    after: float = 0.0
    response: object = None
    error: str | None = None
    log: tuple[str, ...] = ()
    messages: tuple[object, ...] = ()
    """The conversation that it leaves behind."""

    def as_dict(self) -> dict[str, object]:
        """Return the members of the flow file."""
        return {
            "operation": self.operation,
            "after": self.after,
            "log": list(self.log),
            "messages": list(self.messages),
            **({} if self.attempt is None else {"attempt": self.attempt}),
            **(
                {"response": self.response}
                if self.error is None
                else {"error": self.error}
            ),
        }

    def applies(self, operation: str, attempt: int) -> bool:
        """Tell whether this is the answer for an attempt at an operation."""
        return self.operation in ("*", operation) and self.attempt in (None, attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedWorker:
    """Answers that were written down before."""

    replies: tuple[Reply, ...]
    timeout: float | None = None
    workload: str | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the members of the flow file."""
        return {
            "kind": "scripted",
            "replies": [reply.as_dict() for reply in self.replies],
            **_common(self),
        }

    @property
    def summary(self) -> str:
        """How many replies it has."""
        count = len(self.replies)
        return f"{count} scripted {'reply' if count == 1 else 'replies'}"


WorkerSpec = CommandWorker | PythonWorker | ScriptedWorker


def _common(worker: WorkerSpec) -> dict[str, object]:
    return {"timeout": worker.timeout, "workload": worker.workload}


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """A condition on an edge (SPEC C-05): a place, and what must be there.

    Where nothing is, ``equals`` is false, ``not_equals`` is true and ``exists`` is what
    it says. Values are equal as JSON is: ``1`` and ``1.0`` are, ``1`` and ``true`` are
    not.
    """

    at: str
    """A JSON pointer into the head's response, or ``context:`` and one."""
    test: Literal["equals", "not_equals", "exists"]
    value: object

    def apply(self, result: object, context: Mapping[str, object]) -> bool:
        """Tell whether the path is open."""
        whole: object = result
        pointer = self.at
        if pointer.startswith(_CONTEXT):
            whole, pointer = context, pointer[len(_CONTEXT) :]
        found = _find(whole, parse_pointer(pointer))
        if self.test == "exists":
            return (found is not ABSENT) is self.value
        equal = found is not ABSENT and same_json(found, self.value)
        return equal is (self.test == "equals")

    @property
    def text(self) -> str:
        """The condition in words."""
        if self.test == "exists":
            return (
                f"{self.at or 'the response'} {'exists' if self.value else 'is absent'}"
            )
        value = json.dumps(self.value, ensure_ascii=False)
        value = value if len(value) <= 80 else f"{value[:79]}…"
        word = "=" if self.test == "equals" else "≠"
        return f"{self.at or 'the response'} {word} {value}"

    def as_dict(self) -> dict[str, object]:
        """Return the members of the flow file."""
        return {"at": self.at, self.test: self.value}


@dataclass(frozen=True, slots=True)
class Dependency:
    """That an operation waits for another, and on which condition its path is open."""

    id: str
    when: When | None = None

    def as_value(self) -> object:
        """Return it as the flow file writes it."""
        return self.id if self.when is None else self.as_dict()

    def as_dict(self) -> dict[str, object]:
        """Return it as an object."""
        return {
            "id": self.id,
            "when": None if self.when is None else self.when.as_dict(),
        }


@dataclass(frozen=True, slots=True)
class Operation:
    """A unit of work of a flow.

    Attributes:
        id: The name by which the flow and its checkpoints know it (``agent_id``).
        worker: Who does it (``assignee``).
        instruction: What its worker is given.
        depends_on: Ids, or ``{"id": …, "when": {…}}``; a checked flow holds
            :class:`Dependency` values here.
        gate: Whether its response decides over everything that depends on it.
        inherit_context: Not supported by this version.
        artifacts: Not supported by this version.
    """

    id: str
    worker: str
    instruction: str
    _: KW_ONLY
    depends_on: Sequence[object] = ()
    gate: bool = False
    inherit_context: bool = False
    artifacts: Sequence[object] = ()

    @property
    def dependencies(self) -> tuple[Dependency, ...]:
        """What it waits for, when it stands in a checked flow."""
        return tuple(d for d in self.depends_on if isinstance(d, Dependency))

    def as_dict(self) -> dict[str, object]:
        """Return the members of the flow file."""
        return {
            "id": self.id,
            "worker": self.worker,
            "instruction": self.instruction,
            "depends_on": _listed(self.depends_on),
            "gate": self.gate,
            "inherit_context": self.inherit_context,
            "artifacts": _listed(self.artifacts),
        }


def _listed(value: object) -> object:
    """Write a sequence as a list; what an author put in its place stays to be found."""
    if not isinstance(value, list | tuple):
        return value
    return [v.as_value() if isinstance(v, Dependency) else v for v in value]


def parse_pointer(pointer: str) -> tuple[str, ...]:
    """Split a JSON pointer (RFC 6901).

    Raises:
        ValueError: It does not begin with a slash, or a ``~`` is not ``~0`` or ``~1``.
    """
    if not pointer:
        return ()
    if not pointer.startswith("/"):
        raise ValueError("a JSON pointer begins with /")
    tokens = pointer[1:].split("/")
    if re.search("~(?![01])", pointer):
        raise ValueError("in a JSON pointer ~ is written ~0 and / is written ~1")
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in tokens)


def _find(whole: object, tokens: Sequence[str]) -> object:
    for token in tokens:
        if isinstance(whole, Mapping):
            whole = whole.get(token, ABSENT)
        elif isinstance(whole, list | tuple) and _index(token, len(whole)) is not None:
            whole = whole[int(token)]
        else:
            return ABSENT
    return whole


def _index(token: str, length: int) -> int | None:
    """Read an array index: ASCII digits without a leading zero, in range."""
    if not (token.isascii() and token.isdigit()) or (token[0] == "0" and token != "0"):
        return None
    return int(token) if len(token) < 12 and int(token) < length else None


def same_json(one: object, other: object) -> bool:
    """Compare two JSON values; booleans are no numbers."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(
            same_json(value, other[key]) for key, value in one.items()
        )
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same_json, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other
    return type(one) is type(other) and one == other
