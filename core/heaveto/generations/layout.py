r"""The bytes and names of a generation store; pure, no input or output.

::

    <root>/current                          gen-0041      ASCII, at most one final LF
    <root>/gen-0041/recognizers.jsonl             one JSON object a line, LF ended
    <root>/gen-0041/discovery_candidates.jsonl    one JSON object a line, LF ended
    <root>/gen-0041/session_state.json            one object; absent in schema 1
    <root>/gen-0041/manifest.json                 one object, indent 2

Every object is written with sorted keys and ASCII only; all but the manifest compact.
The flat layout of earlier versions holds the same four files directly in the root and
no ``current``.

A generation is committed if and only if ``current`` names it or named it before: the
atomic replacement of ``current`` is the only commit point. ``current`` must match
``gen-(\d{4}|[1-9]\d{4,})`` in ASCII digits; anything else is malformed and is never
used as a path (SPEC J-31).

Beside these names a store may hold ``.pending`` (the name of a generation that was
begun and not committed; it tells an abandoned attempt from anything else), hidden
temporary files, and ``aside-<8 hex>`` directories (what was moved out of the way
because nothing says that it may be deleted). No load reads any of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heaveto.errors import GenerationError, IncompatibleEngineStateError
from heaveto.jsonvalue import JsonError, loads_strict

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "CANDIDATES",
    "CURRENT",
    "FILES",
    "MANIFEST",
    "PENDING",
    "RECOGNIZERS",
    "SCHEMA_VERSION",
    "SESSION_STATE",
    "Manifest",
    "decode_lines",
    "decode_manifest",
    "decode_object",
    "encode_lines",
    "encode_manifest",
    "encode_object",
    "generation_name",
    "generation_number",
    "parse_pointer",
]

RECOGNIZERS = "recognizers.jsonl"
CANDIDATES = "discovery_candidates.jsonl"
SESSION_STATE = "session_state.json"
MANIFEST = "manifest.json"
FILES = (RECOGNIZERS, CANDIDATES, SESSION_STATE, MANIFEST)
CURRENT = "current"
PENDING = ".pending"
SCHEMA_VERSION = 2

_NAME = re.compile(r"gen-([0-9]{4}|[1-9][0-9]{4,})")
_POINTER_LIMIT = 64


def generation_name(number: int) -> str:
    """Return ``gen-NNNN``: four digits at least, more from 10,000 on (SPEC J-10)."""
    return f"gen-{number:04d}"


def generation_number(name: str) -> int | None:
    """Return the number of a strict generation name, None for any other name."""
    found = _NAME.fullmatch(name) if len(name) <= _POINTER_LIMIT else None
    return int(found[1]) if found else None


def parse_pointer(data: bytes) -> int:
    """Return the generation number that the content of ``current`` names.

    Raises:
        GenerationError: ``pointer_malformed``; the content is not repeated.
    """
    text = data[: _POINTER_LIMIT + 1].decode("ascii", "replace").removesuffix("\n")
    number = generation_number(text)
    if number is None:
        raise GenerationError(
            "current does not hold the name of a generation", code="pointer_malformed"
        )
    return number


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What the manifest of one generation says."""

    schema_version: int
    turn_count: int
    written_at_revision: str
    engine_identity: str = ""
    parent_engine_identity: str = ""

    def as_dict(self) -> dict[str, object]:
        """Return the members that are stored: identities only when they are known."""
        members: dict[str, object] = {
            "schema_version": self.schema_version,
            "turn_count": self.turn_count,
            "written_at_revision": self.written_at_revision,
        }
        if self.engine_identity:
            members["engine_identity"] = self.engine_identity
        if self.parent_engine_identity:
            members["parent_engine_identity"] = self.parent_engine_identity
        return members


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the manifest's bytes."""
    try:
        text = json.dumps(manifest.as_dict(), indent=2, sort_keys=True)
    except ValueError as error:  # more digits than the interpreter converts
        raise _refused(f"{MANIFEST}: cannot be stored as JSON", error) from None
    return text.encode("ascii")


def decode_manifest(data: bytes, where: str) -> dict[str, Any] | None:
    """Read a manifest.

    Args:
        data: The file's bytes.
        where: The file's name in messages, such as ``gen-0041/manifest.json``.

    Returns:
        All members as stored; None for an empty file (SPEC J-16).

    Raises:
        IncompatibleEngineStateError: A schema that this version does not know.
        GenerationError: ``state_corrupt``, for anything but a JSON object.
    """
    if not data:
        return None
    manifest = decode_object(data, where)
    version = manifest.get("schema_version", 0)
    if type(version) is not int or not 0 <= version <= SCHEMA_VERSION:
        raise IncompatibleEngineStateError(
            f"{where}: schema_version is not one of 0 to {SCHEMA_VERSION}"
        )
    return manifest


def decode_object(data: bytes, where: str) -> dict[str, Any]:
    """Read one JSON object strictly; ``state_corrupt`` for anything else."""
    try:
        value = loads_strict(data)
    except JsonError as error:
        raise GenerationError(
            f"{where}: not valid JSON ({error.kind})", code="state_corrupt"
        ) from None
    if not isinstance(value, dict):
        raise GenerationError(f"{where}: not a JSON object", code="state_corrupt")
    return value


def decode_lines(data: bytes, where: str) -> list[dict[str, Any]]:
    """Read one JSON object a line; only LF ends a line (SPEC J-38)."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [
        decode_object(line, f"{where} line {number}")
        for number, line in enumerate(lines, 1)
    ]


def encode_object(value: object, where: str) -> bytes:
    """Return one record as compact JSON with sorted keys.

    Args:
        value: A mapping, an object with ``as_dict() -> dict`` or one with
            ``to_json() -> str``. Names that are no text are spelled as JSON does, and
            tuples become arrays.
        where: What is being saved, for the message; never the content.

    Raises:
        GenerationError: ``state_value`` for what is no JSON object, is not finite, or
            could not be read back (SPEC J-39).
    """
    try:
        plain = _as_mapping(value, where)
        text = json.dumps(
            dict(plain), sort_keys=True, separators=(",", ":"), allow_nan=False
        )
        data = text.encode("ascii")
        loads_strict(data)
    except GenerationError:
        raise
    except (TypeError, ValueError, RecursionError, JsonError) as error:
        raise _refused(f"{where}: cannot be stored as JSON", error) from None
    except Exception as error:  # a record's own methods may raise anything
        raise _refused(f"{where}: cannot be stored as JSON", error) from error
    return data


def _refused(what: str, error: Exception) -> GenerationError:
    """Name the kind of an error, never what it may quote."""
    return GenerationError(f"{what} ({type(error).__name__})", code="state_value")


def encode_lines(values: Iterable[object], where: str) -> bytes:
    """Return the records, one LF-ended line each."""
    try:
        return b"".join(
            encode_object(value, f"{where} record {number}") + b"\n"
            for number, value in enumerate(values, 1)
        )
    except GenerationError:
        raise
    except Exception as error:  # the caller's iterable runs code of its own
        raise _refused(f"{where}: cannot be iterated", error) from error


def _as_mapping(value: object, where: str) -> Mapping[str, Any]:
    """Turn one of the three accepted kinds of record into a mapping."""
    if hasattr(value, "to_json") and not isinstance(value, Mapping):
        text = value.to_json()
        if not isinstance(text, str):
            raise GenerationError(f"{where}: to_json gave no text", code="state_value")
        try:
            value = loads_strict(text.encode("utf-8", "surrogatepass"))
        except JsonError as error:
            raise GenerationError(
                f"{where}: to_json gave no valid JSON ({error.kind})",
                code="state_value",
            ) from None
    elif hasattr(value, "as_dict") and not isinstance(value, Mapping):
        value = value.as_dict()
    if not isinstance(value, Mapping):
        raise GenerationError(f"{where}: not a JSON object", code="state_value")
    return value
