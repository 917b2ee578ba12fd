"""The console driven by keys, over runs as the read side tells them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from harness.consoles import console, make_app
from harness.worlds import (
    NOW,
    Scripted,
    cache_review,
    dead,
    detail,
    many,
    operation,
    rollback,
    summary,
    world,
)
from heaveto.model import OperationStatus as Op
from heaveto.model import RunState

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = (
    "[red]x[/] [/] [@click=app.quit]\x1b[2J\x1b]52;c;QQ==\x07 \u202e {x} %s :boom:"
)


async def test_the_worst_is_read_without_a_key() -> None:
    async with console() as at:
        await at.until("build-arm failed")
        rows = at.rows()
        assert rows[2].startswith(" NEEDS YOU  worst first, then oldest")
        assert rows[3].startswith("▌† dead         2fb1b803")
        assert "its process is gone" in rows[4]
        order = [
            row.split()[1] for row in rows if row[1:2] in "†✗¦‖◐●" and row[2:3] == " "
        ]
        assert order == ["dead", "failed", "pausing", "paused", "running", "done"]
        assert "build-arm failed: exit code 1" in at.text()
        assert "analyst waits at the pause" in at.text()
        assert "! 4" in rows[0]


async def test_a_new_run_shows_up_and_the_cursor_keeps_its_run() -> None:
    source = Scripted(world())
    async with console(source=source) as at:
        await at.press("down", "down")
        assert "cache-review" in at.row("▌")
        source.put(detail(summary("00000001", "newcomer", RunState.DEAD, age=900)))
        await at.until("newcomer")
        assert "cache-review" in at.row("▌")
        source.drop("9a94ae37-0000-4000-8000-000000000000")
        await at.settle()
        await at.press("down")
        assert "nightly-build" not in at.text()
        assert "Prepare the rollback" in at.row("▌")


async def test_enter_lands_on_the_failed_operation_and_esc_leads_back() -> None:
    async with console() as at:
        await at.press("down", "down", "enter")
        await at.until("OPERATION")
        assert at.place == "run"
        assert "✗ researcher-2" in at.row("▌")
        assert "needs nothing · blocks analyst and 6 more behind" in at.text()
        await at.press("enter")
        await at.until("outline")
        assert at.place == "operation"
        assert "Request failed with status 400" in at.text()
        assert "analyst ran with this error as input." in at.text()
        await at.press("right_square_bracket")
        assert "analyst" in at.row("outline")
        await at.press("left_square_bracket", "left_square_bracket")
        await at.press("left_square_bracket")
        assert at.word == "This is the first."
        await at.press("escape", "escape")
        assert at.place == "runs"
        assert "cache-review" in at.row("▌")


async def test_the_run_tells_executed_from_saved_and_the_checkpoint() -> None:
    async with console([cache_review()], size=(140, 40)) as at:
        await at.press("enter")
        await at.until("OPERATION")
        assert "not yet" in at.row("architect   ")
        assert "gen 9d41c07b seq 4 (+4) · 1 finished, not saved yet" in at.rows()[1]
        assert "pausing 38s (signals 1s, process alive)" in at.rows()[1]
        assert "←2" in at.row("● analyst")


async def test_a_status_change_is_shown() -> None:
    source = Scripted([cache_review()])
    async with console(source=source) as at:
        await at.press("enter")
        await at.until("spawn-1")
        found = cache_review()
        operations = tuple(
            replace(each, status=Op.COMPLETED, ended_at=NOW, executed=True)
            if each.name == "spawn-1"
            else each
            for each in found.operations
        )
        source.put(detail(found.run, operations, found.controls))
        await at.until("spawn-1          done")


async def test_n_goes_round_what_needs_somebody() -> None:
    async with console() as at:
        await at.press("n")
        assert "nightly-build" in at.row("▌")
        await at.press("n", "n", "n")
        assert "2fb1b803" in at.row("▌")
        await at.press("N")
        assert "Prepare the rollback" in at.row("▌")
        await at.press("n", "enter")
        await at.until("OPERATION")
        assert "analyst" in at.row("▌")
        await at.press("n")  # the last problem of this run: on to the next one
        await at.until("nightly-build")
        assert "build-arm" in at.row("▌")
    async with console([world()[5]]) as at:
        await at.press("n")
        assert at.word == "Nothing needs you."


@pytest.mark.parametrize("key", ["p", "x", "m"])
async def test_a_question_is_about_its_run_when_that_goes_away(key: str) -> None:
    source = Scripted([rollback(), world()[4]])
    async with console(source=source) as at:
        await at.press("slash", *"release", "enter", "escape")
        assert "release-notes" in at.row("\u258c")
        await at.press(key)
        shown = at.on_top
        source.drop("3df14667-0000-4000-8000-000000000000")
        await at.until("this run is not in the list any more")
        await at.type("3df1")
        await at.press("enter", "enter")
        assert at.on_top == shown
        await at.press("escape")
        assert at.app.is_running


async def test_find_as_you_type_in_every_list() -> None:
    async with console() as at:
        await at.press("slash")
        await at.type("rollback")
        assert [row for row in at.rows() if "▌" in row] == [at.row("99afdd6d")]
        assert "nightly-build" not in at.text()
        await at.press("enter", "enter")
        await at.until("OPERATION")
        await at.press("slash")
        await at.type("audi")
        shown = [row for row in at.rows()[4:12] if row.strip()]
        assert len(shown) == 1
        assert "auditor" in shown[0]
        await at.press("escape")
        assert "architect" in at.text()
        await at.press("5", "slash")
        await at.type("queue")
        assert "1 sent" not in at.text()
        assert "d175a783" in at.text()
        assert "16f63963" not in "\n".join(at.rows()[3:9])
        await at.press("escape", "escape", "escape")
        assert at.place == "runs"
        assert "nightly-build" not in at.text()
        await at.press("escape")
        assert "nightly-build" in at.text()


async def test_text_typed_into_a_field_is_text() -> None:
    async with console() as at:
        await at.press("slash")
        await at.type("quit pls [p]ause [/")
        assert at.app.is_running
        assert "find: quit pls [p]ause [/" in at.text()
        assert at.on_top == "RunsScreen"
        await at.press("backspace", "ctrl+w", "ctrl+u")
        assert at.row("find:").strip() == "find:"


async def test_the_list_can_stand_in_other_orders() -> None:
    async with console() as at:
        await at.press("s")
        assert at.word == "Sorted by started."
        assert "NEEDS YOU" not in at.text()
        assert "release-notes" in at.rows()[2]
        await at.press("s")
        assert "sort: name" in at.text()


async def test_places_by_digit_keep_the_run() -> None:
    async with console() as at:
        await at.press("down", "down", "down", "5")
        assert at.place == "controls"
        assert "99afdd6d" in at.rows()[0]
        await at.press("2")
        assert at.place == "run"
        assert "99afdd6d" in at.rows()[0]
        await at.press("1")
        assert "Prepare the rollback" in at.row("▌")


async def test_the_ledger_tells_every_end() -> None:
    async with console([dead()]) as at:
        await at.press("5")
        for word in ("lost", "not reported", "never landed", "refused", "too late"):
            assert word in at.text()
        assert "closed by hand" in at.text()
        await at.press("home")
        await at.until("Prefer the boring option.")
        assert "Lost: applied at" in at.text()
        await at.press("down")
        assert "taken by run-7" in at.text()


async def test_a_message_that_was_read_leads_to_its_reader() -> None:
    found = rollback()
    read = replace(found.controls[1], rendered_into="collect-id")
    async with console([replace(found, controls=(found.controls[0], read))]) as at:
        await at.press("5")
        assert "collect" in at.row("d175a783  message")
        await at.press("enter")
        assert at.place == "operation"
        assert "collect" in at.row("outline")


@pytest.mark.parametrize("key", ["p", "r", "m", "x", "C"])
async def test_a_key_that_is_off_stays_visible_and_says_why(key: str) -> None:
    async with console([world()[5]]) as at:  # a run that is done
        assert "(p pause)" in at.rows()[-1]
        await at.press(key)
        assert at.on_top == "RunsScreen"
        assert at.word
        assert at.word in at.text()


async def test_read_only_offers_nothing_that_changes() -> None:
    async with console(read_only=True) as at:
        assert "read-only" in at.rows()[0]
        assert "pause" not in at.rows()[-1]
        for key in ("p", "m", "x", "C"):
            await at.press(key)
            assert at.on_top == "RunsScreen"
        await at.press("question_mark")
        assert "pause  " not in at.text()


async def test_help_is_the_table_and_says_what_is_off() -> None:
    async with console(size=(140, 60)) as at:
        await at.press("question_mark")
        assert at.on_top == "Help"
        text = at.text()
        assert "what runs finishes, nothing new starts" in text
        assert "heaveto ctl pause ID" in text
        assert "OFF RIGHT NOW" in text
        assert "Not sent: its process is gone" in text
        assert "● done" in text
        await at.press("question_mark")
        assert at.on_top == "RunsScreen"


async def test_the_palette_reaches_actions_runs_and_operations() -> None:
    async with console() as at:
        await at.press("colon")
        await at.type("sort")
        await at.press("enter")
        assert at.word == "Sorted by started."
        await at.press("colon")
        await at.type("99af")
        await at.press("enter")
        await at.until("OPERATION")
        assert "99afdd6d" in at.rows()[0]
        await at.press("colon")
        await at.type("audito")
        await at.press("enter")
        assert at.place == "operation"
        assert "auditor" in at.row("outline")
        await at.press("colon")
        await at.type("[/")
        assert "Nothing matches." in at.text()
        await at.press("escape")
        assert at.on_top == "OperationScreen"


async def test_an_action_from_the_palette_says_why_it_is_off() -> None:
    async with console() as at:
        await at.press("colon")
        await at.type("pause")
        assert "Not sent: its process is gone" in at.text()
        await at.press("enter")
        assert at.word.startswith("Not sent: its process is gone")


async def test_copy_goes_through_the_terminal() -> None:
    async with console() as at:
        await at.press("y", "down", "enter")
        assert at.app.clipboard == "2fb1b803-0000-4000-8000-000000000000"
        assert at.word.startswith("Copied: ")


async def test_times_can_be_utc() -> None:
    async with console() as at:
        await at.press("U")
        assert at.word == "Times are local."
        await at.press("U")
        assert "UTC" in at.rows()[0]


async def test_ctrl_c_says_how_to_leave_and_q_leaves() -> None:
    async with console() as at:
        await at.press("ctrl+c")
        assert "q leaves" in at.word
        await at.press("q")
        assert at.app.return_code == 0


async def test_two_panes_share_the_keys() -> None:
    async with console([cache_review()], size=(140, 40)) as at:
        await at.press("enter")
        await at.until("OPERATION")
        assert at.app.focused is not None
        assert at.app.focused.id == "outline"
        await at.press("tab")
        assert at.app.focused.id == "detail"
        await at.press("tab")
        assert at.app.focused.id == "outline"
    async with console() as at:
        await at.press("tab")
        assert at.word == "There is one pane at this width."


async def test_preview_beside_the_list() -> None:
    async with console(size=(160, 40)) as at:
        await at.until("OPERATIONS")
        assert "WHAT YOU CAN DO" in at.text()
        assert "C  end the row of a dead run" in at.text()
        await at.press("down", "down")
        await at.until("spawn-1")
        assert "r  undo a pause" in at.text()


async def test_a_home_that_does_not_answer_is_told_and_the_picture_stays() -> None:
    source = Scripted(world())
    async with console(source=source) as at:
        source.fail("db_busy", "state.db has been locked for 14s", since=NOW - 14)
        await at.until("HOME")
        assert "state.db has been locked for 14s" in at.text()
        assert "data 14s STALE" in at.rows()[0]
        assert "nightly-build" in at.text()
        await at.press("down", "down", "down", "r")
        assert "is 14s old" in at.word


async def test_an_empty_home_says_what_to_do() -> None:
    async with console([]) as at:
        await at.until("No runs here yet.")
        assert "heaveto run flow.toml" in at.text()
        for key in ("enter", "2", "5", "p", "m", "y", "n", "C", "x"):
            await at.press(key)
        assert at.place == "runs"
        assert at.app.is_running


async def test_too_small_says_so_and_comes_back() -> None:
    async with console() as at:
        await at.press("down", "p")
        for size in ((46, 9), (10, 3), (1, 1), (20, 5)):
            await at.pilot.resize_terminal(*size)
            await at.settle()
        await at.pilot.resize_terminal(46, 9)
        await at.settle()
        assert "heaveto needs 60 columns and 16 rows." in at.text()
        await at.pilot.resize_terminal(80, 24)
        await at.settle()
        assert "nightly-build" in at.row("▌")


async def test_too_small_keeps_what_was_open() -> None:
    async with console() as at:
        await at.press("colon")
        await at.type("pau")
        await at.pilot.resize_terminal(46, 9)
        await at.settle()
        assert "heaveto needs 60 columns and 16 rows." in at.text()
        assert "† dead" in at.text()
        await at.press("x", "enter", "escape")
        await at.pilot.resize_terminal(80, 24)
        await at.settle()
        await at.type("se")
        assert ": pause" in at.text()
        await at.press("escape")
        assert at.on_top == "RunsScreen"


async def test_a_key_behind_the_closing_one_does_nothing() -> None:
    async with console() as at:
        for keys in (("?", "escape", "escape"), ("p", "escape", "escape")):
            for key in keys:
                at.send(key)
            await at.settle()
        assert at.on_top == "RunsScreen"
        assert at.app.is_running


async def test_a_storm_of_sizes_is_survived_everywhere() -> None:
    async with console() as at:
        for keys in (["down", "down", "enter"], ["enter"], ["5"], ["question_mark"]):
            await at.press(*keys)
            for number in range(6):
                await at.pilot.resize_terminal(20 + number * 29, 5 + number * 9)
            await at.pilot.resize_terminal(80, 24)
        assert at.app.is_running


async def test_hostile_text_is_shown_and_obeyed_nowhere() -> None:
    bad = detail(
        summary("00000666", HOSTILE, RunState.EXECUTING),
        [
            operation("ok", Op.COMPLETED, started=5),
            operation(
                HOSTILE,
                Op.FAILED,
                started=4,
                error_code="worker_error",
                error_text=HOSTILE + "\nsecond \x9b31m line",
                assignee=HOSTILE,
            ),
        ],
        [replace(dead().controls[0], text=HOSTILE, by=HOSTILE, owner=HOSTILE)],
    )
    async with console([bad], size=(140, 40)) as at:
        await at.until("[red]x[/]")
        shown = [at.text()]
        for keys in (["enter"], ["enter"], ["5"], ["question_mark"], ["escape", "y"]):
            await at.press(*keys)
            shown.append(at.text())
        await at.press("escape", "colon")
        shown.append(at.text())
        for text in shown:
            assert not any(ord(char) < 32 and char != "\n" for char in text)
            assert not any(0x7F <= ord(char) < 0xA0 for char in text)
            assert "\u202e" not in text
        assert "[red]x[/] [/] [@click=app.quit]\\x1b[2J" in shown[1]


async def test_ascii_mode_draws_ascii_alone() -> None:
    name = "größe 漢字 👨‍👩‍👧"
    runs = [*world(), detail(summary("0000aa00", name, RunState.FAILED))]
    async with console(runs, palette="none", ascii_only=True) as at:
        assert at.text().isascii()
        assert "gr\\xf6\\xdfe" in at.text()
        for key in ("enter", "enter", "5", "question_mark"):
            await at.press(key)
            assert at.text().isascii()


async def test_without_colour_no_cell_has_one() -> None:
    async with console(palette="none") as at:
        for key in ("enter", "escape", "p", "escape", "colon"):
            await at.press(key)
            for strip in at.app.screen._compositor.render_strips():
                for _, style, _ in strip:
                    if style is None:
                        continue
                    assert style.color is None or style.color.is_default
                    assert style.bgcolor is None or style.bgcolor.is_default
        await at.press("escape")
        selected = at.roles()[3]
        assert set(selected) - {"."} <= {"r", "R"}  # reverse video tells the row


async def test_ten_thousand_runs_do_not_stop_the_keys() -> None:
    async with console(many(10_000)) as at:
        assert "10000 runs" in at.rows()[1]
        await at.press("end", "home", "pagedown")
        assert at.app.is_running
        await at.press("slash")
        await at.type("number 77")
        assert "flow number 77" in at.text()


async def test_vim_keys_are_other_names() -> None:
    async with console(keyset="vim") as at:
        await at.press("j", "j")
        assert "cache-review" in at.row("▌")
        await at.press("k", "G")
        assert "weekly-report" in at.row("▌")
        await at.press("l")
        assert at.place == "run"
        await at.press("h")
        assert at.place == "runs"


async def test_the_output_is_followed_until_somebody_scrolls() -> None:
    from heaveto_tui.messages import OperationText, TextRead

    found = detail(
        summary("3df14667", "x", RunState.EXECUTING),
        [operation("engine", Op.RUNNING, started=2)],
    )

    def written(lines: int) -> TextRead:
        output = "".join(f"line {number}\n" for number in range(lines))
        return TextRead(
            OperationText(
                run_id=found.run.run_id,
                operation_id="engine-id",
                instruction="[OPERATOR STEER]\nbe [b]quick[/b]\n[/OPERATOR STEER]",
                output=output,
                output_bytes=len(output),
            )
        )

    async with console([found]) as at:
        await at.press("enter", "enter")
        at.app.post_message(written(40))
        await at.until("line 39")
        assert "following" in at.text()
        await at.press("up")
        at.app.post_message(written(60))
        await at.until("+20 new lines below, f follows")
        assert "line 59" not in at.text()
        await at.press("f")
        await at.until("line 59")
        await at.press("home")
        assert "┃be [b]quick[/b]" in at.text()
        assert "INSTRUCTION  as sent" in at.text()


async def test_a_broken_feed_ends_the_console_with_a_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Broken(Scripted):
        def read(self, run: object) -> None:
            raise ValueError("a secret")

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    app = make_app(Broken(world()))

    async def run() -> None:
        async with app.run_test() as pilot:
            while app.defect is None:
                await pilot.pause(0.01)

    with pytest.raises(ValueError, match="a secret"):
        await run()
    assert app.return_code == 70
    said = app.defect or ""
    assert said.startswith("heaveto: internal error (ValueError); the report is ")
    [report] = tmp_path.rglob("*.log")
    assert str(report) in said
    assert "a secret" not in report.read_text()
