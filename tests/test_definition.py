"""Conditions on edges and scripted replies: what they say yes to."""

from __future__ import annotations

from typing import Any

import pytest

from heaveto.definition import Reply, When, parse_pointer, same_json

RESPONSE = {"verdict": "ok", "n": 1, "l": [1, {"x": None}], "a/b": {"~": 2}, "": 3}
CONTEXT = {"mode": "fast", "verdict": "no"}


@pytest.mark.parametrize(
    ("at", "test", "value", "open_"),
    [
        ("/verdict", "equals", "ok", True),
        ("/verdict", "equals", "no", False),
        ("/verdict", "not_equals", "ok", False),
        ("/verdict", "not_equals", "no", True),
        ("/verdict", "exists", True, True),
        ("/verdict", "exists", False, False),
        ("/nope", "equals", None, False),
        ("/nope", "not_equals", "x", True),
        ("/nope", "exists", True, False),
        ("/nope", "exists", False, True),
        ("/l/1/x", "equals", None, True),
        ("/l/1/x", "exists", True, True),
        ("/l/0", "equals", 1.0, True),
        ("/l/0", "equals", True, False),
        ("/l/2", "exists", True, False),
        ("/l/-1", "exists", True, False),
        ("/l/00", "exists", True, False),
        ("/l/-", "exists", True, False),
        ("/l/99999999999999999999", "exists", True, False),
        ("/l", "equals", [1, {"x": None}], True),
        ("/a~1b/~0", "equals", 2, True),
        ("/", "equals", 3, True),
        ("/verdict/0", "exists", True, False),
        ("", "exists", True, True),
        ("context:/mode", "equals", "fast", True),
        ("context:/verdict", "equals", "no", True),
        ("context:", "equals", CONTEXT, True),
    ],
)
def test_a_condition(at: str, test: Any, value: object, open_: bool) -> None:
    assert When(at=at, test=test, value=value).apply(RESPONSE, CONTEXT) is open_


@pytest.mark.parametrize("response", ["ok", None, 5, True, [], ["ok"]])
def test_a_response_that_is_no_object(response: object) -> None:
    there = When(at="/verdict", test="exists", value=True)
    assert there.apply(response, {}) is False
    whole = When(at="", test="equals", value=response)
    assert whole.apply(response, {}) is True


def test_conditions_in_words() -> None:
    assert When(at="/v", test="equals", value="ok").text == '/v = "ok"'
    assert When(at="", test="not_equals", value=1).text == "the response ≠ 1"
    assert When(at="/v", test="exists", value=True).text == "/v exists"
    assert When(at="/v", test="exists", value=False).text == "/v is absent"
    assert len(When(at="/v", test="equals", value="x" * 500).text) < 100


@pytest.mark.parametrize("pointer", ["a", "/~", "/~2", "/a~~01", "/~0~"])
def test_a_bad_pointer(pointer: str) -> None:
    with pytest.raises(ValueError, match="pointer"):
        parse_pointer(pointer)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        (True, True, True),
        ("1", 1, False),
        (None, False, False),
        ([1, [2]], [1, [2.0]], True),
        ([1], [1, 2], False),
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1}, {"b": 1}, False),
        ({"a": [True]}, {"a": [1]}, False),
        ({}, [], False),
        ((1, 2), [1, 2], True),
    ],
)
def test_equality_of_json(one: object, other: object, same: bool) -> None:
    assert same_json(one, other) is same
    assert same_json(other, one) is same


def test_which_reply_applies() -> None:
    assert Reply().applies("x", 3)
    assert Reply(operation="x").applies("x", 1)
    assert not Reply(operation="x").applies("y", 1)
    assert Reply(attempt=2).applies("y", 2)
    assert not Reply(attempt=2).applies("y", 1)
