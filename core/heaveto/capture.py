"""Taking a frozen picture of a live value, sharing what an earlier picture holds.

The rules of what becomes what are told in :mod:`heaveto.jsonvalue`. This module is
about doing it in one pass without copying what did not change: every live object is
read once, ``str`` of a foreign object is asked once, and a subtree that says the same
as before is returned as the very object it was.

Arrays are followed from the front, chunk by chunk at C speed. In a chunk that differs a
short look ahead on both sides tells a change from an insertion and a removal, so that
the members behind keep their identity. Objects are followed the same way, by name.

Runs on the thread that owns the live value.
"""

from __future__ import annotations

from itertools import chain, islice
from operator import is_
from typing import TYPE_CHECKING, Any

from heaveto.errors import CheckpointValueError
from heaveto.frozen import (
    CHUNK,
    SCALARS,
    WIDE,
    Builder,
    Chunk,
    Frozen,
    Refusal,
    Wide,
    array_items,
    is_array,
    is_object,
    is_scalar,
    member_name,
    object_items,
    same_scalar,
    scalar,
    scalars,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MAX_DEPTH", "Tally", "freeze"]

MAX_DEPTH = 240
"""Containers inside each other, at most, in a captured value.

Every parser and printer that meets a state copes with it, those that stop at 254 too.
"""

_LOOK = 8
"""How far ahead a member is looked for that is not where it was."""

_PATIENCE = 4096
"""Looks ahead in one capture; a value that changed all over is taken as it stands."""

_MISSING: Any = object()
_ABSENT = [_MISSING] * WIDE


class Tally:
    """Counts of what capture did.

    Attributes:
        copied: Values that were captured anew; an unchanged subtree adds nothing.
    """

    __slots__ = ("copied",)

    def __init__(self) -> None:
        """Start at zero."""
        self.copied = 0


def freeze(
    value: object, previous: Frozen = None, *, tally: Tally | None = None
) -> Frozen:
    """Capture a live value, sharing what did not change with an earlier capture.

    Args:
        value: Anything; it is read, never kept, but for its scalars.
        previous: What an earlier call returned for the same place.
        tally: Where to count.

    Returns:
        A frozen value; ``previous`` itself when nothing changed.

    Raises:
        CheckpointValueError: The value breaks a rule; its ``path`` says where.
    """
    try:
        return _Capture(tally or Tally()).value(value, previous, 0)
    except Refusal as found:
        raise _explained(found) from None
    except RecursionError:
        raise CheckpointValueError("depth", "$", "nested too deeply") from None
    except (RuntimeError, IndexError):  # a __str__ that changes what holds it
        text = "it changed while it was captured"
        raise CheckpointValueError("serialization", "$", text) from None


def _explained(found: Refusal) -> CheckpointValueError:
    path = "$"
    for step in reversed(found.steps):
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{step}" if step.isidentifier() else f"[{step!r}]"
    if found.reason == "depth" and len(set(found.around)) < len(found.around):
        return CheckpointValueError("serialization", "$", "a value contains itself")
    return CheckpointValueError(found.reason, path, found.text)


class _Capture:
    """One capture: its counter and its patience."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.patience = _PATIENCE

    def value(self, live: Any, old: Frozen, depth: int) -> Frozen:
        """Capture one value."""
        kind = type(live)
        if is_scalar(kind):
            return self.scalar(live, old)
        if issubclass(kind, dict):
            return self.object(live, old, depth)
        if issubclass(kind, (list, tuple)):
            return self.array(live, old, depth)
        try:
            text = str(live)
        except Exception as error:  # whatever a foreign __str__ raises
            raised = type(error).__name__
            raise Refusal(
                "serialization", f"str() of {kind.__name__} raised {raised}"
            ) from None
        return self.scalar(text, old)

    def scalar(self, live: Any, old: Frozen) -> Frozen:
        """Capture one scalar."""
        leaf = scalar(live)
        if leaf is old or (type(old) in SCALARS and same_scalar(leaf, old)):
            return old
        self.tally.copied += 1
        return leaf

    # --- arrays

    def array(self, live: Any, old: Frozen, depth: int) -> Frozen:
        """Capture a list or a tuple."""
        _enter(live, depth)
        items = live if type(live) is list else _opened(list, live)
        wide = type(old) is Wide and not old.keyed
        if len(items) >= WIDE or (wide and len(items) >= WIDE // 2):
            return self.wide_array(items, old, depth)
        olds = array_items(old) if is_array(old) else _ABSENT[: len(items)]
        if len(olds) == len(items):
            made = self.paired(items, olds, depth)
        else:
            made, _ = self.merge(items, 0, len(items), olds, depth)
            made += self.fresh(items, len(made), len(items), depth)
        if type(old) is list and _identical(made, old):
            return old
        self.tally.copied += 1
        return made

    def paired(self, live: list[Any], olds: list[Frozen], depth: int) -> list[Frozen]:
        """Capture members each of which has its counterpart."""
        made: list[Frozen] = []
        try:
            for item, old in zip(live, olds, strict=False):
                kind = type(item)
                if kind is dict:  # straight on, to keep the stack low
                    made.append(self.object(item, old, depth + 1))
                elif kind is list:
                    made.append(self.array(item, old, depth + 1))
                elif item is old and kind in SCALARS:
                    made.append(item)
                else:
                    made.append(self.value(item, old, depth + 1))
        except Refusal as found:
            raise found.inside(len(made), live) from None
        return made

    def wide_array(self, live: list[Any], old: Frozen, depth: int) -> Frozen:
        """Capture an array of many members."""
        chunks = _chunks(old) if is_array(old) else ()
        at, known, count = 0, 0, len(live)
        for chunk in chunks:
            end = at + len(chunk.items)
            if end > count or not chunk.says(live[at:end]):
                break
            at, known = end, known + 1
        if chunks and known == len(chunks) and type(old) is Wide:
            if at == count:
                return old
            more = count - at
            if len(chunks[-1].items) + more <= CHUNK and scalars(live[at:]):
                self.tally.copied += 1 + more
                return old.grown(live[at:])
        build = Builder(chunks[:known])
        end, last = len(live), len(chunks)
        while known < last:
            at, paired = self.along(live, at, end, chunks[known], build, depth)
            known += 1
            if not paired and last == len(chunks):
                while last > known and _ends(live, at, end, chunks[last - 1]):
                    last -= 1
                    end -= len(chunks[last].items)
        for start in range(at, end, CHUNK):
            build.add(self.fresh(live, start, min(start + CHUNK, end), depth))
        for chunk in chunks[last:]:
            build.share(chunk)
        return self.closed(build, old, chunks, keyed=False)

    def along(
        self,
        live: list[Any],
        at: int,
        end: int,
        chunk: Chunk,
        build: Builder,
        depth: int,
    ) -> tuple[int, bool]:
        """Capture live members along a chunk that may differ.

        Returns:
            Where the live array stands behind it, and whether both are in step.
        """
        part = live[at : min(at + len(chunk.items), end)]
        if len(part) == len(chunk.items) and chunk.says(part):
            build.share(chunk)
            return at + len(part), True
        made, paired = self.merge(live, at, end, chunk.items, depth)
        if _identical(made, chunk.items):
            chunk.adopt(live[at : at + len(made)])
            build.share(chunk)
        else:
            build.add(made)
        return at + len(made), paired

    def merge(
        self, live: list[Any], at: int, end: int, olds: list[Frozen], depth: int
    ) -> tuple[list[Frozen], bool]:
        """Capture live members from ``at`` on, along their old counterparts.

        Returns:
            What was captured until either side ended, and whether some of its last
            members are old ones.
        """
        made: list[Frozen] = []
        place, strangers = 0, 0
        while place < len(olds) and at < end:
            if _known(live[at], olds[place]):
                made.append(olds[place])
                strangers = 0
            else:
                gone, new = self.look(live, at, end, olds, place)
                if gone or new:
                    place += gone
                    made += self.fresh(live, at, at + new, depth)
                    at += new
                    continue
                made += self.one(live, at, olds[place], depth)
                strangers = 0 if made[-1] is olds[place] else strangers + 1
            place += 1
            at += 1
        return made, strangers < _LOOK

    def look(
        self, live: list[Any], at: int, end: int, olds: list[Frozen], place: int
    ) -> tuple[int, int]:
        """Tell how many old members are gone here, or how many live ones are new.

        Neither is said of an object that would have to be asked for its ``str``.
        """
        if not _comparable(live[at]):
            return 0, 0
        for step in range(1, _LOOK + 1):
            if self.patience <= 0:
                break
            self.patience -= 1
            if place + step < len(olds) and _known(live[at], olds[place + step]):
                return step, 0
            if at + step < end and _known(live[at + step], olds[place]):
                return 0, step
        return 0, 0

    def fresh(self, live: list[Any], start: int, end: int, depth: int) -> list[Frozen]:
        """Capture members without a counterpart, at C speed where they are plain."""
        plain = self.plain(live[start:end], depth)
        if plain is not None:
            return plain
        made: list[Frozen] = []
        for place in range(start, end):
            made += self.one(live, place, _MISSING, depth)
        return made

    def plain(self, part: list[Any], depth: int) -> list[Frozen] | None:
        """Capture exact scalars, or exact containers of such; None: there is more."""
        if scalars(part):
            self.tally.copied += len(part)
            return part
        kinds = {*map(type, part)}
        if depth + 1 >= MAX_DEPTH or len(kinds) != 1 or not kinds <= {dict, list}:
            return None
        kind = kinds.pop()
        if max(map(len, part)) >= WIDE or not _plain_boxes(kind, part):
            return None
        self.tally.copied += len(part) + sum(map(len, part))
        return list(map(dict.copy if kind is dict else list.copy, part))

    def one(
        self, live: list[Any], place: int, old: Frozen, depth: int
    ) -> tuple[Frozen]:
        """Capture one member of an array, and say where when it is refused."""
        try:
            return (self.value(live[place], old, depth + 1),)
        except Refusal as found:
            raise found.inside(place, live) from None

    # --- objects

    def object(self, live: Any, old: Frozen, depth: int) -> Frozen:
        """Capture a dict."""
        _enter(live, depth)
        source = live if type(live) is dict else _opened(dict, live)
        wide = type(old) is Wide and old.keyed
        if len(source) >= WIDE or (wide and len(source) >= WIDE // 2):
            return self.wide_object(source, old, depth)
        olds = object_items(old) if is_object(old) else {}
        made: dict[str, Frozen] = {}
        changed = type(old) is not dict or len(old) != len(source)
        for key, item in source.items():
            name = key if type(key) is str and key.isascii() else member_name(key)
            if name in made:
                raise Refusal("key_collision", "two member names become the same")
            before = olds.get(name, _MISSING)
            kind = type(item)
            if item is before and kind in SCALARS:
                made[name] = item
                continue
            try:
                if kind is dict:  # straight on, to keep the stack low
                    new = self.object(item, before, depth + 1)
                elif kind is list:
                    new = self.array(item, before, depth + 1)
                else:
                    new = self.value(item, before, depth + 1)
                made[name] = new
            except Refusal as found:
                raise found.inside(name, live) from None
            changed = changed or new is not before
        if not changed:
            return old
        self.tally.copied += 1
        return made

    def wide_object(self, live: dict[Any, Any], old: Frozen, depth: int) -> Frozen:
        """Capture an object of many members."""
        chunks = _chunks(old) if is_object(old) else ()
        keys, members, at, known = iter(live), iter(live.values()), 0, 0
        for chunk in chunks:
            if (
                at + len(chunk.items) > len(live)
                or not all(map(is_, chunk.keys or (), keys))
                or not chunk.follows(members)
            ):
                break
            at += len(chunk.items)
            known += 1
        if at == len(live) and known == len(chunks) and type(old) is Wide:
            return old
        build = Builder(chunks[:known])
        if at < len(live):
            self.by_name(live, at, chunks[known:], build, depth)
        return self.closed(build, old, chunks, keyed=True)

    def by_name(
        self,
        live: dict[Any, Any],
        at: int,
        chunks: Sequence[Chunk],
        build: Builder,
        depth: int,
    ) -> None:
        """Capture the members of an object from a place on, by their names."""
        names, members = _names(live, at), list(islice(live.values(), at, None))
        at = 0
        starts = {chunk.keys[0]: chunk for chunk in chunks if chunk.keys}
        befores: dict[str, Frozen] = {}
        for one in chunks:
            befores.update(zip(one.keys or (), one.items, strict=True))
        while at < len(names):
            chunk = starts.get(names[at])
            end = at + (len(chunk.items) if chunk is not None else 1)
            if chunk is not None and names[at:end] != chunk.keys:
                chunk, end = None, at + 1
            if chunk is None:
                while (
                    end < len(names) and end - at < CHUNK and names[end] not in starts
                ):
                    end += 1
            part, heads = members[at:end], names[at:end]
            if chunk is not None and chunk.follows(iter(part)):
                chunk.keys = heads
                build.share(chunk)
            else:
                made = self.named(heads, part, befores, live, depth)
                if chunk is not None and _identical(made, chunk.items):
                    chunk.adopt(part, heads)
                    build.share(chunk)
                else:
                    build.add(made, heads)
            at = end

    def named(
        self,
        names: list[str],
        part: list[Any],
        befores: dict[str, Frozen],
        live: Any,
        depth: int,
    ) -> list[Frozen]:
        """Capture members of an object by their names."""
        if not befores and (plain := self.plain(part, depth)) is not None:
            return plain
        made: list[Frozen] = []
        try:
            for name, item in zip(names, part, strict=True):
                before = befores.get(name, _MISSING)
                made.append(self.value(item, before, depth + 1))
        except Refusal as found:
            raise found.inside(names[len(made)], live) from None
        return made

    def closed(
        self, build: Builder, old: Frozen, chunks: Sequence[Chunk], *, keyed: bool
    ) -> Frozen:
        """Return what was built, which is the old container when nothing changed."""
        made = build.chunks()
        if type(old) is Wide and _identical(made, chunks):
            return old
        self.tally.copied += 1
        return Wide(made, keyed=keyed)


def _enter(value: object, depth: int) -> None:
    if depth >= MAX_DEPTH:
        refusal = Refusal("depth", f"nested deeper than {MAX_DEPTH} containers")
        refusal.around.append(id(value))
        raise refusal


def _opened(kind: type, live: Any) -> Any:
    """Return what a derived container gives when it is gone through, as json does."""
    try:
        return list(live) if kind is list else dict(live.items())
    except Exception as error:  # whatever a foreign class raises
        raised = f"{type(live).__name__} raised {type(error).__name__}"
        raise Refusal("serialization", raised) from None


def _chunks(old: Frozen) -> Sequence[Chunk]:
    """Return the members of an old container as chunks."""
    if type(old) is Wide:
        return old.chunks
    if not old:
        return ()
    if type(old) is dict:
        return (Chunk(list(old.values()), list(old)),)
    return (Chunk(old),)


def _identical(made: Sequence[Any], old: Sequence[Any]) -> bool:
    return len(made) == len(old) and all(map(is_, made, old))


def _ends(live: list[Any], at: int, end: int, chunk: Chunk) -> bool:
    """Tell whether the live members before ``end`` are those of a chunk."""
    start = end - len(chunk.items)
    return start >= at and chunk.says(live[start:end])


def _plain_boxes(kind: type, boxes: list[Any]) -> bool:
    """Tell whether exact dicts or lists hold nothing but clean names and scalars."""
    if kind is list:
        return scalars(list(chain.from_iterable(boxes)))
    names = list(chain.from_iterable(boxes))
    return (
        {*map(type, names)} <= {str}
        and scalars(names)
        and scalars(list(chain.from_iterable(map(dict.values, boxes))))
    )


def _names(live: dict[Any, Any], at: int) -> list[str]:
    """Return the JSON names of an object's members from a place on.

    Those before it are known to be names already, and exact ones of which there is no
    second; so only names that differ from their keys can meet others.
    """
    keys = list(islice(live, at, None))
    if {*map(type, keys)} == {str} and scalars(keys):
        return keys
    names = list(map(member_name, keys))
    every = {*islice(live, at), *names}
    if len(every) != len(live):
        raise Refusal("key_collision", "two member names become the same")
    return names


def _comparable(live: Any) -> bool:
    kind = type(live)
    return kind in (dict, list, tuple) or is_scalar(kind)


def _known(live: Any, old: Frozen) -> bool:
    """Tell whether a live value says what a frozen one does, copying nothing.

    False where finding out would ask a foreign object for its ``str``.
    """
    kind = type(live)
    if kind in SCALARS:
        return live is old or (kind is type(old) and same_scalar(live, old))
    if is_scalar(kind):
        return type(old) in SCALARS and _says(live, old)
    if type(old) is Wide:
        return _is_wide(live, old)
    if kind is dict:
        return (
            type(old) is dict
            and len(live) == len(old)
            and all(
                type(key) is str and key in old and _known(item, old[key])
                for key, item in live.items()
            )
        )
    if kind is list or kind is tuple:
        if type(old) is not list or len(live) != len(old):
            return False
        return all(map(_known, live, old))
    return False


def _says(live: Any, old: Frozen) -> bool:
    """Compare a derived scalar."""
    try:
        return same_scalar(scalar(live), old)
    except Refusal:
        return False


def _is_wide(live: Any, old: Wide) -> bool:
    """Compare with a wide container at C speed; False is not a proof."""
    if type(live) is dict and old.keyed and len(live) == old.size:
        members = iter(live.values())
        return all(map(is_, old.keys(), live)) and all(
            chunk.follows(members) for chunk in old.chunks
        )
    if type(live) is list and not old.keyed and len(live) == old.size:
        at = 0
        for chunk in old.chunks:
            if not chunk.says(live[at : at + len(chunk.items)]):
                return False
            at += len(chunk.items)
        return True
    return False
