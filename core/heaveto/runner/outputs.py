"""The digest of a completed operation's response (FORMATS 10).

It goes into the checkpoint beside the response and shows accidental change; it is no
protection against a deliberate one.
"""

from __future__ import annotations

import hashlib
import json

from heaveto.checkpoint import normalize
from heaveto.errors import CheckpointValueError

__all__ = ["result_digest"]


def result_digest(response: object) -> str | None:
    """Return the digest of a response; pure, in time proportional to its size.

    Args:
        response: As the worker gave it; it is normalised first.

    Returns:
        128 hexadecimal digits; None when the response cannot be captured, which the
        checkpoint's record of it will say.
    """
    try:
        whole = {"artifacts": [], "response": normalize(response)}
    except CheckpointValueError:
        return None
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.blake2b(text.encode("ascii")).hexdigest()
