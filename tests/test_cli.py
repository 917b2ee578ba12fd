"""The command line itself: parsing, help, exit codes, output, what it never prints."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.program import COMMAND, Program, program
from heaveto import cli
from heaveto.cli import app, exits, output
from heaveto.cli.defects import describe
from heaveto.errors import (
    CheckpointError,
    ControlError,
    FlowFileError,
    ForeignOwnerError,
    HeavetoError,
    HomeError,
    RunError,
    StateDBError,
    TargetError,
    UsageError,
)
from heaveto.model import RunStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

HOSTILE = "\x1b[2J\x07\x7f\x9b31m\u202egnp.exe\u2066\u200f\x00\r\n\ud800"
UNSAFE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f]"
)


@pytest.fixture
def heaveto(tmp_path: Path) -> Iterator[Program]:
    with program(tmp_path) as made:
        yield made


@pytest.fixture
def run_main(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    """Run a command line in this process: (code, stdout, stderr)."""
    monkeypatch.setenv("HEAVETO_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HEAVETO_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setenv("LIONAGI_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def call(*words: str, **entries: str) -> tuple[int, str, str]:
        code = cli.main(words, **entries)
        out, err = capsys.readouterr()
        return code, out, err

    return call


# --- parsing


def test_version_names_the_program(run_main: Any) -> None:
    code, out, err = run_main("--version")
    assert code == 0
    assert re.fullmatch(r"heaveto \d+\.\d+\.\d+\S*\n", out)
    assert err == ""


@pytest.mark.parametrize("verb", sorted(app.VERBS))
def test_every_verb_has_help(run_main: Any, verb: str) -> None:
    code, out, _ = run_main(verb, "--help")
    assert code == 0
    assert out.startswith(f"Usage: heaveto {verb}")
    for option in ("--home", "--no-lionagi", "--json"):
        assert option in out


def test_help_lists_every_verb(run_main: Any) -> None:
    code, out, _ = run_main("--help")
    assert code == 0
    for verb in app.VERBS:
        assert re.search(rf"^  {verb}  ", out, re.MULTILINE), verb


@pytest.mark.parametrize(
    "verb", ["msg", "pause", "resume", "stop", "status", "resolve"]
)
def test_control_verbs_have_help(run_main: Any, verb: str) -> None:
    assert run_main("ctl", verb, "--help")[0] == 0


def test_help_on_controls_states_the_limits_of_delivery(run_main: Any) -> None:
    text = " ".join(run_main("ctl", "--help")[1].split())
    assert "at the boundary between two operations" in text
    assert "never interrupted" in text
    assert "at most once" in text
    text = " ".join(run_main("ctl", "msg", "--help")[1].split())
    assert "only to that one" in text


@pytest.mark.parametrize(
    "words",
    [
        ("no-such-verb",),
        ("show",),
        ("ctl",),
        ("ctl", "pause"),
        ("ctl", "msg", "abc"),
        ("ctl", "msg", "abc", "text", "--file", "f"),
        ("ctl", "resolve", "abc"),
        ("ctl", "resolve", "abc", "--as", "perhaps"),
        ("ls", "--sort", "colour"),
        ("ls", "--jsonl"),
        ("logs", "abc", "--tail", "-1"),
        ("run",),
        ("run", "x.toml", "--max-concurrent", "-1"),
        ("run", "x.toml", "--checkpoint-format", "4"),
        ("run", "x.toml", "--dry-run", "--detach"),
        ("wait", "abc", "--timeout", "soon"),
        ("wait", "abc", "--timeout", "-1s"),
        ("wait", "abc", "--timeout", "nan"),
        ("prune",),
        ("show", "--nope", "abc"),
    ],
)
def test_usage_errors_end_with_2(run_main: Any, words: tuple[str, ...]) -> None:
    code, out, err = run_main(*words)
    if words == ("ctl",):  # a group alone shows its help
        assert code in (0, 2)
        return
    assert code == 2, (out, err)
    assert out == ""
    assert err.startswith("heaveto: ")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "words",
    [
        ("diff", "a", "b"),
        ("run", "x.toml", "--reactive", "all"),
        ("run", "x.toml", "--max-ops", "5"),
        ("run", "x.toml", "--timeout", "5m"),
        ("run", "x.toml", "--with-synthesis"),
        ("--plain",),
    ],
)
def test_what_is_not_there_yet_is_refused_by_name(
    run_main: Any, words: tuple[str, ...]
) -> None:
    code, out, err = run_main(*words, "--json")
    assert code == 2
    assert json.loads(out)["error"]["code"] == "not_available"
    named = next(word for word in words if word.startswith("--") or word == words[0])
    flag = next((word for word in words if word.startswith("--")), named)
    assert flag in err


def test_options_stand_before_or_after_the_verb(
    heaveto: Program, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    for words in (
        ("--home", other, "--json", "ls"),
        ("ls", "--home", other, "--json"),
        ("--json", "ls", "--home", other),
        ("--home", other, "ls", "--json", "--no-lionagi"),
    ):
        assert heaveto(*words).json == {"schema": 1, "runs": []}


def test_homes_repeat_and_are_opened_once_each(tmp_path: Path) -> None:
    from heaveto.cli.scope import Scope

    scope = Scope(output=output.Output(), words=())
    scope.given_homes = [tmp_path / "a", tmp_path / "b", tmp_path / "a"]
    assert [home.path.name for home in scope.homes()] == ["a", "b"]


# --- exit codes


@pytest.mark.parametrize(
    ("error", "verb", "code"),
    [
        (UsageError("x"), "ls", 2),
        (TargetError("x"), "show", 2),
        (FlowFileError("x", path="f"), "run", 2),
        (ForeignOwnerError("x"), "run", 2),
        (RunError("x"), "close", 2),
        (ControlError("x"), "ctl", 2),
        (HomeError("x"), "ls", 78),
        (HomeError("x"), "ctl", 2),
        (StateDBError("x"), "ls", 78),
        (StateDBError("x"), "run", 78),
        (StateDBError("x"), "ctl", 2),
        (CheckpointError("x"), "run", 1),
        (HeavetoError("x", code="worker_unusable"), "run", 78),
    ],
)
def test_exit_code_of_an_error(error: HeavetoError, verb: str, code: int) -> None:
    assert exits.for_error(error, verb) == code


@pytest.mark.parametrize(
    ("status", "code", "asked"),
    [
        (RunStatus.COMPLETED, 0, 0),
        (RunStatus.COMPLETED_EMPTY, 1, 1),
        (RunStatus.FAILED, 1, 1),
        (RunStatus.TIMED_OUT, 124, 1),
        (RunStatus.ABORTED, 130, 1),
        (RunStatus.CANCELLED, 143, 1),
        ("a word of a later version", 1, 1),
        (None, 1, 1),
    ],
)
def test_exit_code_of_a_status(status: Any, code: int, asked: int) -> None:
    assert exits.for_status(status) == code
    assert exits.for_status_query(status, alive=False) == asked


def test_exit_code_of_a_running_run() -> None:
    assert exits.for_status_query(RunStatus.RUNNING, alive=True) == 3
    assert exits.for_status_query(RunStatus.RUNNING, alive=None) == 3
    assert exits.for_status_query(RunStatus.RUNNING, alive=False) == 1


# --- output


def test_json_escapes_every_control_and_bidi_character() -> None:
    encoded = output.encode({HOSTILE: [HOSTILE]})
    assert not UNSAFE.search(encoded)
    assert "\n" not in encoded
    back = json.loads(encoded)
    assert list(back) == [HOSTILE]
    assert back[HOSTILE] == [HOSTILE]


def test_json_spells_numbers_that_it_cannot_hold() -> None:
    value = {"x": [float("nan"), float("inf"), float("-inf"), 1.5, 10**30]}
    encoded = output.encode(value)
    assert json.loads(encoded) == {"x": ["NaN", "Infinity", "-Infinity", 1.5, 10**30]}


def test_lines_are_inert(capsys: pytest.CaptureFixture[str]) -> None:
    made = output.Output()
    made.line(HOSTILE)
    made.note(HOSTILE)
    made.refuse(HeavetoError(HOSTILE, candidates=[HOSTILE]))
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    assert err.count("\n") == 3
    assert not UNSAFE.search(out + err)


def test_columns_keep_their_place_with_wide_and_hostile_cells() -> None:
    lines = output.table(
        ("A", "B"), [("日本\x1b[2J", "x"), ("e\u0301", "y")], right=(1,)
    )
    assert not UNSAFE.search("".join(lines))
    from heaveto.text import cell_width

    assert len({cell_width(line) for line in lines}) == 1


def test_error_object_and_sentence(run_main: Any) -> None:
    code, out, err = run_main("show", "../etc", "--json")
    assert code == 2
    error = json.loads(out)
    assert error["schema"] == 1
    assert set(error["error"]) == {"code", "message", "candidates"}
    assert error["error"]["code"] == "target_malformed"
    assert error["error"]["candidates"] == []
    assert err == f"heaveto: {error['error']['message']}\n"


@pytest.mark.parametrize(
    "target", ["", " ", "../x", "/etc", "a/b", ".hidden", "a\nb", "x" * 300]
)
def test_malformed_targets_are_refused_before_any_file(
    run_main: Any, tmp_path: Path, target: str
) -> None:
    for words in (("show",), ("logs",), ("wait",), ("ctl", "pause"), ("close",)):
        code, out, err = run_main(*words, "--", target)
        assert (code, out) == (2, ""), err
    assert not (tmp_path / "home").exists()


def test_an_internal_error_is_70_and_its_report_holds_no_values(
    run_main: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from heaveto.cli import listing

    def fails(*_: object, **__: object) -> int:
        raise KeyError("the prompt of somebody")

    monkeypatch.setattr(listing, "print_list", fails)
    code, out, err = run_main("ls", "--json")
    assert code == 70
    assert json.loads(out)["error"]["code"] == "internal"
    assert "Traceback" not in err
    assert "somebody" not in out + err
    report = Path(re.findall(r"the report is (\S+)", err)[0])
    assert report.is_relative_to(tmp_path / "state")
    text = report.read_text()
    assert "builtins.KeyError" in text
    assert "in fails" in text
    assert "somebody" not in text
    assert report.stat().st_mode & 0o777 == 0o600


def test_a_report_tells_what_an_error_came_from() -> None:
    try:
        try:
            raise ValueError("inner words")
        except ValueError as error:
            raise RuntimeError("outer words") from error
    except RuntimeError as error:
        text = describe(error)
    assert "ValueError" in text
    assert "RuntimeError" in text
    assert "words" not in text


# --- pipes and terminals


def test_a_reader_that_goes_away_is_no_error(heaveto: Program) -> None:
    shell = f"{' '.join(COMMAND)} --help; {' '.join(COMMAND)} ls --json"
    done = subprocess.run(
        ["bash", "-c", f"({shell}) | head -c 1; exit ${{PIPESTATUS[1]}}"],
        capture_output=True,
        env=heaveto.environment,
        check=False,
        timeout=60,
    )
    assert done.stderr == b""


@pytest.mark.parametrize("words", [("ls",), ("ls", "--json"), ("show", "x", "--json")])
def test_a_full_disk_behind_stdout_is_said(
    heaveto: Program, words: tuple[str, ...]
) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, *words],
            stdout=full,
            stderr=subprocess.PIPE,
            env=heaveto.environment,
            check=False,
            timeout=60,
        )
    assert done.returncode == 1
    assert b"standard output" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("words", [(), ("watch",)])
@pytest.mark.parametrize("dumb", [True, False])
def test_without_a_terminal_the_list_is_printed(
    heaveto: Program, words: tuple[str, ...], dumb: bool
) -> None:
    heaveto.environment["TERM"] = "dumb" if dumb else "xterm-256color"
    answer = heaveto(*words)
    assert answer.code == 0
    assert answer.out == "No runs here yet. heaveto demo shows some.\n"
    assert heaveto(*words, "--json").json == {"schema": 1, "runs": []}


def _on_a_terminal(
    heaveto: Program, *words: str, stdin: int | None = None
) -> tuple[int, str, str]:
    """Run with standard output on a terminal; return code, screen, stderr."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *words],
        stdin=subprocess.DEVNULL if stdin is None else slave,
        stdout=slave,
        stderr=subprocess.PIPE,
        env={**heaveto.environment, "TERM": "xterm-256color"},
    )
    os.close(slave)
    shown = b""
    while True:
        try:
            block = os.read(master, 4096)
        except OSError:
            break
        if not block:
            break
        shown += block
    os.close(master)
    _, err = process.communicate(timeout=60)
    return process.returncode, shown.decode(), err.decode()


def test_a_terminal_without_input_names_the_plain_commands(heaveto: Program) -> None:
    code, shown, err = _on_a_terminal(heaveto)
    assert code == 2
    assert shown == ""
    assert err.count("\n") == 1
    assert "heaveto ls" in err


@pytest.mark.parametrize("words", [("demo",), ("run", "f.toml", "--watch")])
def test_nothing_is_started_where_no_key_can_be_pressed(
    heaveto: Program, tmp_path: Path, words: tuple[str, ...]
) -> None:
    flow = tmp_path / "f.toml"
    flow.write_text(
        '[flow]\nname="x"\n[workers.w]\nkind="scripted"\nreplies=[{response=1}]\n'
        '[[operations]]\nid="a"\nworker="w"\ninstruction="x"\n'
    )
    heaveto.environment["TMPDIR"] = str(tmp_path)
    before = set(tmp_path.iterdir())
    given = [str(flow) if word == "f.toml" else word for word in words]
    code, shown, err = _on_a_terminal(heaveto, *given)
    assert (code, shown) == (2, "")
    assert "standard input" in err
    assert set(tmp_path.iterdir()) == before


def test_the_headless_module_says_that_it_has_no_console(heaveto: Program) -> None:
    code, _, err = _on_a_terminal(heaveto, "watch", stdin=0)
    assert code == 78
    assert "console" in err


def test_text_on_a_terminal_has_no_escape_either(heaveto: Program) -> None:
    code, shown, _ = _on_a_terminal(heaveto, "ls")
    assert code == 0
    assert "\x1b" not in shown


CALLS: list[Any] = []


def take_console(options: Any) -> int:
    """Stand where the console stands."""
    CALLS.append(options)
    return 5


def test_the_console_is_handed_its_options(
    run_main: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from heaveto.cli import console

    monkeypatch.setattr(console, "can_draw", lambda: True)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setitem(sys.modules, "console_for_test", sys.modules[__name__])
    CALLS.clear()
    code, out, err = run_main(
        "watch",
        "abc",
        "--read-only",
        "--theme",
        "night",
        "--ascii",
        console="console_for_test:take_console",
    )
    assert (code, out, err) == (5, "", "")
    [options] = CALLS
    assert options.target == "abc"
    assert options.read_only
    assert options.theme == "night"
    assert options.ascii_only
    assert options.no_color
    assert not options.demo
    assert [home.path for home in options.homes] == [tmp_path / "home"]


def test_a_console_that_is_not_installed_is_78(
    run_main: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from heaveto.cli import console

    def load(name: str) -> Any:
        raise ModuleNotFoundError("no textual", name="textual.app")

    monkeypatch.setattr(console, "can_draw", lambda: True)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(console, "load", load)
    code, out, err = run_main("watch", console="x:y", dag=None)
    assert (code, out) == (78, "")
    assert "not installed" in err


def test_bytes_that_are_no_text_are_refused_where_text_is_needed(
    heaveto: Program, tmp_path: Path
) -> None:
    odd = os.fsdecode(b"\xff")
    for words, code in (
        (("show", odd), 2),
        (("ctl", "pause", odd), 2),
        (("ctl", "resolve", odd, "--as", "applied"), 2),
        (("ls", "--find", odd), 0),
        (("ls", "--home", odd), 78),
        (("explain", odd), 2),
        (("run", f"{odd}.toml"), 2),
        (("inspect", f"{odd}/x"), 1),
    ):
        answer = heaveto(*words)
        assert answer.code == code, (words, answer)
    flow = tmp_path / odd / "f.toml"
    flow.parent.mkdir()
    flow.write_text(
        '[flow]\nname="x"\n[workers.w]\nkind="scripted"\nreplies=[{response=1}]\n'
        '[[operations]]\nid="a"\nworker="w"\ninstruction="x"\n'
    )
    assert heaveto("run", flow, "--json").json["status"] == "completed"
    assert heaveto("run", flow, "--save", odd).code == 2


def test_a_working_folder_that_is_gone_is_said(heaveto: Program) -> None:
    shell = f"mkdir gone && cd gone && rmdir ../gone && {' '.join(COMMAND)} ls"
    done = subprocess.run(
        ["bash", "-c", shell],
        capture_output=True,
        env=heaveto.environment,
        cwd=heaveto.home.parent,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr == b"heaveto: the working folder is gone; change into another\n"


# --- encodings


@pytest.mark.parametrize("locale", ["C", "en_US.ISO-8859-1"])
def test_a_locale_without_unicode_spells_text_out(
    heaveto: Program, tmp_path: Path, locale: str
) -> None:
    heaveto.environment |= {
        "LC_ALL": locale,
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONIOENCODING": "ascii",
    }
    flow = tmp_path / "Zürich.toml"
    flow.write_text("[flow]\n", encoding="utf-8")
    answer = heaveto("run", flow, "--json")
    assert answer.code == 2
    assert answer.out.isascii()
    assert answer.error == "flow_file"


# --- completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_ask_the_program(run_main: Any, shell: str) -> None:
    code, out, _ = run_main("completion", shell)
    assert code == 0
    assert "_HEAVETO_COMPLETE" in out
    assert "heaveto" in out


def test_completion_offers_verbs(heaveto: Program) -> None:
    done = subprocess.run(
        [*COMMAND],
        env={
            **heaveto.environment,
            "_HEAVETO_COMPLETE": "bash_complete",
            "COMP_WORDS": "heaveto sh",
            "COMP_CWORD": "1",
        },
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.stdout == b"plain,show\n"


# --- explain


def test_explain_puts_codes_in_words(run_main: Any) -> None:
    code, out, _ = run_main("explain", "sequence_gap", "--json")
    assert code == 0
    answer = json.loads(out)
    assert set(answer) == {"schema", "target", "code", "text", "what_to_do"}
    assert answer["code"] == "sequence_gap"
    assert answer["text"]


def test_explain_refuses_what_is_neither_code_nor_run(run_main: Any) -> None:
    code, out, err = run_main("explain", "no-such-thing", "--json")
    assert code == 2
    assert json.loads(out)["error"]["code"] == "target_unknown"
    assert "neither" in err
