"""Pictures of every screen in four modes, compared cell for cell.

``UPDATE_PICTURES=1`` writes them again; a person looks at the difference before it is
committed. In the coloured modes a second block tells the role of each cell by a letter
(:meth:`harness.consoles.Driven.roles`).
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.consoles import Driven, console
from harness.ondisk import on_disk
from harness.worlds import HOME, NOW, Scripted, dead, detail, operation, summary, world
from heaveto.model import OperationStatus as Op
from heaveto.model import RunState
from heaveto.observe.snapshot import CheckpointView, HomeView, Notice
from heaveto_tui.messages import OperationText, TextRead

Take = Callable[[str], Awaitable[None]]
Walk = Callable[[Driven, Take], Awaitable[None]]

PICTURES = Path(__file__).parent / "__snapshots__"
UPDATE = os.environ.get("UPDATE_PICTURES") == "1"

MODES: dict[str, dict[str, Any]] = {
    "colour": {"size": (140, 40)},
    "nocolor": {"size": (140, 40), "palette": "none"},
    "ascii": {"size": (80, 24), "palette": "none", "ascii_only": True},
    "80x24": {"size": (80, 24)},
}


def _picture(at: Driven, mode: str) -> str:
    rows = at.rows()
    if mode == "ascii":
        assert [row for row in rows if not row.isascii()] == []
    if mode in {"colour", "80x24"}:
        return "\n".join([*rows, "~" * 8, *at.roles(), ""])
    if mode == "nocolor":
        marks = [row if "r" in row.lower() else "" for row in at.roles()]
        return "\n".join([*rows, "~" * 8, *marks, ""])
    return "\n".join([*rows, ""])


def _compare(name: str, mode: str, shown: str) -> None:
    path = PICTURES / f"{name}-{mode}.txt"
    if UPDATE:
        PICTURES.mkdir(exist_ok=True)
        path.write_text(shown, encoding="utf-8")
        return
    assert path.exists(), f"no picture {path.name}; UPDATE_PICTURES=1 draws it"
    assert shown == path.read_text(encoding="utf-8"), f"{path.name} differs"


def _sides() -> tuple[Any, ...]:
    """Return the runs of the pictures and some that stand for rarer states."""
    refused = CheckpointView(
        version=3,
        generation=None,
        seq=None,
        status="refused",
        records_since_base=None,
    )
    notice = Notice(
        code="checkpoint_refused",
        text="Its checkpoint is refused (sequence_gap), so nothing of it is shown.",
        what_to_do="heaveto inspect tells where.",
    )
    return (
        *world(),
        detail(
            summary(
                "aa00bb11",
                "import-legacy",
                RunState.STALLED,
                age=1900,
                checkpoint=refused,
                warnings=(notice,),
            ),
            [operation("load", Op.RUNNING, started=1800)],
        ),
        detail(
            summary(
                "bb11cc22",
                "older attempt",
                RunState.DEAD,
                age=4000,
                superseded_by="20261129T160000-3df146",
            ),
            [operation("load", Op.LOST, started=3900, persisted=False)],
        ),
        detail(
            summary("cc22dd33", "deadline", RunState.TIMED_OUT, age=8000, ended=7000),
            [
                operation("load", Op.COMPLETED, started=8000),
                operation("more", Op.PENDING, needs=["load"]),
            ],
        ),
    )


def _text(at: Driven, run_id: str, name: str) -> None:
    at.app.post_message(
        TextRead(
            OperationText(
                run_id=run_id,
                operation_id=f"{name}-id",
                instruction=(
                    "[OPERATOR STEER]\n"
                    "A human operator sent these live corrections while this flow is "
                    "running.\nAttend to them before continuing. Most recent last.\n"
                    "- 2026-11-29T15:59:46Z: Use build 8811, not 8810.\n"
                    "[/OPERATOR STEER]\n\nFind the first bad deploy."
                ),
                output="14 entries collected\nfirst bad deploy: build 8812\n",
                output_bytes=50,
            )
        )
    )


async def _runs(at: Driven, take: Take) -> None:
    await at.until("build-arm failed")
    await take("runs")
    await at.press("slash")
    await at.type("re")
    await take("runs-find")
    await at.press("escape", "s", "s")
    await take("runs-by-name")
    await at.press("s", "s", "s", "s", "home")
    await at.press("colon")
    await at.type("pa")
    await take("palette")
    await at.press("escape", "y")
    await take("copy")
    await at.press("escape", "question_mark")
    await take("help")
    await at.press("escape")


async def _run(at: Driven, take: Take) -> None:
    await _go_to(at, "7be41a20")
    await at.press("enter")
    await at.until("evaluator")
    await take("run")
    await at.press("r")
    await take("resume")
    await at.press("escape", "x")
    await at.type("7be")
    await take("stop")
    await at.press("escape", "X")
    await take("end-now")
    await at.press("escape", "m")
    await at.type("Use build 8811, not 8810.")
    await take("message-write")
    await at.press("enter")
    await take("message-check")
    await at.press("escape", "enter")
    _text(at, at.app.store.current_run.run_id, "researcher-2")  # type: ignore[union-attr]
    await at.until("INSTRUCTION")
    await take("operation")
    await at.press("1")


async def _views(at: Driven, take: Take) -> None:
    await _go_to(at, "7be41a20")
    await at.press("enter")
    await at.until("evaluator")
    for key, name in {
        "c": "canvas",
        "D": "canvas-down",
        "e": "around",
        "w": "map",
        "t": "timeline",
        "T": "table",
    }.items():
        await at.press(key)
        await take(name)
    await at.press("o", "1")


async def _controls(at: Driven, take: Take) -> None:
    await _go_to(at, "2fb1b803")
    await at.press("C")
    await take("close")
    await at.press("escape", "5")
    await at.press("home", "down")
    await take("controls")
    await at.press("C")
    await take("resolve")
    await at.press("escape", "1")
    await _go_to(at, "3df14667")
    await at.press("p")
    await at.until("will finish")
    await take("pause")
    await at.press("escape")


async def _go_to(at: Driven, short: str) -> None:
    seat = next(
        seat for seat in at.app.store.seats() if seat.run.session_id.startswith(short)
    )
    at.app.choose_run(seat.key)
    at.app.draw_now()
    await at.settle()


@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize(
    "walk", [_runs, _run, _views, _controls], ids=["runs", "run", "views", "rest"]
)
async def test_every_screen_looks_as_it_did(
    mode: str,
    walk: Walk,
) -> None:
    async with console(_sides(), **MODES[mode]) as at:

        async def take(name: str) -> None:
            await at.quiet()
            _compare(name, mode, _picture(at, mode))

        await walk(at, take)


@pytest.mark.parametrize("mode", list(MODES))
async def test_states_of_a_home_look_as_they_did(mode: str) -> None:
    options = dict(MODES[mode])
    async with console([], **options) as at:
        await at.until("No runs here yet.")
        await at.quiet()
        _compare("empty", mode, _picture(at, mode))
    source = Scripted(world())
    source.homes = (
        HomeView(
            path=HOME,
            source="heaveto",
            read_at=NOW - 14,
            problem=Notice(
                code="db_busy",
                text="the database is locked by another program",
                what_to_do="wait",
            ),
        ),
    )
    async with console(source=source, **options) as at:
        await at.until("build-arm failed")
        await at.quiet()
        _compare("busy", mode, _picture(at, mode))
    async with console(read_only=True, demo=True, **options) as at:
        await at.until("build-arm failed")
        await at.quiet()
        _compare("read-only", mode, _picture(at, mode))
    async with console(**{**options, "size": (46, 9)}) as at:
        _compare("small", mode, _picture(at, mode))


@pytest.mark.parametrize("mode", list(MODES))
async def test_checkpoints_look_as_they_did(mode: str, tmp_path: Path) -> None:
    kinds = ("store", "torn", "refused", "version2", "none")
    runs = {kind: on_disk(tmp_path, kind) for kind in kinds}
    async with console(list(runs.values()), **MODES[mode]) as at:
        for kind, found in runs.items():
            await _go_to(at, found.run.session_id)
            await at.press("4")
            await at.until("Same as")
            await at.quiet()
            _compare(f"checkpoint-{kind}", mode, _picture(at, mode))
            if kind == "store":
                await at.press("v", "home", "d", "end")
                await at.until("removed  manifest.json")
                _compare("checkpoint-generations", mode, _picture(at, mode))
            await at.press("1")


@pytest.mark.parametrize("palette", ["day", "deutan", "tritan", "ansi"])
async def test_every_palette_draws_the_same_words(palette: str) -> None:
    async with console(palette="night") as at:
        await at.until("build-arm failed")
        night = at.rows()
    async with console(palette=palette) as at:
        await at.until("build-arm failed")
        assert at.rows() == night


async def test_a_loss_is_told_in_the_pictures() -> None:
    """Guard the pictures themselves: another word is another picture."""
    found = dead()
    changed = replace(found, run=replace(found.run, name="another name"))
    async with console([found]) as at:
        await at.until("its process is gone")
        one = _picture(at, "80x24")
    async with console([changed]) as at:
        await at.until("its process is gone")
        assert _picture(at, "80x24") != one
