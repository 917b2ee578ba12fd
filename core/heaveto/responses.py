"""From what a worker answered, or raised, to the outcome of its operation.

Pure. A response is taken as it is but for three things: a gate must give a verdict, a
``context`` must be an object that leaves the operator's messages alone, and a request
that this version cannot serve fails the operation instead of being ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from heaveto import steer
from heaveto.errors import OperationError, told
from heaveto.model import OperationStatus, Outcome

if TYPE_CHECKING:
    from heaveto.model import Node

__all__ = [
    "completion",
    "context_update",
    "cut_off",
    "failure",
    "is_rejection",
    "json_copy",
    "merged",
]

_TEXT_LIMIT = 4000
"""Characters of an error text that are kept."""

_REQUESTS = ("spawn", "escalate")


def completion(node: Node, response: object) -> Outcome:
    """Check a response and make it the outcome of its operation.

    Raises:
        OperationError: A gate without a verdict, or a request that is not supported.
    """
    answer = response if isinstance(response, Mapping) else {}
    if node.gate and answer.get("gate_verdict") not in ("pass", "reject"):
        raise OperationError(
            'a gate must answer with an object with gate_verdict "pass" or "reject"',
            code="output_invalid",
        )
    for member in _REQUESTS:
        if answer.get(member):
            raise OperationError(
                f"the response asks to {member}, which this version does not support",
                code="output_invalid",
            )
    return Outcome(
        operation_id=node.id, status=OperationStatus.COMPLETED, response=response
    )


def context_update(response: object) -> Mapping[str, object]:
    """Return what a response adds to the shared context (SPEC C-13).

    Raises:
        OperationError: ``context`` is no object, or sets what belongs to the operator.
    """
    if not isinstance(response, Mapping) or "context" not in response:
        return {}
    update = response["context"]
    if not isinstance(update, Mapping):
        raise OperationError(
            "the context of a response must be an object", code="context_invalid"
        )
    if steer.QUEUE_KEY in update:
        raise OperationError(
            f"a response must not set {steer.QUEUE_KEY}", code="context_invalid"
        )
    return update


def failure(operation_id: str, error: Exception) -> Outcome:
    """Return the outcome of an operation whose worker raised.

    Args:
        operation_id: Which operation.
        error: An :class:`OperationError` keeps its code (``cancelled`` means cut off,
            which is no failure); anything else is a ``worker_error``.
    """
    if not isinstance(error, OperationError):
        return _failed(operation_id, "worker_error", told(error))
    if error.code == "cancelled":
        return cut_off(operation_id, error.message)
    return _failed(operation_id, error.code, error.message)


def cut_off(operation_id: str, text: str | None = None) -> Outcome:
    """Return the end of an operation that was stopped from outside: no outcome."""
    return Outcome(
        operation_id=operation_id,
        status=OperationStatus.CANCELLED,
        error_code="cancelled",
        error_text=text,
        reason={"code": "cancelled"},
    )


def is_rejection(node: Node, outcome: Outcome) -> bool:
    """Tell whether a gate has completed and says no."""
    return (
        node.gate
        and outcome.status is OperationStatus.COMPLETED
        and isinstance(outcome.response, Mapping)
        and outcome.response.get("gate_verdict") == "reject"
    )


def merged(
    base: Mapping[str, object], update: Mapping[str, object]
) -> dict[str, object]:
    """Return the base with the update merged over it, object into object.

    Neither is changed; what the update does not touch is shared.
    """
    result = dict(base)
    for key, value in update.items():
        old = result.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            result[key] = merged(old, value)
        else:
            result[key] = value
    return result


def json_copy(value: Any) -> Any:
    """Return a copy whose containers are new; what is in them is shared."""
    if isinstance(value, dict):
        return {key: json_copy(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [json_copy(inner) for inner in value]
    return value


def _failed(operation_id: str, code: str, text: str) -> Outcome:
    text = text[:_TEXT_LIMIT]
    return Outcome(
        operation_id=operation_id,
        status=OperationStatus.FAILED,
        response={"error": text, "code": code},
        error_code=code,
        error_text=text,
    )
