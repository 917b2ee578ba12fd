"""Rows that fold, stand beside a view or stay put; a flow written to a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.consoles import Driven, console
from harness.flows_drawn import changed, planned
from harness.worlds import Scripted, cache_review
from heaveto.cli.drawing import drawing_lines
from heaveto.model import OperationStatus as Op
from heaveto_tui.export import DRAW
from heaveto_tui.screens.run import RunScreen


async def opened(at: Driven, *keys: str) -> RunScreen:
    """Open the first run, and a view."""
    await at.press("enter")
    await at.until("TIME")
    await at.press(*keys)
    await at.quiet()
    found = at.app.place
    assert isinstance(found, RunScreen)
    return found


# --- the outline beside and folded, the table at rest, files


@pytest.mark.parametrize("key", ["e", "w", "t", "T"])
async def test_the_outline_stands_beside_every_list(key: str) -> None:
    async with console([cache_review()], size=(120, 40)) as at:
        run = await opened(at, key)
        assert run.outline.region.width == 60
        assert "OPERATION" in at.rows()[3][:60]
        assert run.view_pane() is not None
        await at.press("down")
        assert run.outline.cursor == run.chosen()
    async with console([cache_review()], size=(119, 40)) as at:
        run = await opened(at, key)
        assert not run.outline.region.width


async def test_a_branch_is_folded_and_opened() -> None:
    async with console([cache_review()], size=(100, 40)) as at:
        run = await opened(at, "o")
        run.choose("analyst-id")
        run.redraw()
        every = len(run.outline.keys)
        await at.press("minus")
        hidden = every - len(run.outline.keys)
        assert hidden > 0
        assert f"▸+{hidden}" in at.row("analyst")
        await at.press("minus")  # folded already: the branch it stands in
        assert run.chosen() != "analyst-id"
        await at.press("plus")
        run.choose("analyst-id")
        run.redraw()
        await at.press("plus")
        assert len(run.outline.keys) == every
        await at.press("plus")
        assert at.word == "Nothing is folded here."
        await at.press("minus")
        run.choose("evaluator-id")  # whoever goes to a hidden one sees it
        run.redraw()
        await at.settle()
        assert len(run.outline.keys) == every
        await at.press("w", "minus")
        assert at.word == "Only the outline has branches to fold."


async def test_rows_of_the_table_stay_while_keys_are_pressed() -> None:
    clock = [100.0]
    source = Scripted([planned(12)])
    async with console(source=source, size=(100, 40), monotonic=lambda: clock[0]) as at:
        run = await opened(at, "T")
        before = list(run.table.keys)
        found = planned(12)
        last = before[-1]
        source.put(changed(found, {str(last): Op.FAILED}))
        await at.until("✗ failed")
        assert list(run.table.keys) == before
        clock[0] += 2.5
        run.redraw()
        assert run.table.keys[0] == last
        await at.press("s")  # an order that was asked for is taken at once
        assert run.table.keys[0] != last
        assert "by name" in at.text()


@pytest.mark.parametrize(
    ("steps", "ending"),
    [(0, "txt"), (1, "svg"), (2, "mmd"), (3, "dot")],
)
async def test_the_console_saves_what_the_command_prints(
    steps: int,
    ending: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    found = cache_review()
    async with console([found], size=(100, 40)) as at:
        await opened(at, "o")
        await at.press("W")
        assert at.on_top == "Choice"
        await at.press(*["down"] * steps, "enter")
        await at.until("Saved as")
        await at.press("W")
        await at.press(*["down"] * steps, "enter")
        await at.until(f"-2.{ending}")
    first, second = sorted(tmp_path.iterdir(), key=lambda path: len(path.name))
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_mode & 0o777 == 0o600
    form = {"txt": "text", "mmd": "mermaid"}.get(ending, ending)
    lines = drawing_lines(DRAW, found, form=form, encoding="utf-8")  # type: ignore[arg-type]
    assert first.read_text(encoding="utf-8") == "".join(f"{line}\n" for line in lines)


async def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    async with console([cache_review()], size=(140, 40)) as at:
        await opened(at, "o")
        monkeypatch.chdir(gone)
        await at.press("W")
        gone.rmdir()
        await at.press("enter")
        await at.until("Not saved in ")
        await at.press("W")
        assert at.word == "Not saved: the folder of this console is gone."
