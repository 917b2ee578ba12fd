"""What workers print, or close, never reaches an answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

NOISY = """
import os, subprocess, sys, threading
print("IMPORTED \\x1b[31m")


def loud(request):
    print("PRINTED \\x1b]52;c;YQ==\\x07")
    os.write(1, b"WRITTEN \\x9b31m \\xff\\n")
    subprocess.run(["sh", "-c", "echo FROM-A-CHILD"], check=True)
    thread = threading.Thread(target=print, args=("FROM-A-THREAD",))
    thread.start()
    thread.join()
    sys.stdout.write("no end of line")
    return "ok"


def closes(request):
    sys.stdout.close()
    return "ok"
"""


def flow(tmp_path: Path, *calls: str) -> Path:
    (tmp_path / "noisy_worker.py").write_text(NOISY)
    lines = ["[flow]", 'name = "noisy"']
    for call in calls:
        lines += [f"[workers.{call}]", 'kind = "python"']
        lines += [f'call = "noisy_worker:{call}"']
        lines += ["[[operations]]", f'id = "{call}"', f'worker = "{call}"']
        lines += ['instruction = "go"']
    path = tmp_path / "noisy.toml"
    path.write_text("\n".join(lines))
    return path


def heaveto(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    path = os.pathsep.join([str(tmp_path), *sys.path])
    return subprocess.run(
        [sys.executable, "-m", "heaveto", "--home", str(tmp_path / "home"), *words],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )


def test_an_answer_is_one_object_whatever_workers_print(tmp_path: Path) -> None:
    done = heaveto(tmp_path, "run", str(flow(tmp_path, "loud")), "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["status"] == "completed"
    for word in (b"IMPORTED", b"PRINTED", b"WRITTEN", b"FROM-A-CHILD"):
        assert word in done.stderr
    assert b"FROM-A-THREAD" in done.stderr
    assert b"no end of line" in done.stderr
    assert b"\x1b" not in done.stdout + done.stderr
    assert "\x9b" not in done.stderr.decode()


def test_text_is_kept_apart_too(tmp_path: Path) -> None:
    done = heaveto(tmp_path, "run", str(flow(tmp_path, "loud")))
    assert done.returncode == 0
    assert b"PRINTED" not in done.stdout
    assert b"\x1b" not in done.stdout


@pytest.mark.parametrize("words", [["--json"], []])
def test_a_worker_may_close_standard_output(words: list[str], tmp_path: Path) -> None:
    done = heaveto(tmp_path, "run", str(flow(tmp_path, "closes")), *words)
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr
    assert b"completed" in done.stdout or b"done" in done.stdout


def test_a_dry_run_keeps_an_import_apart(tmp_path: Path) -> None:
    (tmp_path / "noisy_flow.py").write_text(
        "from heaveto import Flow, Operation\n"
        "print('IMPORTED')\n"
        "flow = Flow('f', [Operation('a', 'w', 'x')],\n"
        "            workers={'w': {'kind': 'command', 'argv': ['cat']}})\n"
    )
    done = heaveto(tmp_path, "run", "noisy_flow:flow", "--dry-run", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["name"] == "f"
    assert b"IMPORTED" in done.stderr


def test_a_runner_started_with_children_ignored_still_sees_them_end(
    tmp_path: Path,
) -> None:
    path = tmp_path / "f.toml"
    path.write_text(
        '[flow]\nname = "f"\n[workers.c]\nkind = "command"\nargv = ["cat"]\n'
        '[[operations]]\nid = "a"\nworker = "c"\ninstruction = "hello"\n'
    )
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'heaveto', *sys.argv[1:]])\n"
    )
    words = ["--home", str(tmp_path / "home"), "run", str(path), "--json"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["nodes"] == {"total": 1, "completed": 1}
