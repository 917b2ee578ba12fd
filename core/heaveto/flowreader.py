"""From the plain tree of a flow to checked values (PRODUCT 5).

Every source of a flow passes here: files, Python, and the normalised form of a
checkpoint. A mistake is a :class:`~heaveto.schema.Fault` with its place; the caller
knows how to name it. Members whose behaviour this version does not have are refused by
name, never ignored. Pure.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heaveto.definition import (
    GRACE_S,
    CommandWorker,
    Dependency,
    Operation,
    PythonWorker,
    Reply,
    ScriptedWorker,
    When,
    WorkerSpec,
    parse_pointer,
)
from heaveto.graph import find_cycle
from heaveto.schema import (
    Fault,
    duration,
    identifier,
    items,
    json_value,
    mapping,
    not_yet,
    one_of,
    read_members,
    size,
    text,
    truth,
    whole_number,
)
from heaveto.steer import QUEUE_KEY

if TYPE_CHECKING:
    from heaveto.flowtext import Path as At
    from heaveto.schema import Reader

__all__ = ["read_flow"]


def read_flow(tree: object, folder: Path | None) -> dict[str, Any]:
    """Read a whole flow.

    Args:
        tree: ``flow``, ``workers``, ``operations``, as in a flow file.
        folder: Where relative folders begin, absolute; None for the normalised form,
            which has absolute ones and names the folder of a python worker.

    Returns:
        ``flow``: its settings that are there, ``workers``: specs by name,
        ``operations``: in order.

    Raises:
        Fault: The first mistake.
    """
    parts = mapping(tree, ())
    read = read_members(
        parts,
        (),
        {
            "flow": _settings,
            "workers": lambda value, at: _workers(value, at, folder),
            "operations": items(_operation, least=1),
        },
        required=("flow", "workers", "operations"),
    )
    _check_operations(read["operations"], read["workers"])
    _check_replies(read["workers"], read["operations"])
    return read


def _settings(value: object, path: At) -> dict[str, Any]:
    return read_members(
        value,
        path,
        {
            "name": _name,
            "prompt": text,
            "max_concurrent": whole_number(0),
            "context": _context,
            "on_failure": one_of("skip", "continue", "stop"),
            "timeout": not_yet(lambda v: v is None, "leave it out"),
            "reactive": not_yet(lambda v: v == "off", 'only "off"'),
            "max_ops": not_yet(lambda v: v == 0 and v is not False, "only 0"),
            "default_worker": not_yet(lambda _: False, "leave it out"),
            "synthesis": not_yet(lambda _: False, "leave it out"),
        },
        required=("name",),
    )


def _name(value: object, path: At) -> str:
    name = text(value, path)
    if not name.strip():
        raise Fault(path, "must not be blank")
    return name


def _context(value: object, path: At) -> Any:
    context = json_value(mapping(value, path), path)
    if QUEUE_KEY in context:
        raise Fault((*path, QUEUE_KEY), "belongs to the operator of the flow")
    return context


_COMMON: dict[str, Reader] = {
    "kind": text,
    "timeout": lambda value, at: (
        None if value is None else duration(zero=False)(value, at)
    ),
    "workload": lambda value, at: None if value is None else text(value, at),
    "artifacts": not_yet(
        lambda v: isinstance(v, list | tuple) and not v, "leave it out"
    ),
    "escalate_to": not_yet(lambda _: False, "leave it out"),
    "reads_user_settings": not_yet(lambda v: v is False, "only false"),
}


def _workers(value: object, path: At, folder: Path | None) -> dict[str, WorkerSpec]:
    found: dict[str, WorkerSpec] = {}
    seen: dict[str, str] = {}
    for name, members in mapping(value, path).items():
        identifier(name, (*path, name))
        _once(name, seen, (*path, name))
        found[name] = _worker(members, (*path, name), folder)
    return found


def _once(name: str, seen: dict[str, str], path: At) -> None:
    """Refuse a second id that differs in case at most."""
    before = seen.get(name.lower())
    seen[name.lower()] = name
    if before is not None:
        same = "is used twice" if before == name else f'is too like "{before}"'
        raise Fault(path, f"{same}; ids are unique without regard to case")


def _worker(value: object, path: At, folder: Path | None) -> WorkerSpec:
    kind = mapping(value, path).get("kind")
    at = (*path, "kind")
    if kind is None:
        raise Fault(at, "is required")
    if kind == "openai":
        raise Fault(at, '"openai" is not supported by this version')
    readers: dict[str, Callable[[object, At, Path | None], WorkerSpec]] = {
        "command": _command,
        "python": _python,
        "scripted": _scripted,
    }
    return readers[one_of(*readers)(kind, at)](value, path, folder)


def _spec(read: dict[str, Any]) -> dict[str, Any]:
    """Leave out what chose the kind, and members that only their default may have."""
    left_out = ("kind", "artifacts", "reads_user_settings")
    return {key: value for key, value in read.items() if key not in left_out}


def _command(value: object, path: At, folder: Path | None) -> CommandWorker:
    read = read_members(
        value,
        path,
        {
            **_COMMON,
            "argv": _argv,
            "cwd": text,
            "input": one_of("stdin", "argument"),
            "env": _env,
            "output": one_of("text", "json"),
            "output_limit": size,
            "log_limit": size,
            "grace": duration(),
        },
        required=("argv",),
    )
    cwd = Path("/" if folder is None else folder) / read.get("cwd", "")
    return CommandWorker(**{"grace": GRACE_S, **_spec(read), "cwd": str(cwd)})


def _argv(value: object, path: At) -> tuple[str, ...]:
    argv: tuple[str, ...] = items(text, least=1)(value, path)
    if not argv[0]:
        raise Fault((*path, 0), "must name a program")
    return argv


def _env(value: object, path: At) -> dict[str, str]:
    for name in mapping(value, path):
        if not name or "=" in name:
            raise Fault((*path, name), "is no name for a variable")
        text(name, (*path, name))
    return {
        name: text(inner, (*path, name)) for name, inner in mapping(value, path).items()
    }


def _python(value: object, path: At, folder: Path | None) -> PythonWorker:
    read = read_members(
        value,
        path,
        {**_COMMON, "call": _call, **({"folder": text} if folder is None else {})},
        required=("call",),
    )
    call, function = read.pop("call")
    read.setdefault("folder", str(folder or "/"))
    return PythonWorker(call=call, function=function, **_spec(read))


def _call(value: object, path: At) -> tuple[str, Callable[..., object] | None]:
    """Read ``module:function``, or take a function that can be found again by name."""
    if callable(value):
        module = getattr(value, "__module__", None) or ""
        name = getattr(value, "__qualname__", "")
        if _named(module, name) is not value:
            raise Fault(path, "must be a function that its module names")
        return f"{module}:{name}", value
    call = text(value, path)
    module, _, name = call.partition(":")
    parts = (*module.split("."), *name.split("."))
    if not all(part.isidentifier() for part in parts):
        raise Fault(path, 'must be "module:function"')
    return call, None


def _named(module: str, name: str) -> object:
    """Return what a module that is already imported calls by a name."""
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _scripted(value: object, path: At, _folder: Path | None) -> ScriptedWorker:
    read = read_members(
        value, path, {**_COMMON, "replies": items(_reply)}, required=("replies",)
    )
    return ScriptedWorker(**_spec(read))


def _reply(value: object, path: At) -> Reply:
    read = read_members(
        value,
        path,
        {
            "operation": lambda v, at: v if v == "*" else identifier(v, at),
            "attempt": whole_number(1),
            "after": duration(),
            "response": json_value,
            "error": text,
            "log": items(text),
            "messages": items(json_value),
        },
    )
    if "error" in read and "response" in read:
        raise Fault((*path, "error"), "excludes a response")
    return Reply(**read)


def _operation(value: object, path: At) -> Operation:
    read = read_members(
        value,
        path,
        {
            "id": identifier,
            "worker": identifier,
            "instruction": text,
            "depends_on": items(_dependency),
            "gate": truth,
            "inherit_context": not_yet(lambda v: v is False, "only false"),
            "artifacts": _COMMON["artifacts"],
        },
        required=("id", "worker", "instruction"),
    )
    return Operation(**{**read, "artifacts": ()})


def _dependency(value: object, path: At) -> Dependency:
    if not isinstance(value, Mapping):
        return Dependency(identifier(value, path))
    read = read_members(
        value,
        path,
        {"id": identifier, "when": lambda v, at: None if v is None else _when(v, at)},
        required=("id",),
    )
    return Dependency(read["id"], read.get("when"))


def _when(value: object, path: At) -> When:
    read = read_members(
        value,
        path,
        {
            "at": _pointer,
            "equals": json_value,
            "not_equals": json_value,
            "exists": truth,
        },
        required=("at",),
    )
    at = read.pop("at")
    if len(read) != 1:
        raise Fault(path, "must have exactly one of equals, not_equals, exists")
    test: Any
    ((test, expected),) = read.items()
    return When(at=at, test=test, value=expected)


def _pointer(value: object, path: At) -> str:
    pointer = text(value, path)
    try:
        parse_pointer(pointer.removeprefix("context:"))
    except ValueError as error:
        raise Fault(path, str(error)) from None
    return pointer


def _check_operations(
    operations: Sequence[Operation], workers: Mapping[str, WorkerSpec]
) -> None:
    """Check what only the whole shows: ids, workers, dependencies, cycles."""
    seen: dict[str, str] = {}
    for index, operation in enumerate(operations):
        _once(operation.id, seen, ("operations", index, "id"))
    number = {operation.id: index for index, operation in enumerate(operations)}
    for index, operation in enumerate(operations):
        path: At = ("operations", index)
        if operation.worker not in workers:
            raise Fault((*path, "worker"), f'there is no worker "{operation.worker}"')
        heads: set[str] = set()
        for place, dependency in enumerate(operation.dependencies):
            here = (*path, "depends_on", place)
            if dependency.id not in number:
                raise Fault(here, f'there is no operation "{dependency.id}"')
            if dependency.id in heads:
                raise Fault(here, f'"{dependency.id}" stands here twice')
            heads.add(dependency.id)
    cycle = find_cycle({o.id: tuple(d.id for d in o.dependencies) for o in operations})
    if cycle:
        path = ("operations", number[cycle[0]], "depends_on")
        raise Fault(path, f"cycle: {' -> '.join(cycle)}")


def _check_replies(
    workers: Mapping[str, WorkerSpec], operations: Sequence[Operation]
) -> None:
    known = {operation.id for operation in operations}
    for name, worker in workers.items():
        if not isinstance(worker, ScriptedWorker):
            continue
        for index, reply in enumerate(worker.replies):
            if reply.operation != "*" and reply.operation not in known:
                path = ("workers", name, "replies", index, "operation")
                raise Fault(path, f'there is no operation "{reply.operation}"')
