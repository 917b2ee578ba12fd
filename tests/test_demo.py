"""The bundled flows and ``demo --headless``."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from harness.program import Program, program, until
from heaveto import Flow
from heaveto.demo import FLOWS
from heaveto.model import RunStatus

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def heaveto(tmp_path: Path) -> Iterator[Program]:
    (tmp_path / "tmp").mkdir()
    with program(tmp_path, TMPDIR=str(tmp_path / "tmp")) as made:
        yield made


def test_the_flows_are_what_they_are_meant_to_be() -> None:
    flows = {one.name: (one, Flow.load(one.path)) for one in FLOWS}
    assert any(
        len(flow.operations) >= 5 and one.ends == RunStatus.COMPLETED
        for one, flow in flows.values()
    )
    assert any(one.ends == RunStatus.FAILED for one, _ in flows.values())
    assert any(one.pauses_at and one.reads for one, _ in flows.values())
    for one, flow in flows.values():
        assert flow.name == one.name


def test_headless_ends_as_its_script_says_and_leaves_nothing(
    heaveto: Program, tmp_path: Path
) -> None:
    # A folder that is no home at all: whoever opened it would be refused.
    heaveto.home.mkdir()
    (heaveto.home / "notes.txt").write_text("mine")
    began = time.monotonic()
    answer = heaveto("demo", "--headless", "--json")
    took = time.monotonic() - began
    assert answer.code == 0, answer
    runs = {run["name"]: run for run in answer.json["runs"]}
    assert set(runs) == {one.name for one in FLOWS}
    for one in FLOWS:
        assert runs[one.name]["status"] == one.ends
    assert took < 120  # it never hangs; how long it takes is measured elsewhere
    assert list((tmp_path / "tmp").iterdir()) == []
    assert [path.name for path in heaveto.home.iterdir()] == ["notes.txt"]
    homes = {run["home"] for run in runs.values()}
    assert all(Path(home).parent == tmp_path / "tmp" for home in homes)


def test_kept_it_can_be_looked_at_and_the_message_changed_what_was_done(
    heaveto: Program, tmp_path: Path
) -> None:
    answer = heaveto("demo", "--keep")
    assert answer.code == 0, answer
    [folder] = (tmp_path / "tmp").iterdir()
    assert str(folder) in answer.err
    assert folder.stat().st_mode & 0o777 == 0o700
    shown = heaveto("ls", "--home", folder, "--json")
    steered = next(run for run in shown.json["runs"] if run["name"] == "steer-me")
    logs = heaveto("logs", "--home", folder, steered["session_id"], "--json").json
    output = {one["name"]: one["output"] for one in logs["operations"]}
    assert output["draft"].startswith("Draft, as the operator asked: ")
    assert "nobody asked" in output["review"]


def test_an_interrupted_demo_ends_its_runs_and_removes_its_folder(
    heaveto: Program, tmp_path: Path
) -> None:
    process = heaveto.start("demo", "--headless")
    folder = until(lambda: next(iter((tmp_path / "tmp").iterdir()), None))

    def all_registered() -> bool:
        if not (folder / "state.db").exists():
            return False
        answer = heaveto("ls", "--home", folder, "--json")
        return answer.code == 0 and len(answer.json["runs"]) == len(FLOWS)

    until(all_registered)
    runners = [
        one.pid
        for one in psutil.process_iter(["cmdline"])
        if str(folder) in (one.info["cmdline"] or [])
    ]
    os.kill(process.pid, signal.SIGINT)
    code, _, _ = heaveto.end(process)
    assert code == 130
    assert not folder.exists()
    assert len(runners) == len(FLOWS)
    until(lambda: not any(psutil.pid_exists(pid) for pid in runners))
