"""Every word that a snapshot can hold is explained, and nothing speaks of content."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import heaveto
import heaveto.observe
from heaveto import liveness
from heaveto.checkpoint.report import ReasonCode, RecoveryStatus
from heaveto.controls import words as control_words
from heaveto.errors import OperationError
from heaveto.model import OperationStatus, RunState, RunStatus
from heaveto.observe import attention
from heaveto.observe.snapshot import ControlClass
from heaveto.observe.words import EXPLANATIONS, explain, notice

SOURCES = Path(heaveto.observe.__file__).parent


def test_every_word_of_the_enumerations() -> None:
    words = [
        *RunState,
        *RunStatus,
        *OperationStatus,
        *get_args(ControlClass),
        *RecoveryStatus,
        *ReasonCode,
    ]
    assert [word for word in words if explain(str(word)) is None] == []


def test_every_code_of_operations_and_liveness() -> None:
    documented = f"{OperationError.__doc__} {liveness.Liveness.__dict__}"
    assert OperationError.__doc__ is not None
    codes = re.findall(r"``([a-z_ \n]+)``", OperationError.__doc__)
    codes += re.findall(r'code="([a-z_]+)"', source(liveness.__file__))
    codes += re.findall(r'"[^"]*", "([a-z_]+)"\n', source(liveness.__file__))
    found = {word for text in codes for word in text.split()}
    assert {"pid_reused", "rebooted", "process_gone", "other_host"} <= found, documented
    assert {word for word in found if explain(word) is None} == set()


def source(path: str | None) -> str:
    assert path is not None
    return Path(path).read_text("utf-8")


def test_every_warning_that_is_made_is_in_the_table() -> None:
    made = set()
    for path in SOURCES.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id == "notice" and isinstance(node.args[0], ast.Constant):
                made.add(node.args[0].value)
    assert len(made) > 15
    assert made <= EXPLANATIONS.keys()


CORE = Path(heaveto.__file__).parent


def core_sources() -> str:
    return "\n".join(path.read_text("utf-8") for path in sorted(CORE.rglob("*.py")))


def test_every_reason_for_a_skip_is_in_the_table() -> None:
    codes = set(re.findall(r'_reason\(\s*"([a-z_]+)"', core_sources()))
    assert "upstream_failed" in codes
    assert codes <= EXPLANATIONS.keys()


def test_every_reason_for_the_end_of_a_run_is_in_the_table() -> None:
    codes = set(re.findall(r'"(run\.[a-z_]+(?:\.[a-z_]+)?)"', core_sources()))
    codes -= {"run.json"}
    assert "run.failed.operation" in codes
    assert codes <= EXPLANATIONS.keys()


def test_weights_are_given_to_known_codes() -> None:
    assert set(attention._WARNINGS) <= EXPLANATIONS.keys()


def test_stored_results_are_explained_by_their_stable_part() -> None:
    for result in (
        control_words.NO_PENDING,
        control_words.SWEPT,
        control_words.unsupported("stop"),
        control_words.error_result("text"),
        control_words.resolved("applied", "alice", "applying"),
        control_words.resolved("abandoned", "alice", "applying"),
        control_words.claim_text("runner-7").split(":")[0],
        control_words.APPLIED,
    ):
        assert explain(result) is not None, result
    assert explain(control_words.NO_PENDING) != explain(control_words.SWEPT)
    assert explain("no such code") is None


def test_entries_are_sentences_with_something_to_do() -> None:
    for code, entry in EXPLANATIONS.items():
        assert entry.text.endswith("."), code
        assert entry.what_to_do.endswith("."), code
        assert entry.text[0].isupper() or entry.text.startswith(
            ("checkpoint", "lionagi")
        ), code
        assert "|" not in entry.text + entry.what_to_do


def test_a_notice_takes_its_advice_from_the_table() -> None:
    plain = notice("survivors")
    own = notice("survivors", "2 processes of it still there.")
    assert plain.text == EXPLANATIONS["survivors"].text
    assert own.what_to_do == plain.what_to_do
    assert own.as_dict() == {
        "code": "survivors",
        "text": "2 processes of it still there.",
        "what_to_do": plain.what_to_do,
    }
