"""The console in a real terminal: signals, bytes, paste, hostile text, a first visit.

Every flow here is run by a real runner of its own session; nothing is replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.homes import Builder, Operation
from harness.terminal import Program, Screen
from heaveto.liveness import identity
from heaveto.statedb import ReadDB

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
HEAVETO = [sys.executable, "-m", "heaveto_tui"]
ENVIRON = {
    "PYTHONPATH": os.pathsep.join((str(ROOT / "core"), str(ROOT / "tui"))),
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
}

HOSTILE = "[red]x[/] [/]"
ESCAPES = r"\033]52;c;QQ==\007\033[2J\033]8;;http://x\007link\033[6n\r\302\233" r"31m"

QUICK = """
[flow]
name = "quick \\u001b]0;title\\u0007 [red]x[/]"
[workers.sh]
kind = "command"
argv = ["sh", "-c", '''
cat >/dev/null; printf '%s'; echo; echo "$HEAVETO_OPERATION [/] done"
''']
[[operations]]
id = "first"
worker = "sh"
instruction = "say \\u001b[31m[/]"
[[operations]]
id = "second"
worker = "sh"
instruction = "again"
depends_on = ["first"]
"""

HELD = """
[flow]
name = "held"
[workers.wait]
kind = "command"
argv = ["sh", "-c", '''
cat >/dev/null; echo begun; while ! test -e "{release}"; do sleep 0.05; done
''']
[workers.end]
kind = "command"
argv = ["sh", "-c", "cat >/dev/null"]
[[operations]]
id = "collect"
worker = "wait"
instruction = "collect"
[[operations]]
id = "draft"
worker = "end"
instruction = "draft"
depends_on = ["collect"]
"""


def _environ(tmp: Path, **more: str) -> dict[str, str]:
    return {
        **os.environ,
        **ENVIRON,
        "HEAVETO_CONFIG": str(tmp / "config.toml"),
        "XDG_STATE_HOME": str(tmp / "state"),
        "HOME": str(tmp),
        **more,
    }


def _verb(tmp: Path, *words: str) -> str:
    done = subprocess.run(
        [*HEAVETO, *words],
        env=_environ(tmp),
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert done.returncode in {0, 1, 143}, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a home whose only run has ended."""
    tmp = tmp_path_factory.mktemp("ended")
    (tmp / "config.toml").write_text("lionagi = false\n")
    flow = tmp / "quick.toml"
    flow.write_text(QUICK.replace("%s", ESCAPES, 1))
    _verb(tmp, "--home", str(tmp / "home"), "run", "--quiet", str(flow))
    return tmp


@contextlib.contextmanager
def console(
    tmp: Path,
    *words: str,
    columns: int = 80,
    rows: int = 24,
    env: dict[str, str] | None = None,
) -> Iterator[Program]:
    with Program(
        [*HEAVETO, "--home", str(tmp / "home"), *words],
        columns=columns,
        rows=rows,
        environ=_environ(tmp, **(env or {})),
        cwd=str(tmp),
    ) as program:
        yield program


class Standing:
    """A run of this very process, which a test moves on step by step."""

    def __init__(self, tmp: Path, runner: asyncio.Runner) -> None:
        self._do = runner.run
        operations = [
            Operation("collect"),
            Operation("draft", ("collect",)),
            Operation("review", ("draft",)),
        ]
        self.builder = self._do(Builder.open(tmp / "home"))
        self.run = self._do(
            self.builder.begin(operations, name="held", metadata=identity())
        )
        self._do(self.run.start("collect"))

    @property
    def session(self) -> str:
        return self.run.session_id

    def complete(self, name: str) -> None:
        self._do(self.run.complete(name))

    def phase(self, phase: str) -> None:
        self._do(self.builder.db.set_phase(self.session, phase))

    def close(self) -> None:
        self._do(self.run.close())
        self._do(self.builder.close())


@contextlib.contextmanager
def held(tmp: Path) -> Iterator[Standing]:
    """Let a run of two operations stand in its first one."""
    with asyncio.Runner() as runner:
        standing = Standing(tmp, runner)
        try:
            yield standing
        finally:
            standing.close()


@contextlib.contextmanager
def waiting(tmp: Path) -> Iterator[str]:
    """Start a runner whose flow waits for the test; give its session."""
    release = tmp / "release"
    flow = tmp / "held.toml"
    flow.write_text(HELD.replace("{release}", str(release)))
    home = str(tmp / "home")
    _verb(tmp, "--home", home, "run", "--detach", str(flow))
    listed = json.loads(_verb(tmp, "--home", home, "ls", "--json"))
    session = next(r["session_id"] for r in listed["runs"] if r["name"] == "held")
    try:
        yield session
    finally:
        release.touch()
        _verb(tmp, "--home", home, "wait", session, "--timeout", "20")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.toml").write_text("lionagi = false\n")
    return tmp_path


def _controls(tmp: Path) -> list[str]:
    with ReadDB.open(tmp / "home" / "state.db") as database:
        return [f"{row.verb} {row.result or 'queued'}" for row in database.controls()]


def _restored(program: Program) -> None:
    modes = program.screen.modes
    assert not modes & {1049, 1000, 1003, 1006, 2004, 1004}
    assert 25 in modes
    assert program.attributes() == program.before
    assert b"\x1b[0m" in bytes(program.raw[-400:])


# --- how it ends


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT]
)
def test_a_signal_restores_the_terminal(ended: Path, number: signal.Signals) -> None:
    with console(ended) as program:
        program.until("quick")
        assert 1049 in program.screen.modes
        assert program.attributes() != program.before
        assert program.end(number) == 128 + number
        _restored(program)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_terminal_that_takes_nothing_does_not_hold_the_end(
    folder: Path, number: signal.Signals
) -> None:
    with held(folder), console(folder) as program:
        program.until("held")
        for size in range(120):  # more than a terminal keeps for its reader
            program.resize(120 + size % 2 * 60, 40 + size % 3)
            time.sleep(0.02)
        program.process.send_signal(number)
        assert program.process.wait(20) == 128 + number
        assert program.attributes() == program.before


def test_a_signal_during_a_question_restores_the_terminal(folder: Path) -> None:
    with held(folder), console(folder) as program:
        program.until("held")
        program.press("p")
        program.until("Pause")
        assert program.end(signal.SIGTERM) == 143
        _restored(program)


def test_a_terminal_that_goes_away_is_no_error(ended: Path) -> None:
    with console(ended) as program:
        program.until("quick")
        program.hang_up()
        assert program.process.wait(15) == 129


def test_q_leaves_and_says_what_keeps_running(folder: Path) -> None:
    with held(folder) as standing, console(folder) as program:
        program.until("held")
        program.press("q")
        assert program.ended() == 0
        _restored(program)
        said = bytes(program.raw).decode()
        assert f"1 flow keeps running: {standing.session[:8]}" in said


def test_ctrl_z_stops_and_comes_back(ended: Path) -> None:
    with console(ended) as program:
        program.until("quick")
        program.press("\x1a")
        _until(lambda: _state(program) == "T")
        program.drain(0.2)
        assert 1049 not in program.screen.modes
        program.screen.resize(80, 24)
        program.process.send_signal(signal.SIGCONT)
        program.until("quick")
        assert 1049 in program.screen.modes
        program.press("q")
        assert program.ended() == 0


def _state(program: Program) -> str:
    stat = Path(f"/proc/{program.process.pid}/stat")
    if not stat.exists():  # no /proc: ask ps
        out = subprocess.run(
            ["ps", "-o", "stat=", "-p", str(program.process.pid)],
            capture_output=True,
            check=False,
            text=True,
        )
        return out.stdout.strip()[:1]
    return stat.read_text().rsplit(")", 1)[1].split()[0]


def _until(done: object, limit: float = 10.0) -> None:
    assert callable(done)
    end = time.monotonic() + limit
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)


# --- what is written


def test_no_color_writes_no_colour(ended: Path) -> None:
    ways: list[tuple[tuple[str, ...], dict[str, str]]] = [
        ((), {"NO_COLOR": "1"}),
        (("--no-color",), {}),
    ]
    for words, env in ways:
        with console(ended, *words, env=env) as program:
            program.until("quick")
            for keys in ("\r", "\r", "\x1b", ":", "\x1b", "?"):
                program.press(keys)
                program.drain(0.15)
            assert program.screen.colours == []
            assert program.screen.strange == []


def test_ascii_where_the_locale_asks_for_it(ended: Path) -> None:
    for env in ({"LC_ALL": "C"}, {"LC_ALL": "", "LANG": "en_US.ISO-8859-1"}):
        with console(ended, env=env) as program:
            program.until("quick")
            program.press("\r")
            program.until("OPERATION")
            program.press("?")
            program.until("Help")
            assert bytes(program.raw).isascii()


def test_eight_colours_are_enough(ended: Path) -> None:
    with console(ended, env={"TERM": "linux", "COLORTERM": ""}) as program:
        program.until("done")
        assert program.screen.colours
        assert all(len(code) <= 8 for code in program.screen.colours)


def test_no_color_that_is_empty_asks_for_nothing(ended: Path) -> None:
    shown = []
    for env in ({}, {"NO_COLOR": ""}):
        with console(ended, env=env) as program:
            program.until("done")
            program.settle()
            shown.append({pen for row in program.screen.pens for pen in row})
    assert shown[0] == shown[1]
    assert len(shown[0]) > 3


def test_an_ended_home_costs_nothing(ended: Path) -> None:
    with console(ended) as program:
        program.until("quick")
        program.settle(0.6)
        assert program.drain(2.5) == 0


def test_a_running_row_costs_little(folder: Path) -> None:
    with held(folder), console(folder) as program:
        program.until("held")
        program.settle(0.6, limit=1.5)
        assert 0 < program.drain(2.0) <= 3 * 120
        program.press("\r")
        program.until("OPERATION")
        program.settle(0.6, limit=1.5)
        assert 0 < program.drain(2.0) <= 3 * 120


def test_without_motion_only_what_changed_is_written(folder: Path) -> None:
    (folder / "config.toml").write_text("lionagi = false\nmotion = false\n")
    with held(folder) as standing, console(folder) as program:
        program.until("held")
        program.press("\r")
        program.until("OPERATION")
        program.press("\x1b[F")
        program.until("waits for draft")
        program.settle(0.7)
        assert program.drain(2.0) == 0
        before = len(program.raw)
        standing.complete("collect")
        program.until("done")
        program.settle(0.5)
        assert len(program.raw) - before <= 300
        program.press("\x1b")
        program.until("RUNNING")
        program.settle(0.7)
        before = len(program.raw)
        standing.phase("paused")
        program.until("paused")
        program.settle(0.5)
        assert len(program.raw) - before <= 300


# --- what comes in


def test_a_paste_triggers_nothing(folder: Path) -> None:
    with held(folder), console(folder) as program:
        program.until("held")
        program.press("\x1b[200~pxXq\r\r1\x1b[201~")
        program.drain(0.5)
        assert program.process.poll() is None
        assert "Pause" not in program.screen.text()
        program.press("p")
        program.until("will finish")
        program.drain(0.3)
        program.press("\x1b[200~\r\x1b[201~")
        program.drain(0.4)
        assert "will finish" in program.screen.text()
        assert _controls(folder) == []


def test_keys_faster_than_a_hand_decide_nothing(folder: Path) -> None:
    with held(folder), console(folder) as program:
        program.until("held")
        program.press("p\r\r")
        program.until("will finish")
        program.drain(0.4)
        assert _controls(folder) == []
        program.press("\r")
        program.until("queued.")
        assert _controls(folder) == ["pause queued"]


def test_pasted_text_becomes_a_message_as_it_is(folder: Path) -> None:
    with held(folder), console(folder) as program:
        program.until("held")
        program.press("m")
        program.until("step 1 of 2")
        program.press("\x1b[200~two lines,\r\nq[/] \x1b[2Jand\x07 more\x1b[201~")
        program.until("more")
        assert "control characters were left out" in program.screen.text()
        program.drain(0.3)
        program.press("\r")
        program.until("step 2 of 2")
        program.drain(0.3)
        program.press("\r")
        program.until("queued.")
        with ReadDB.open(folder / "home" / "state.db") as database:
            [row] = database.controls()
        assert row.payload == {"text": "two lines,\nq[/] [2Jand more"}
        assert program.screen.strange == []


def test_nothing_from_a_run_reaches_the_terminal(ended: Path) -> None:
    with console(ended, columns=120, rows=30) as program:
        program.until("quick \\x1b]0;title\\x07 [red]x[/]")
        keys = (
            "\r",
            "\r",
            "\x1b",
            "5",
            ":",
            "\x1b",
            "y",
            "\x1b",
            "?",
            "\x1b",
            "2",
            "\r",
        )
        for key in keys:
            program.press(key)
            program.drain(0.25)
        program.until("first")
        program.until("\\x1b]52;c;QQ==\\x07\\x1b[2J")
        assert program.screen.strange == []
        for forbidden in (b"]52;", b"]8;;", b"[6n", b"]0;", b"[31m"):
            assert b"\x1b" + forbidden not in bytes(program.raw)
        assert b"\x07" not in bytes(program.raw)


def test_the_pager_gets_inert_text_and_the_console_comes_back(ended: Path) -> None:
    copy = ended / "paged"
    with console(ended, env={"PAGER": f"tee {copy}"}) as program:
        program.until("quick")
        program.press("\r")
        program.until("OPERATION")
        program.drain(0.3)
        program.press("\r")
        program.until("outline \u203a")
        program.until("INSTRUCTION")
        program.press("E")
        _until(copy.exists)
        program.drain(0.5)
        program.until("INSTRUCTION")
        assert 1049 in program.screen.modes
        text = copy.read_text()
        assert "say \\x1b[31m[/]" in text
        assert "\\x1b]52;c;QQ==" in text
        assert "\x1b" not in text


def test_the_mouse_is_left_to_the_terminal_where_asked(folder: Path) -> None:
    (folder / "config.toml").write_text("lionagi = false\nmouse = false\n")
    with held(folder), console(folder) as program:
        program.until("held")
        assert not program.screen.modes & {1000, 1003, 1006}


def test_a_run_can_be_watched_from_its_start(folder: Path) -> None:
    flow = folder / "quick.toml"
    flow.write_text(QUICK.replace("%s", "hello", 1))
    with console(folder, "run", "--watch", str(flow)) as program:
        program.until("OPERATION")
        program.until("2 done")
        program.press("q")
        assert program.ended() == 0


def test_a_storm_of_sizes(ended: Path) -> None:
    with console(ended) as program:
        program.until("quick")
        for number in range(60):
            program.resize(1 + number * 37 % 220, 1 + number * 13 % 60)
            if number % 10 == 0:
                program.press(("\r", "\x1b", "?", "\x1b", ":", "\x1b")[number // 10])
            program.drain(0.01)
        program.resize(40, 10)
        program.until("heaveto needs 60 columns and 16 rows.")
        program.resize(100, 30)
        for key in ("\x1b", "\x1b", "1"):
            program.press(key)
            program.drain(0.3)
        program.until("quick")
        assert program.process.poll() is None


SLOW_SIZE = """
import sys, time
from heaveto_tui.driver import TerminalDriver
from heaveto_tui.__main__ import main
real = TerminalDriver._get_terminal_size
def slow(self):
    size = real(self)
    time.sleep(0.05)
    return size
TerminalDriver._get_terminal_size = slow
sys.exit(main())
"""


def test_a_size_is_not_overtaken_by_the_one_before(ended: Path) -> None:
    argv = [sys.executable, "-c", SLOW_SIZE, "--home", str(ended / "home")]
    with Program(argv, environ=_environ(ended), cwd=str(ended)) as program:
        program.until("quick")
        for _ in range(3):
            program.resize(90, 28)
            program.drain(0.02)
            program.resize(40, 10)
            program.until("This terminal has 40 and 10.", limit=8)
            program.resize(95, 27)
            program.drain(0.02)
            program.resize(100, 30)
            program.until("quick", limit=8)


def test_the_size_is_that_of_the_terminal(ended: Path) -> None:
    wrong = {"COLUMNS": "300", "LINES": "3"}
    with console(ended, env=wrong) as program:
        program.until("quick")
        program.resize(40, 10)
        program.until("This terminal has 40 and 10.")


def test_ending_a_process_now(folder: Path) -> None:
    with waiting(folder) as session, console(folder, rows=30) as program:
        program.until("held")
        program.press("\r")
        program.until("begun")
        program.press("X")
        program.until("Sends SIGTERM")
        for char in session[:4]:
            program.drain(0.2)
            program.press(char)
        program.drain(0.2)
        program.press("\r")
        program.until("cancelled", limit=30)


def test_a_target_opens_its_run(ended: Path) -> None:
    listed = json.loads(_verb(ended, "--home", str(ended / "home"), "ls", "--json"))
    short = listed["runs"][0]["session_id"][:8]
    with console(ended, "watch", short) as program:
        program.until("OPERATION")
        assert f"Run {short}" in program.screen.lines()[0]
    with console(ended, "watch", "nosuchrun") as program:
        assert program.ended() == 2
        assert b"\x1b[?1049h" not in bytes(program.raw)


def test_a_newcomer_finds_pauses_tells_and_stops(folder: Path) -> None:
    """A first visit: twelve keys and one sentence, each key read from the screen."""
    keys = 0

    def press(program: Program, key: str) -> None:
        nonlocal keys
        keys += 1
        program.drain(0.25)
        program.press(key)

    with Program(
        [*HEAVETO, "demo"],
        environ=_environ(folder, TMPDIR=str(folder)),
        cwd=str(folder),
    ) as program:
        program.until("demo: no model is called")
        # What failed, and why, is read without a key.
        program.until("build-arm failed", limit=40)
        assert "ld: cannot find -lcrypto" in program.screen.text()
        program.press("")
        while "steer-me" not in _selected(program):
            press(program, "\x1b[B")
            program.drain(0.2)
        press(program, "p")
        program.until("After that nothing new starts.")
        press(program, "\r")
        program.until("applied")
        press(program, "m")
        program.until("step 1 of 2")
        program.drain(0.2)
        program.press("Keep it short.")  # typed text is no key of the path
        program.until("14 characters.")
        press(program, "\r")
        program.until("step 2 of 2")
        press(program, "\r")
        program.until("Nobody has read it yet.")
        press(program, "x")
        program.until("Stops this flow for good.")
        short = next(
            line.split()[2] for line in program.screen.lines() if "Stop " in line
        )
        for char in short[:4]:  # the confirmation, typed once it was read
            program.drain(0.3)
            program.press(char)
        press(program, "\r")
        program.until(_is_cancelled, limit=60)
        assert keys <= 12
        # It was there for longer than a script needs: somebody reads the screen first.
        [log] = folder.glob("heaveto-demo-*/runs/*/operations/collect/error.log")
        assert "minute 20 of the log" in log.read_text()
        press(program, "q")
        assert program.ended(40) == 0
    assert not list(folder.glob("heaveto-demo-*"))


def _is_cancelled(screen: Screen) -> bool:
    text = screen.text()
    return "cancelled" in text and "Stops this flow" not in text


def _selected(program: Program) -> str:
    return next((line for line in program.screen.lines() if "▌" in line), "")
