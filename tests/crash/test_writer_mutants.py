"""Every safeguard of the writer, removed in turn, is missed by the crash suite.

A mutation is a replacement in the source. Each is loaded in a process of its own and
has to be caught by one of the checks of ``harness.mutants``; without a mutation every
check has to pass (SPEC L-03, L-04, L-07; positive controls).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.mutants import CHECKS

ROOT = Path(__file__).resolve().parents[2]
HANDLES = "heaveto.handles"
UNIT = "heaveto.checkpoint.unit"
JOURNALED = "heaveto.checkpoint.journaled"
IOTHREAD = "heaveto.checkpoint.iothread"

MUTANTS = {
    "acknowledge before writing": (
        IOTHREAD,
        "    receipt = unit.write(",
        "    _settle(jobs, None)\n    receipt = unit.write(",
        ["kills"],
    ),
    "no lock on the folder": (
        IOTHREAD,
        "            directory.hold()\n",
        "",
        ["locks"],
    ),
    "no fsync of the journal": (
        JOURNALED,
        "        self._journal.sync()\n",
        "",
        ["kills"],
    ),
    "no fsync of a new base or journal": (
        UNIT,
        "            owned.sync()\n",
        "            pass\n",
        ["kills"],
    ),
    "no fsync of an empty journal": (
        JOURNALED,
        "self._make(temp_name(self._journal_name), (), sync=True)",
        "self._make(temp_name(self._journal_name), (), sync=False)",
        ["steps"],
    ),
    "no folder fsync after a base": (
        JOURNALED,
        "        self.directory.sync()\n        return base\n",
        "        return base\n",
        ["kills"],
    ),
    "no folder fsync after a journal": (
        JOURNALED,
        "        self.directory.sync()\n        self._empty = journal\n",
        "        self._empty = journal\n",
        ["kills"],
    ),
    "no loop over short writes": (
        HANDLES,
        "        while rest:\n",
        "        if rest:\n",
        ["shorts"],
    ),
    "no check of the names before an acknowledgement": (
        JOURNALED,
        "        self._journal.sync()\n        self._verify()\n",
        "        self._journal.sync()\n",
        ["swaps"],
    ),
    "no check after a failed compaction": (
        UNIT,
        "        lost = self._attempt(self._find) if self._durable else None\n",
        "        lost = None\n",
        ["swaps"],
    ),
    "a foreign file at a name is taken for nothing": (
        UNIT,
        "                owned.name = name\n                return owned\n"
        "        raise FileIdentityError("
        'f"another file is at {self.directory.path / name}")\n',
        "                owned.name = name\n                return owned\n"
        "        return self._own[-1]\n",
        ["swaps"],
    ),
    "no check of the name before an exchange": (
        HANDLES,
        "        owned.verify()\n        self._check(name, replacing)\n",
        "        owned.verify()\n",
        ["names"],
    ),
    "no check of the temp before an exchange": (
        HANDLES,
        "        owned.verify()\n        self._check(name, replacing)\n",
        "        self._check(name, replacing)\n",
        ["swaps"],
    ),
    "no check before an unlink": (
        HANDLES,
        "        if owned.name and self.identity_of(owned.name) == owned.identity:\n",
        "        if owned.name:\n",
        ["names"],
    ),
    "go on after an error": (
        UNIT,
        "            self._behind = True\n            return _explained(",
        "            return _explained(",
        ["errors"],
    ),
    "append to a unit that is behind": (
        JOURNALED,
        "        if self._behind:\n            self._fold_all(",
        "        if self.generation is None:\n            self._fold_all(",
        ["errors"],
    ),
    "forget what was not written": (
        UNIT,
        "        self._attempt(self._fold_all, transitions[self._folded :])\n",
        "",
        ["errors"],
    ),
    "no poison": (
        UNIT,
        "            self._poison = poison(failure)\n            return self._poison\n",
        "            return poison(failure)\n",
        ["oddities"],
    ),
    "the base before the first journal": (
        JOURNALED,
        " or self._new_journal()\n            base = self._new_base(carries=carries)\n",
        "\n"
        "            base = self._new_base(carries=carries)\n"
        "            journal = journal or self._new_journal()\n",
        ["kills"],
    ),
    "the journal before its base": (
        JOURNALED,
        "            base = self._new_base(carries=carries)\n"
        "            if journal is not self._empty:\n"
        "                journal = self._new_journal()\n",
        "            if journal is not self._empty:\n"
        "                journal = self._new_journal()\n"
        "            base = self._new_base(carries=carries)\n",
        ["kills"],
    ),
}


def checked(module: str, old: str, new: str, checks: list[str]) -> str:
    """Run checks in a process that has the mutation; return what they said."""
    path = os.pathsep.join(str(ROOT / part) for part in ("core", "tests"))
    mutation = {"module": module, "old": old, "new": new, "checks": checks}
    done = subprocess.run(
        [sys.executable, "-m", "harness.mutants"],
        input=json.dumps(mutation),
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


LONG = ("kills", "errors", "swaps")
"""Checks that take long where nothing is found; the matrices beside this run them."""


@pytest.mark.crash
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_missing_safeguard_is_noticed(name: str) -> None:
    module, old, new, checks = MUTANTS[name]
    assert checked(module, old, new, checks) != "survived"


@pytest.mark.crash
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "check",
    [pytest.param(c, marks=[pytest.mark.slow] if c in LONG else []) for c in CHECKS],
)
def test_the_writer_as_it_is_passes(check: str) -> None:
    assert checked("", "", "", [check]) == "survived"
