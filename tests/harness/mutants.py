"""A small copy of the crash suite, run against a writer with one safeguard removed.

As a program (``python -m harness.mutants``) it reads one mutation as JSON from standard
input, imports heaveto with that text replaced, runs the checks on a disk in memory and
prints the first thing that is wrong, or ``survived``. A suite that lets a mutant live
proves nothing; ``tests/crash/test_writer_mutants.py`` asks for each.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.abc
import importlib.machinery
import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from importlib.machinery import ModuleSpec
    from types import CodeType

__all__ = ["CHECKS"]

PATH = Path("/home/run/checkpoint.json")


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, old: str, new: str) -> None:
        super().__init__(name, path)
        self._old, self._new = old, new

    def get_code(self, fullname: str) -> CodeType:
        source = Path(self.path).read_text(encoding="utf-8")
        if source.count(self._old) != 1:
            raise SystemExit(f"stale mutation: {source.count(self._old)} places")
        return compile(source.replace(self._old, self._new), self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, module: str, old: str, new: str) -> None:
        self._module, self._old, self._new = module, old, new

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: Any = None
    ) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin, self._old, self._new)
        return spec


def _scripts() -> Iterator[Any]:
    from harness.scenario import Script

    yield Script(steps=9, max_records=4)
    yield Script(steps=8, together=4, max_records=6, max_bytes=1500)


def _played(script: Any, system: Any) -> Any:
    from harness.scenario import Log, drive, run

    log = Log()
    run(drive(script, PATH, log, system=system))
    return log


def _seams(script: Any) -> list[Any]:
    from harness.disk import MemoryOs
    from harness.faults import FaultyOs

    system = FaultyOs(inner=MemoryOs())
    _played(script, system)
    return system.seams


def _try(script: Any, faults: list[Any], *, cut: bool = False) -> str | None:
    """Play a script under faults on a fresh disk and judge what is left."""
    from harness.disk import MemoryOs
    from harness.faults import FaultyOs
    from harness.scenario import verdict

    disk = MemoryOs()
    log = _played(script, FaultyOs(faults, inner=disk))
    if cut:
        disk.cut_power()
    return verdict(script, PATH, log, system=disk)


def kills() -> Iterator[str | None]:
    """Killed at every call, with and without what was never synced."""
    from harness.faults import Fault

    for script in _scripts():
        for seam in _seams(script):
            kill = Fault(at=seam.number, act="kill")
            yield _try(script, [kill])
            yield _try(script, [kill], cut=True)
            if seam.call == "write":
                torn = Fault(at=seam.number, act="kill", keep=seam.size // 2)
                yield _try(script, [torn])


def errors() -> Iterator[str | None]:
    """Every call fails once, before and after its effect, or writes in part."""
    from harness.faults import Fault

    for script in _scripts():
        for seam in _seams(script):
            at: dict[str, Any] = {"at": seam.number, "act": "fail", "error": errno.EIO}
            yield _try(script, [Fault(**at)])
            yield _try(script, [Fault(**at, when="after")])
            if seam.call == "write":
                half = Fault(**at, keep=seam.size // 2)
                yield _try(script, [half])
                for distance in (4, 9, 14, 25):
                    kill = Fault(at=seam.number + distance, act="kill")
                    yield _try(script, [half, kill])


def shorts() -> Iterator[str | None]:
    """Every write takes a part only."""
    from harness.faults import Fault

    for script in _scripts():
        for seam in _seams(script):
            if seam.call == "write":
                keep = seam.size // 2
                yield _try(script, [Fault(at=seam.number, act="short", keep=keep)])


def oddities() -> Iterator[str | None]:
    """A write fails with an error that no system call has."""
    from harness.faults import Fault

    for script in _scripts():
        for seam in _seams(script):
            if seam.call == "write":
                keep = seam.size // 2
                yield _try(script, [Fault(at=seam.number, act="odd", keep=keep)])


def swaps() -> Iterator[str | None]:
    """A foreign file takes a name of the unit after every call."""
    from harness.faults import Fault

    script = next(_scripts())
    for seam in _seams(script):
        for role in ("base", "journal", "base-temp", "journal-temp"):
            fault = Fault(at=seam.number, act="note", when="after", what=role)
            yield _swapped(script, fault)


def _swapped(script: Any, fault: Any) -> str | None:
    from harness.disk import MemoryOs
    from harness.faults import SENTINEL, FaultyOs
    from harness.scenario import Log, drive, run, verdict

    disk, log = MemoryOs(), Log()
    placed: list[tuple[str, int]] = []

    def strike(_: Any) -> None:
        names = {"base": PATH.name, "journal": f"{PATH.name}.journal"}
        name = names.get(fault.what) or system._latest.get(fault.what)
        if name is not None and disk.names(str(PATH.parent)):
            path = str(PATH.parent / name)
            placed.append((path, disk.put(path, SENTINEL)))
            log("struck")

    system = FaultyOs([fault], inner=disk, on_strike=strike)
    run(drive(script, PATH, log, system=system))
    for path, inode in placed:
        if disk.inode(path) != inode and not _gap(fault, system):
            return "a substitute was moved or removed"
        if disk.inode(path) == inode and disk.content(path) != SENTINEL:
            return "a substitute was written to"
    if "struck" in log.lines:
        later = log.lines[log.lines.index("struck") :]
        acks = sum(line.startswith("ack") for line in later)
        if acks > _on_their_way(fault, system):
            return verdict(script, PATH, log, system=disk)
    return None


def _gap(fault: Any, system: Any) -> bool:
    """Tell whether no check could come before the call that met the substitute."""
    for seam in system.seams[fault.at + 1 :]:
        moved = seam.call in ("exchange", "rename_new")
        if seam.role == fault.what or (moved and f"{seam.role}-temp" == fault.what):
            return moved or seam.call == "unlink"
    return False


def _on_their_way(fault: Any, system: Any) -> int:
    """Count acknowledgements whose check had passed when the name was taken."""
    before = system.seams[: fault.at + 1]
    while before and before[-1].call == "stat":
        if before.pop().role == fault.what:
            return 1
    return 0


def steps() -> Iterator[str | None]:
    """The calls of a publication, in their order."""
    quiet = ("stat", "fstat", "open", "close", "flock", "mkdir", "unlink")
    found = [s.name for s in _seams(next(_scripts())) if s.call not in quiet]
    journal = ["create:journal-temp", "fsync:journal-temp"]
    base = ["create:base-temp", "write:base-temp", "fsync:base-temp"]
    first = [*journal, "rename_new:journal", "fsync:folder"]
    first += [*base, "rename_new:base", "fsync:folder"]
    append = ["write:journal", "fsync:journal"]
    later = [*base, "exchange:base", "fsync:folder"]
    later += [*journal, "exchange:journal", "fsync:folder"]
    begin = found.index("create:journal-temp")
    expected = [*first, *(append * 4), *later, *(append * 4), *later, *append]
    yield None if found[begin:] == expected else f"steps: {found[begin:]}"


def locks() -> Iterator[str | None]:
    """A second writer of the same folder."""
    from harness.disk import MemoryOs
    from heaveto.checkpoint import CheckpointBusyError, CheckpointWriter

    disk = MemoryOs()
    given: dict[str, Any] = {"session_id": "s", "prompt": "p", "plan": [], "config": {}}
    first = CheckpointWriter(PATH, system=disk, **given)
    try:
        CheckpointWriter(PATH, system=disk, **given)
    except CheckpointBusyError:
        yield None
    else:
        yield "two writers at once"
    del first


def names() -> Iterator[str | None]:
    """A foreign file at a name, before an exchange and before an unlink."""
    from harness.disk import MemoryOs
    from harness.faults import SENTINEL
    from heaveto.errors import FileIdentityError
    from heaveto.files import Directory

    disk = MemoryOs()
    disk.mkdir("/home")
    with Directory.open("/home", system=disk) as folder:
        old, new = folder.create("name"), folder.create("temp")
        inode = disk.put("/home/name", SENTINEL)
        with contextlib.suppress(FileIdentityError):
            folder.install(new, "name", replacing=old)
        yield None if disk.inode("/home/name") == inode else "a foreign file moved"
        inode = disk.put("/home/temp", SENTINEL)
        folder.discard(new)
        yield None if disk.inode("/home/temp") == inode else "a foreign file is gone"


CHECKS = {
    check.__name__: check
    for check in (steps, locks, names, shorts, oddities, kills, errors, swaps)
}


def _main() -> None:
    mutation = json.load(sys.stdin)
    logging.disable(logging.CRITICAL)
    if mutation["module"]:
        finder = _Finder(mutation["module"], mutation["old"], mutation["new"])
        sys.meta_path.insert(0, finder)
    for name in mutation["checks"]:
        for found in CHECKS[name]():
            if found is not None:
                print(f"{name}: {found}")  # noqa: T201
                return
    print("survived")  # noqa: T201


if __name__ == "__main__":
    _main()
