"""Runners as processes: steered from outside, killed, interrupted, detached."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from harness.program import Program, program, until
from heaveto.checkpoint import load_checkpoint
from heaveto.detach import StartError, start

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.crash


@pytest.fixture
def heaveto(tmp_path: Path) -> Iterator[Program]:
    with program(tmp_path) as made:
        yield made


def write_flow(
    folder: Path, operations: str, *, name: str = "flow", **workers: str
) -> Path:
    """Write a flow of shell commands; each worker is a script."""
    path = folder / f"{name}.toml"
    parts = [f'[flow]\nname = "{name}"\n']
    for key, script in workers.items():
        parts.append(
            f'[workers.{key}]\nkind = "command"\ngrace = "{GRACE.get(key, "10s")}"\n'
            f"argv = [\"sh\", \"-c\", '''{script}''']\n"
        )
    for line in operations.split():
        own, _, needs = line.partition("<")
        operation, _, worker = own.partition(":")
        heads = json.dumps([head for head in needs.split(",") if head])
        parts.append(
            f'[[operations]]\nid = "{operation}"\nworker = "{worker}"\n'
            f'instruction = "do {operation}"\ndepends_on = {heads}\n'
        )
    path.write_text("\n".join(parts))
    return path


GRACE = {"stubborn": "0.2s"}
WAITS = 'echo here; while [ ! -e "$PWD/go" ]; do sleep 0.05; done; cat'
QUICK = "cat"


def go(folder: Path) -> None:
    (folder / "go").touch()


def started(heaveto: Program, session: str, name: str) -> bool:
    found = {one["name"]: one["status"] for one in heaveto.show(session)["operations"]}
    return bool(found[name] == "running")


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# --- steered from another process


def test_a_run_is_paused_told_something_and_resumed_from_outside(
    heaveto: Program, tmp_path: Path
) -> None:
    flow = write_flow(tmp_path, "a:waits b:quick<a c:quick<b", waits=WAITS, quick=QUICK)
    process, session = heaveto.run_live(flow, "--json")
    until(lambda: started(heaveto, session, "a"))
    answer = heaveto("ctl", "pause", session[:8], "--json")
    assert answer.code == 0
    assert answer.json["queued"] is True
    assert set(answer.json["control"]) == {
        "id",
        "verb",
        "session_id",
        "run_id",
        "created_at",
    }
    assert heaveto("ctl", "msg", session, "-", stdin=b"be brief\n").code == 0
    go(tmp_path)
    until(lambda: heaveto.show(session)["state"] == "paused")
    status = heaveto("ctl", "status", session, "--json")
    assert status.code == 3
    assert [one["class"] for one in status.json["controls"]] == ["applied", "applied"]
    assert heaveto("ctl", "resume", session).code == 0
    code, out, err = heaveto.end(process)
    assert code == 0, err
    shown = json.loads(out)
    again = heaveto.show(session)
    for one in (shown, again):
        del one["observed_at"]
        for control in one["controls"]:
            del control["age_s"]
    assert shown == again
    assert shown["status"] == "completed"
    message = shown["controls"][1]
    b = next(one for one in shown["operations"] if one["name"] == "b")
    assert message["rendered_into"] == b["id"]
    assert message["text"] == "be brief\n"
    logs = heaveto("logs", session, "b").out
    assert "be brief" in logs
    assert "do b" in logs
    assert heaveto("ctl", "status", session).code == 0


def test_a_show_after_a_commit_shows_it(heaveto: Program, tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(12)]
    chained = " ".join(
        f"{name}:quick" + (f"<{names[at - 1]}" if at else "")
        for at, name in enumerate(names)
    )
    flow = write_flow(tmp_path, chained, quick=QUICK)
    process = heaveto.start("run", flow)
    assert process.stderr is not None
    session = ""
    checked = 0
    for line in process.stderr:
        words = line.decode().split()
        if "session" in words:
            session = words[words.index("session") + 1]
        if len(words) > 2 and words[2].startswith("persisted"):
            operations = heaveto.show(session)["operations"]
            found = {one["name"]: one for one in operations}[words[1]]
            assert found["persisted"] is True, line
            checked += 1
    assert process.wait() == 0
    assert checked == len(names)


# --- killed


def test_a_killed_runner_is_dead_at_once_and_its_children_are_named(
    heaveto: Program, tmp_path: Path
) -> None:
    stubborn = "trap '' TERM; sleep 300 & echo $!; wait; wait; sleep 300"
    flow = write_flow(tmp_path, "a:stubborn b:stubborn<a", stubborn=stubborn)
    process, session = heaveto.run_live(flow)
    until(
        lambda: heaveto("logs", session, "a", "--json").json["operations"][0]["output"]
    )
    killed_at = time.monotonic()
    process.kill()
    process.wait()
    until(lambda: heaveto.show(session)["state"] == "dead", limit=3)
    assert time.monotonic() - killed_at < 3 + 60  # a bound on hanging, not a figure
    [run] = heaveto.runs()
    assert run["status"] == "running"
    assert run["alive"] is False
    assert run["state"] == "dead"
    shown = heaveto.show(session)
    assert {o["name"]: o["status"] for o in shown["operations"]} == {
        "a": "lost",
        "b": "unstarted",
    }
    assert "survivors" in {warning["code"] for warning in shown["warnings"]}
    text = heaveto("show", session).out
    pids = _survivors(text)
    assert len(pids) >= 2, text
    assert all(alive(pid) for pid in pids)

    refused = heaveto("ctl", "pause", session, "--json")
    assert refused.code == 2
    assert refused.error == "dead_run"
    assert str(process.pid) in refused.err
    assert heaveto("wait", session).code == 1
    assert heaveto("ctl", "status", session).code == 1
    assert "dead" in heaveto("doctor", "--json").out

    closed = heaveto("close", session, "--json")
    assert closed.code == 0
    assert closed.json["run"]["status"] == "failed"
    assert heaveto("close", session).code == 0
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not any(alive(pid) for pid in pids))


def _survivors(text: str) -> list[int]:
    """Return the pids that a text names as still running."""
    _, _, rest = text.partition("STILL RUNNING")
    words = rest.replace(",", " ").split()
    return [int(b) for a, b in itertools.pairwise(words) if a == "pid"]


def test_what_was_acknowledged_survives_a_kill(
    heaveto: Program, tmp_path: Path
) -> None:
    flow = write_flow(tmp_path, "a:quick b:quick c:waits<a,b", waits=WAITS, quick=QUICK)
    process, session = heaveto.run_live(flow)
    until(lambda: started(heaveto, session, "c"))

    def saved() -> bool:
        found = heaveto.show(session)["operations"]
        return sum(one["persisted"] is True for one in found) == 2

    until(saved)
    process.kill()
    process.wait()
    [run] = (heaveto.home / "runs").iterdir()
    state = load_checkpoint(run / "checkpoint.json").state
    assert set(state["ops"]) == {"a", "b"}
    go(tmp_path)


# --- signals


@pytest.mark.parametrize(
    ("number", "code", "status", "reason"),
    [
        (signal.SIGINT, 130, "aborted", "run.aborted.sigint"),
        (signal.SIGTERM, 143, "cancelled", "run.cancelled.sigterm"),
        (signal.SIGHUP, 143, "cancelled", "run.cancelled.sighup"),
    ],
)
def test_a_signal_drains(
    heaveto: Program,
    tmp_path: Path,
    number: signal.Signals,
    code: int,
    status: str,
    reason: str,
) -> None:
    flow = write_flow(tmp_path, "a:waits b:quick<a", waits=WAITS, quick=QUICK)
    process, session = heaveto.run_live(flow, "--json")
    until(lambda: started(heaveto, session, "a"))
    process.send_signal(number)
    until(lambda: heaveto.show(session)["state"] == "stopping")
    go(tmp_path)
    ended, out, err = heaveto.end(process)
    assert ended == code, err
    shown = json.loads(out)
    assert (shown["status"], shown["reason_code"]) == (status, reason)
    found = {one["name"]: one for one in shown["operations"]}
    assert found["a"]["status"] == "completed"
    assert found["a"]["persisted"] is True
    assert found["b"]["executed"] is False or found["b"]["status"] != "completed"
    assert heaveto("wait", session).code == code


def test_the_grace_ends_what_does_not_listen(heaveto: Program, tmp_path: Path) -> None:
    stubborn = "trap '' TERM; sleep 300 & echo $!; wait; wait; sleep 300"
    flow = write_flow(tmp_path, "a:stubborn", stubborn=stubborn)
    process, session = heaveto.run_live(flow)
    operation = until(
        lambda: heaveto("logs", session, "--json").json["operations"][0]["output"]
    )
    child = int(operation.split()[0])
    process.send_signal(signal.SIGTERM)
    code, _, _ = heaveto.end(process)
    assert code == 143
    assert not alive(child)
    shown = heaveto.show(session)
    assert shown["status"] == "cancelled"
    [a] = shown["operations"]
    assert a["status"] != "completed"
    assert a["persisted"] is not True


def test_a_second_signal_skips_the_wait(heaveto: Program, tmp_path: Path) -> None:
    flow = write_flow(tmp_path, "a:waits", waits="echo here; sleep 300")
    process, session = heaveto.run_live(flow)
    until(lambda: started(heaveto, session, "a"))
    process.send_signal(signal.SIGINT)
    until(lambda: heaveto.show(session)["state"] == "stopping")
    process.send_signal(signal.SIGINT)
    code, _, err = heaveto.end(process)
    assert code == 130
    assert "again" in err


def test_a_thread_that_never_returns_does_not_hold_the_process(
    heaveto: Program, tmp_path: Path
) -> None:
    (tmp_path / "sleeper.py").write_text(
        "import time\ndef work(request):\n    time.sleep(3600)\n"
    )
    flow = tmp_path / "thread.toml"
    flow.write_text(
        '[flow]\nname = "t"\n[workers.w]\nkind = "python"\ncall = "sleeper:work"\n'
        '[[operations]]\nid = "a"\nworker = "w"\ninstruction = "x"\n'
    )
    process, session = heaveto.run_live(flow)
    until(lambda: started(heaveto, session, "a"))
    process.send_signal(signal.SIGTERM)
    until(lambda: heaveto.show(session)["state"] == "stopping")
    process.send_signal(signal.SIGTERM)
    assert heaveto.end(process)[0] == 143


# --- standard error and output that go away


def test_a_run_goes_on_when_nobody_reads_it_any_more(
    heaveto: Program, tmp_path: Path
) -> None:
    flow = write_flow(tmp_path, "a:waits b:quick<a", waits=WAITS, quick=QUICK)
    process, session = heaveto.run_live(flow)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stderr.close()
    go(tmp_path)
    assert process.wait(60) == 0
    assert heaveto.show(session)["status"] == "completed"
    process.stdout, process.stderr = None, None


# --- detached


def test_a_detached_run_is_registered_when_the_command_returns(
    heaveto: Program, tmp_path: Path
) -> None:
    flow = write_flow(tmp_path, "a:waits", waits=WAITS)
    answer = heaveto("--home", heaveto.home, "run", flow, "--detach")
    assert answer.code == 0, answer
    run_id = answer.out.strip()
    shown = heaveto.show(run_id)
    assert shown["alive"] is True
    pid = psutil.Process(_runner_pid(heaveto.home / "runs" / run_id))
    assert os.getsid(pid.pid) == pid.pid
    assert os.readlink(f"/proc/{pid.pid}/fd/0") == "/dev/null"
    go(tmp_path)
    assert heaveto("wait", run_id).code == 0
    log = (heaveto.home / "runs" / run_id / "runner.log").read_text()
    assert "a executed" in log
    assert "a persisted" in log


def _runner_pid(run: Path) -> int:
    from heaveto.files import lock_holder

    pid = lock_holder(run / ".lock")
    assert pid
    return pid


def test_a_detached_run_with_json_prints_the_run(
    heaveto: Program, tmp_path: Path
) -> None:
    flow = write_flow(tmp_path, "a:quick", quick=QUICK)
    answer = heaveto("run", flow, "--detach", "--json")
    assert answer.code == 0
    shown = answer.json
    assert shown["name"] == "flow"
    assert [one["name"] for one in shown["operations"]] in ([], ["a"])
    assert heaveto("wait", shown["session_id"]).code == 0


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_runner_that_cannot_start_is_reported(
    heaveto: Program, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    heaveto.home.mkdir(mode=0o777)
    heaveto.home.chmod(0o777)
    flow = write_flow(tmp_path, "a:quick", quick=QUICK)
    answer = heaveto("run", flow, "--detach", *flags)
    assert answer.code == 2
    assert "write" in answer.err
    if flags:
        assert answer.error == "foreign_owner"
    assert list(heaveto.home.iterdir()) == []


def test_a_runner_that_dies_early_is_reported_with_its_last_words(
    tmp_path: Path,
) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho 'first' >&2\necho 'no such thing' >&2\nexit 9\n")
    fake.chmod(0o755)
    with pytest.raises(StartError, match="status 9: no such thing") as caught:
        start(["run", "x"], python=str(fake))
    assert caught.value.exit_code == 9
    fake.write_text("#!/bin/sh\nkill -9 $$\n")
    with pytest.raises(StartError, match="signal 9"):
        start(["run", "x"], python=str(fake))


def test_a_folder_of_the_users_cannot_stand_in_for_the_program(
    heaveto: Program, tmp_path: Path
) -> None:
    for name in ("heaveto", "click"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit(99)\n")
    (tmp_path / "json.py").write_text("raise SystemExit(98)\n")
    flow = write_flow(tmp_path, "a:quick", quick=QUICK)
    answer = heaveto("run", flow, "--detach")
    assert answer.code == 0, answer
    assert heaveto("wait", answer.out.strip()).code == 0


# --- notify


def test_notify_runs_once_after_the_end(heaveto: Program, tmp_path: Path) -> None:
    told = tmp_path / "told"
    script = tmp_path / "tell.sh"
    script.write_text(
        '#!/bin/sh\necho "$1 $HEAVETO_RUN_ID $HEAVETO_STATUS $HEAVETO_EXIT" >>"$2"\n'
    )
    script.chmod(0o755)
    flow = write_flow(tmp_path, "a:fails", fails="exit 3")
    answer = heaveto("run", flow, "--notify", f"{script} 'a b' {told}", "--json")
    assert answer.code == 1
    assert told.read_text() == f"a b {answer.json['run_id']} failed 1\n"


def test_the_settings_name_what_is_run_after_an_end(
    heaveto: Program, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    settings = tmp_path / "config.toml"
    settings.write_text(f"""notify = "sh -c 'echo $HEAVETO_STATUS >>{told}'"\n""")
    heaveto.environment["HEAVETO_CONFIG"] = str(settings)
    flow = write_flow(tmp_path, "a:quick", quick=QUICK)
    assert heaveto("run", flow).code == 0
    assert told.read_text() == "completed\n"
    settings.write_text("colour = 1\n")
    answer = heaveto("run", flow, "--json")
    assert (answer.code, answer.error) == (78, "config_invalid")
    assert f"{settings}:1: colour" in answer.err


@pytest.mark.parametrize("command", ["/no/such/program", "sh -c 'exit 4'"])
def test_a_notify_that_fails_is_a_warning(
    heaveto: Program, tmp_path: Path, command: str
) -> None:
    flow = write_flow(tmp_path, "a:quick", quick=QUICK)
    answer = heaveto("run", flow, "--notify", command)
    assert answer.code == 0
    assert "warning: the notify command" in answer.err


@pytest.mark.parametrize("command", ["", "'"])
def test_a_notify_that_is_no_command_is_refused(
    heaveto: Program, tmp_path: Path, command: str
) -> None:
    flow = write_flow(tmp_path, "a:quick", quick=QUICK)
    answer = heaveto("run", flow, "--notify", command)
    assert answer.code == 2
    assert not heaveto.home.exists()


# --- disk that takes no more


def test_files_that_cannot_grow_are_said_and_the_exit_code_says_so(
    heaveto: Program, tmp_path: Path
) -> None:
    assert heaveto("run", write_flow(tmp_path, "a:quick", quick=QUICK)).code == 0
    big = "head -c 400000 /dev/zero | tr '\\0' x"
    flow = write_flow(tmp_path, "a:big b:big<a", name="big", big=big)
    limited = subprocess.run(
        [
            "bash",
            "-c",
            'ulimit -f 600; exec "$@"',
            "bash",
            *_words("run", flow, "--json"),
        ],
        env=heaveto.environment,
        capture_output=True,
        check=False,
        timeout=60,
    )
    shown: dict[str, Any] = json.loads(limited.stdout)
    assert limited.returncode == 1, limited.stderr
    assert b"was not saved" in limited.stderr
    assert b"Traceback" not in limited.stderr
    codes = {warning["code"] for warning in shown["warnings"]}
    assert "persist_failed" in codes


def _words(*words: object) -> list[str]:
    from harness.program import COMMAND

    return [*COMMAND, *map(str, words)]
