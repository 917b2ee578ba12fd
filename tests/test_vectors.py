"""The conformance vectors, through the public functions alone."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import pathlib
from typing import TYPE_CHECKING, Any, cast

import pytest

from harness.units import text
from heaveto.checkpoint import (
    CheckpointRefused,
    CheckpointValueError,
    CheckpointVersionError,
    PatchError,
    RecoveryReport,
    apply_patch,
    diff,
    encode_record,
    load_checkpoint,
    normalize,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VECTORS = pathlib.Path(__file__).parent / "golden" / "vectors"
INDEX = json.loads((VECTORS / "index.json").read_bytes())["vectors"]


def load_vectors() -> list[Any]:
    found = [vector for vector in INDEX if vector["family"] == "load"]
    return [pytest.param(vector, id=vector["id"]) for vector in found]


def lines(family: str) -> Iterator[Any]:
    for row in (VECTORS / f"{family}.jsonl").read_text("utf-8").splitlines():
        vector = json.loads(row)
        yield pytest.param(vector, id=vector["id"])


def test_all_are_here() -> None:
    assert len(INDEX) == 291
    listed = {
        vector["id"].removeprefix("encode/")
        for vector in INDEX
        if vector["family"] != "load"
    }
    found = {
        param.id
        for family in ("patch", "diff", "encode", "normalize")
        for param in lines(family)
    }
    assert listed == found


def outcome(
    path: pathlib.Path,
) -> tuple[RecoveryReport, Mapping[str, Any] | None, CheckpointRefused | None]:
    """Load, and return the report, the state or the prefix, and the refusal."""
    try:
        loaded = load_checkpoint(path)
    except CheckpointRefused as error:
        return cast("RecoveryReport", error.report), error.prefix, error
    return loaded.report, loaded.state, None


@pytest.mark.parametrize("vector", load_vectors())
def test_load(vector: dict[str, Any]) -> None:
    folder = VECTORS / "load" / vector["id"]
    before = {file: file.read_bytes() for file in folder.iterdir()}
    report, state, error = outcome(folder / "checkpoint.json")
    assert report.status == vector["status"]
    assert (error is not None) is (report.status == "refused")
    assert [str(reason.code) for reason in report.reasons] == vector["reason_codes"]
    assert text(report.as_dict()) == text(vector["report"])
    if error is not None:
        is_version = error.code in ("version_ambiguous", "version_unsupported")
        assert error.code == vector["reason_codes"][-1]
        assert isinstance(error, CheckpointVersionError) is is_version
    expected = vector.get("state", vector.get("diagnostic_prefix_state"))
    if expected is None:
        assert state is None
    else:
        assert state is not None
        for name, value in expected.items():
            if isinstance(value, str):  # holds NaN, which JSON cannot say
                continue
            assert text(state[name]) == text(value)
    assert {file: file.read_bytes() for file in folder.iterdir()} == before


@pytest.mark.parametrize("vector", list(lines("patch")))
def test_patch(vector: dict[str, Any]) -> None:
    document = text(vector["doc"])
    if "refuse" in vector:
        with pytest.raises(PatchError) as caught:
            apply_patch(vector["doc"], vector["patch"])
        assert caught.value.code == vector["refuse"]
    else:
        result = apply_patch(vector["doc"], vector["patch"])
        assert text(result) == text(vector["result"])
    assert text(vector["doc"]) == document


@pytest.mark.parametrize("vector", list(lines("encode")))
def test_encode(vector: dict[str, Any]) -> None:
    made = encode_record(vector["record"])
    assert made == vector["line"].encode("ascii")
    if "bound" in vector:
        assert len(made) == vector["length"] <= vector["bound"]


@pytest.mark.parametrize("vector", list(lines("diff")))
def test_diff(vector: dict[str, Any]) -> None:
    ops = diff(vector["before"], vector["after"])
    assert text(apply_patch(vector["before"], ops)) == text(vector["after"])
    if vector["expect_ops"] is None:
        assert len(ops) == 1
        return
    assert len(ops) == len(vector["expect_ops"])
    for op, (verb, paths) in zip(ops, vector["expect_ops"], strict=True):
        assert op["op"] == verb
        assert op["path"] in paths.split("|")


@pytest.mark.parametrize("vector", list(lines("normalize")))
def test_normalize(vector: dict[str, Any]) -> None:
    names = {"datetime": datetime, "decimal": decimal, "enum": enum}
    value = eval(vector["python"], names)
    if "reject" in vector:
        with pytest.raises(CheckpointValueError) as caught:
            normalize(value)
        assert caught.value.reason == vector["reject"]
    else:
        made = json.dumps(normalize(value), separators=(",", ":"))
        assert made == vector["json"]
