"""The patch subset: what turns one flow context into the next (SPEC E-21..E-33).

Three operations of RFC 6902, each with exactly these members::

    {"op":"add","path":POINTER,"value":JSON}      object: absent; array: 0..len or -
    {"op":"remove","path":POINTER}                the target exists
    {"op":"replace","path":POINTER,"value":JSON}  the target exists; "" takes an object

POINTER is RFC 6901 with ``~0`` and ``~1`` alone, decoded once; an index is ``0`` or a
nonzero ASCII digit followed by digits; ``-`` appends, as the last token of an ``add``
to an array only. A patch applies whole or not at all.

Pure; safe in any thread.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from heaveto.errors import CheckpointError
from heaveto.jsonvalue import Frozen, Json, same

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["PatchError", "apply", "apply_in_place", "diff"]

_INDEX = re.compile("0|[1-9][0-9]*")
_BAD_TILDE = re.compile("~(?![01])")
_MEMBERS = {
    "add": {"op", "path", "value"},
    "remove": {"op", "path"},
    "replace": {"op", "path", "value"},
}


class PatchError(CheckpointError):
    """A patch is refused; the document is as it was.

    Attributes:
        code: ``patch_invalid`` (shape, pointer syntax, root rule) or ``patch_conflict``
            (it does not apply to this document).
        op_index: Which operation, from 0; None when the patch is no list.
    """

    default_code = "patch_invalid"

    def __init__(self, code: str, op_index: int | None) -> None:
        """Keep the position; nothing of the content."""
        super().__init__(f"patch refused: {code}, operation {op_index}", code=code)
        self.op_index = op_index


# --- writing


def diff(old: Frozen, new: Frozen) -> list[dict[str, Frozen]]:
    """Return the operations that turn one frozen value into another.

    Args:
        old: The earlier capture.
        new: The later one, best frozen with ``old`` as its ``previous``.

    Returns:
        Operations with frozen values; empty when the values are the same.
    """
    ops: list[dict[str, Frozen]] = []
    _diff(old, new, "", ops)
    return ops


def _diff(old: Frozen, new: Frozen, path: str, ops: list[dict[str, Frozen]]) -> None:
    if old is new:
        return
    if type(old) is dict and type(new) is dict:
        ops.extend(
            {"op": "remove", "path": path + _token(name)} for name in old.keys() - new
        )
        for name, item in new.items():
            if name in old:
                _diff(old[name], item, path + _token(name), ops)
            else:
                ops.append({"op": "add", "path": path + _token(name), "value": item})
    elif type(old) is tuple and type(new) is tuple:
        _diff_arrays(old, new, path, ops)
    elif not same(old, new):
        ops.append({"op": "replace", "path": path, "value": new})


def _diff_arrays(
    old: tuple[Frozen, ...],
    new: tuple[Frozen, ...],
    path: str,
    ops: list[dict[str, Frozen]],
) -> None:
    short = min(len(old), len(new))
    head = 0
    while head < short and same(old[head], new[head]):
        head += 1
    tail = 0
    while tail < short - head and same(old[-1 - tail], new[-1 - tail]):
        tail += 1
    paired = short - head - tail
    for index in range(head, head + paired):
        _diff(old[index], new[index], f"{path}/{index}", ops)
    at = head + paired
    ops += [{"op": "remove", "path": f"{path}/{at}"}] * (len(old) - short)
    for offset in range(len(new) - short):
        end = "-" if tail == 0 else str(at + offset)
        ops.append({"op": "add", "path": f"{path}/{end}", "value": new[at + offset]})


def _token(name: str) -> str:
    return "/" + name.replace("~", "~0").replace("/", "~1")


# --- applying


def apply(document: Json, ops: Sequence[Json]) -> Json:
    """Return the document after a patch; the one given stays as it is.

    Args:
        document: A plain object.
        ops: Plain operations. Containers among their values become part of the result.

    Raises:
        PatchError: Nothing was applied.
    """
    check(ops)
    undo: list[Callable[[], Any]] = []
    made = _copied(document)
    return _run(made, ops, undo)


def _copied(value: Json) -> Json:
    if isinstance(value, dict):
        return {name: _copied(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value


def apply_in_place(document: Json, ops: Sequence[Json]) -> Json:
    """Apply a checked patch to a document that the caller owns, whole or not at all.

    Args:
        document: A plain object; changed, and restored when an operation is refused.
        ops: As for :func:`apply`, after :func:`check`; their values become part of it.

    Returns:
        The document, which is another object after a replacement of the root.

    Raises:
        PatchError: The document is as it was.
    """
    undo: list[Callable[[], Any]] = []
    try:
        return _run(document, ops, undo)
    except PatchError:
        for step in reversed(undo):
            step()
        raise


def check(ops: Json) -> None:
    """Refuse a patch whose shape is wrong, whatever the document is.

    Raises:
        PatchError: ``patch_invalid`` with the index of the first bad operation.
    """
    if not isinstance(ops, (list, tuple)):
        raise PatchError("patch_invalid", None)
    for index, op in enumerate(ops):
        if not _well_formed(op):
            raise PatchError("patch_invalid", index)


def _well_formed(op: Json) -> bool:
    if not isinstance(op, dict):
        return False
    verb, path = op.get("op"), op.get("path")
    if not isinstance(verb, str) or not isinstance(path, str):
        return False
    if op.keys() != _MEMBERS.get(verb):
        return False
    if path == "":
        return verb == "replace" and isinstance(op["value"], dict)
    return path[0] == "/" and not _BAD_TILDE.search(path)


def _run(document: Json, ops: Sequence[Json], undo: list[Callable[[], Any]]) -> Json:
    for index, op in enumerate(ops):
        path = op["path"]
        if path == "":
            document = op["value"]
            continue
        parents = [
            token.replace("~1", "/").replace("~0", "~") for token in path[1:].split("/")
        ]
        last = parents.pop()
        if not _step(_walk(document, parents), last, op, undo):
            raise PatchError("patch_conflict", index)
    return document


def _walk(document: Json, tokens: list[str]) -> Json:
    for token in tokens:
        if isinstance(document, dict):
            if token not in document:
                return None
            document = document[token]
        elif isinstance(document, list):
            at = _index(token, len(document) - 1)
            if at is None:
                return None
            document = document[at]
        else:
            return None
    return document


def _index(token: str, highest: int) -> int | None:
    if len(token) > 20 or not _INDEX.fullmatch(token):
        return None
    at = int(token)
    return at if at <= highest else None


def _step(box: Json, last: str, op: Json, undo: list[Callable[[], Any]]) -> bool:
    verb = op["op"]
    if isinstance(box, dict):
        if (last in box) == (verb == "add"):
            return False
        if verb == "add":
            box[last] = op["value"]
            undo.append(lambda: box.pop(last))
            return True
        before = box[last]
        undo.append(lambda: box.__setitem__(last, before))
        if verb == "remove":
            del box[last]
        else:
            box[last] = op["value"]
        return True
    if isinstance(box, list):
        return _step_array(box, last, op, undo)
    return False


def _step_array(
    box: list[Json], last: str, op: Json, undo: list[Callable[[], Any]]
) -> bool:
    verb = op["op"]
    if verb == "add":
        place = len(box) if last == "-" else _index(last, len(box))
        if place is None:
            return False
        box.insert(place, op["value"])
        undo.append(lambda: box.pop(place))
        return True
    at = _index(last, len(box) - 1)
    if at is None:
        return False
    before = box[at]
    if verb == "remove":
        del box[at]
        undo.append(lambda: box.insert(at, before))
    else:
        box[at] = op["value"]
        undo.append(lambda: box.__setitem__(at, before))
    return True
