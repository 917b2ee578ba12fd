"""Flows: what the author wrote, checked whole before anything is created (PRODUCT 5).

A flow comes from a TOML or JSON file, from ``module:attribute``, from Python, or from
the normalised form that a checkpoint keeps. All four go through one reader, so they
accept and refuse the same things; only the way a mistake is named differs
(``file:line: member: text``, or ``member: text``).

Nothing here creates, starts or imports anything, except that ``module:attribute``
imports the module.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from heaveto import flowtext
from heaveto.definition import Operation
from heaveto.errors import FlowError, FlowFileError, told
from heaveto.flowreader import read_flow
from heaveto.model import Edge, Node, OnFailure
from heaveto.schema import Fault, json_value, member_name

if TYPE_CHECKING:
    from heaveto.definition import WorkerSpec

__all__ = ["Flow", "Operation"]

_LARGEST_FILE = 16 << 20


class Flow:
    """A checked flow.

    Attributes:
        name: How people call it.
        operations: What it does, in the author's order.
        workers: Who does it, by name.
        prompt: What it is for; shown and checkpointed.
        max_concurrent: Operations at a time; 0 is all.
        on_failure: What a failure means for dependents.
        context: The initial shared context.
        path: The file it was loaded from; None for one made in Python.
        sha256: The digest of that file's bytes.
    """

    name: str
    operations: tuple[Operation, ...]
    workers: dict[str, WorkerSpec]
    prompt: str
    max_concurrent: int
    on_failure: OnFailure
    context: dict[str, Any]
    path: Path | None
    sha256: str | None

    def __init__(
        self,
        name: str,
        operations: Sequence[Operation],
        *,
        workers: Mapping[str, object],
        prompt: str = "",
        max_concurrent: int = 0,
        timeout: float | str | None = None,
        reactive: str | Sequence[str] = "off",
        max_ops: int = 0,
        context: Mapping[str, object] | None = None,
        on_failure: str = "skip",
    ) -> None:
        """Check a flow.

        Args:
            name: How people call it.
            operations: What it does.
            workers: By name, the members of the flow file, such as
                ``{"kind": "command", "argv": ["make"]}``; a python worker's ``call``
                may be the function itself.
            prompt: What it is for.
            max_concurrent: Operations at a time; 0 is all.
            timeout: Not supported by this version.
            reactive: Only ``"off"`` is supported by this version.
            max_ops: Only 0 is supported by this version.
            context: The initial shared context, JSON values.
            on_failure: ``skip``, ``continue`` or ``stop``.

        Raises:
            FlowError: ``member: text``.
        """
        settings: dict[str, object] = {
            "name": name,
            "prompt": prompt,
            "max_concurrent": max_concurrent,
            "timeout": timeout,
            "reactive": reactive,
            "max_ops": max_ops,
            "context": {} if context is None else context,
            "on_failure": on_failure,
        }
        tree = {
            "flow": {
                name: value for name, value in settings.items() if value is not None
            },
            "workers": workers,
            "operations": [_written(operation) for operation in operations],
        }
        self._take(_checked(tree, Path.cwd()))

    def _take(self, tree: Mapping[str, Any]) -> None:
        settings = tree["flow"]
        self.name = settings["name"]
        self.operations = tree["operations"]
        self.workers = tree["workers"]
        self.prompt = settings.get("prompt", "")
        self.max_concurrent = settings.get("max_concurrent", 0)
        self.on_failure = OnFailure(settings.get("on_failure", "skip"))
        self.context = settings.get("context", {})
        self.path = None
        self.sha256 = None

    @classmethod
    def _from_tree(cls, tree: Mapping[str, Any]) -> Self:
        flow = cls.__new__(cls)
        flow._take(tree)
        return flow

    @classmethod
    def load(cls, path: str | Path) -> Flow:
        """Load a flow file, or ``module:attribute``.

        Args:
            path: A TOML or JSON file; what is no file and has a colon is a module and
                in it a :class:`Flow` or a function that returns one.

        Raises:
            FlowFileError: ``file:line: member: text``; nothing was created.
        """
        file = Path(path)
        if isinstance(path, str) and ":" in path and not file.exists():
            return _from_module(path)
        data = _file_bytes(file, str(path))
        document = flowtext.parse(data, name=str(path))
        try:
            flow = cls._from_tree(read_flow(document.value, file.absolute().parent))
        except Fault as fault:
            raise FlowFileError(
                fault.text,
                path=str(path),
                line=document.line(fault.path),
                member=member_name(fault.path),
            ) from None
        flow.path = file.absolute()
        flow.sha256 = hashlib.sha256(data).hexdigest()
        return flow

    @classmethod
    def from_normalised(cls, value: Mapping[str, object]) -> Flow:
        """Rebuild a flow from :meth:`normalised`; ``flow_path`` and the digest return.

        Raises:
            FlowError: It is no such value.
        """
        rest = dict(value)
        path, sha256 = rest.pop("flow_path", None), rest.pop("flow_sha256", None)
        tree = {
            "workers": rest.pop("workers", None),
            "operations": rest.pop("operations", None),
            "flow": {key: member for key, member in rest.items() if member is not None},
        }
        flow = cls._from_tree(_checked(tree, None))
        flow.path = Path(path) if isinstance(path, str) else None
        flow.sha256 = sha256 if isinstance(sha256, str) else None
        return flow

    def normalised(self) -> dict[str, Any]:
        """Return the whole flow as one plain JSON value, every default written out."""
        return {
            "name": self.name,
            "prompt": self.prompt,
            "max_concurrent": self.max_concurrent,
            "timeout": None,
            "reactive": "off",
            "max_ops": 0,
            "context": json_value(self.context, ()),
            "on_failure": str(self.on_failure),
            "workers": {name: spec.as_dict() for name, spec in self.workers.items()},
            "operations": [operation.as_dict() for operation in self.operations],
        }

    def graph(
        self, ids: Mapping[str, str] | None = None
    ) -> tuple[tuple[Node, ...], tuple[Edge, ...]]:
        """Return the operations and edges for an executor.

        Args:
            ids: A UUID for every operation's id; None makes new ones.
        """
        of = {o.id: str(uuid4()) for o in self.operations} if ids is None else ids
        nodes = tuple(
            Node(
                id=of[o.id],
                name=o.id,
                assignee=o.worker,
                instruction=o.instruction,
                gate=o.gate,
            )
            for o in self.operations
        )
        edges = tuple(
            Edge(
                head=of[d.id],
                tail=of[o.id],
                condition=d.when,
                text=None if d.when is None else d.when.text,
            )
            for o in self.operations
            for d in o.dependencies
        )
        return nodes, edges

    def plan(self, ids: Mapping[str, str] | None = None) -> list[dict[str, object]]:
        """Return ``plan[]`` of a checkpoint (PRODUCT 6.9).

        Args:
            ids: A UUID for every operation's id; None leaves ``node_id`` out.
        """
        index = {o.id: number for number, o in enumerate(self.operations)}
        return [
            {
                "agent_id": o.id,
                **({} if ids is None else {"node_id": ids[o.id]}),
                "dep_indices": [index[d.id] for d in o.dependencies],
                "assignee": o.worker,
                "task": o.instruction,
                "depends_on": [d.id for d in o.dependencies],
            }
            for o in self.operations
        ]


def _written(operation: object) -> object:
    """Give an operation the form of the flow file."""
    return operation.as_dict() if isinstance(operation, Operation) else operation


def _checked(tree: Mapping[str, object], folder: Path | None) -> dict[str, Any]:
    """Read a tree that has no file."""
    try:
        return read_flow(tree, folder)
    except Fault as fault:
        where = member_name(fault.path)
        raise FlowError(f"{where}: {fault.text}" if where else fault.text) from None


def _file_bytes(file: Path, name: str) -> bytes:
    try:
        with file.open("rb") as stream:
            data = stream.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise FlowFileError(
            f"cannot be read: {error.strerror or type(error).__name__}", path=name
        ) from None
    if len(data) > _LARGEST_FILE:
        raise FlowFileError("is too large for a flow", path=name)
    return data


def _from_module(reference: str) -> Flow:
    """Import a module, also from the working folder, and take a flow out of it."""
    module_name, _, attribute = reference.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        found: object = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
        if callable(found) and not isinstance(found, Flow):
            found = found()
    except (FlowError, KeyboardInterrupt):
        raise
    except BaseException as error:  # foreign code
        raise FlowFileError(
            f"cannot be loaded: {told(error)}", path=reference
        ) from None
    if not isinstance(found, Flow):
        raise FlowFileError("is no Flow and gives none", path=reference)
    source = getattr(sys.modules[module_name], "__file__", None)
    if found.path is None and isinstance(source, str):
        with contextlib.suppress(OSError):  # a module in an archive has no file
            found.sha256 = hashlib.sha256(Path(source).read_bytes()).hexdigest()
            found.path = Path(source)
    return found
