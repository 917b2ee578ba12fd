"""The Checkpoint place: base, journal and report of the current run, generations."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.consoles import console
from harness.ondisk import HOSTILE, on_disk
from harness.stores import commit_turn
from harness.units import base, entry, line, write_unit
from harness.worlds import Scripted, summary
from heaveto.model import RunState
from heaveto.observe.ondisk import Inspector, UnitView, inspect_unit
from heaveto.observe.words import notice
from heaveto_tui import unit_feed
from heaveto_tui.lines import DASH, Look, line_text, line_width
from heaveto_tui.presentation import Clock
from heaveto_tui.widgets.store_pane import (
    default_pair,
    draw_generation,
    generation_face,
    store_facts,
)
from heaveto_tui.widgets.unit_pane import (
    draw_line,
    line_entries,
    unit_about,
    unit_face,
    unit_facts,
    why_none,
)

if TYPE_CHECKING:
    from harness.consoles import Driven
    from heaveto.observe.snapshot import RunDetail

VECTORS = Path(__file__).parents[1] / "golden/vectors"
LOADS = [
    vector["id"]
    for vector in json.loads((VECTORS / "index.json").read_text())["vectors"]
    if vector["family"] == "load"
]
OUTCOMES = ("completed", "failed", "saved outcome", "HOLDS", "applied")


async def _open(at: Driven) -> None:
    await at.press("4")
    await at.until("Same as")


def _all(view: UnitView, detail: RunDetail | None = None, width: int = 80) -> str:
    """Return everything the place draws of a unit, as text."""
    look = Look()
    lines = unit_facts(view, detail, width=width, now=0.0, look=look, clock=Clock())
    for each in line_entries(view):
        lines.append(draw_line(each.payload, width, False, look=look))
        lines.extend(unit_about(view, each.payload, detail, width=width, look=look))
    lines.extend(unit_about(view, None, detail, width=width, look=look))
    assert all(line_width(each) <= width + 2 for each in lines)
    return "\n".join(line_text(each) for each in lines)


# --- what is drawn, without a terminal


@pytest.mark.parametrize("vector", LOADS)
def test_every_load_vector_tells_its_report_and_no_refused_outcome(vector: str) -> None:
    view = inspect_unit(VECTORS / "load" / vector / "checkpoint.json").view
    shown = _all(view)
    for reason in view.report.reasons:
        assert view.absent or str(reason.code) in shown
    if view.refused:
        assert unit_face(view).word in {"refused", "none"}
        assert not any(word in shown for word in OUTCOMES)
    else:
        assert "HOLDS" in shown


def test_the_reason_stands_right_below_the_status(tmp_path: Path) -> None:
    path = write_unit(tmp_path, base(), line(1), line(3))
    view = inspect_unit(path).view
    first = [
        line_text(each)
        for each in unit_facts(
            view, None, width=80, now=0.0, look=Look(), clock=Clock()
        )[:3]
    ]
    assert first[0] == " ✗ refused"
    assert "A record is missing" in first[1]
    assert f"line 2, offset {len(line(1))}, seq 3, expected seq 2" in first[2]


@pytest.mark.parametrize("width", [60, 80, 100, 140])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_hostile_ids_are_inert(tmp_path: Path, width: int, ascii_only: bool) -> None:
    path = write_unit(tmp_path, base(), line(1, entry=entry(HOSTILE * 9)))
    view = inspect_unit(path).view
    look = Look(ascii_only=ascii_only)
    record = view.records[0]
    shown = [draw_line(record, width, True, look=look)]
    shown += unit_about(view, record, None, width=width, look=look)
    for each in shown:
        text = line_text(each)
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert line_width(each) <= width
    assert "[red]" in line_text(shown[0])


def test_hostile_identities_are_inert(tmp_path: Path) -> None:
    commit_turn(tmp_path / "engine_state", 1, engine_identity=HOSTILE)
    store = inspect_unit(write_unit(tmp_path, base())).view.store
    assert store is not None
    row = draw_generation(
        store.generations[0], 80, True, store=store, marked=None, look=Look()
    )
    assert "\x1b" not in line_text(row)
    assert "[red]" in line_text(row)


def test_a_run_without_a_checkpoint_is_told_why(tmp_path: Path) -> None:
    found = on_disk(tmp_path, "none")
    assert "nothing was saved" in why_none(found)
    assert "run directory is not there" in why_none(replace(found, run_dir=None))
    live = replace(found, run=summary("c5000005", "x", RunState.EXECUTING))
    assert "yet" in why_none(live)
    warned = replace(found.run, warnings=(notice("persistence_off"),))
    assert "switched off" in why_none(replace(found, run=warned))


def test_states_of_generations(tmp_path: Path) -> None:
    on_disk(tmp_path, "store")
    folder = tmp_path / "store"
    store = inspect_unit(folder / "checkpoint.json").view.store
    assert store is not None
    words = {view.name: generation_face(store, view).word for view in store.generations}
    assert words["gen-0002"] == "current"
    assert words["gen-0001"] == "kept"
    assert words["gen-0003"] == "never published"
    assert default_pair(store, "gen-0002", None) == ("gen-0001", "gen-0002")
    assert default_pair(store, "gen-0002", "gen-0003") == ("gen-0003", "gen-0002")
    assert default_pair(store, store.generations[0].name, None) is None
    (folder / "engine_state" / "current").write_text("gen-9999\n")
    torn = inspect_unit(folder / "checkpoint.json").view.store
    shown = "\n".join(
        line_text(each) for each in store_facts(torn, None, width=80, look=Look())
    )
    assert "dangling" in shown
    assert "✗ current names gen-9999, which is not there" in shown


# --- driven by keys


async def test_a_clean_unit_shows_its_journal_and_opens_operations(
    tmp_path: Path,
) -> None:
    async with console([on_disk(tmp_path, "clean")]) as at:
        await _open(at)
        assert at.place == "checkpoint"
        assert "● clean" in at.text()
        assert "journal   3 records since the base, seq 1 to 3" in at.text()
        assert "next base after 8 388 101 bytes more" in at.text()
        assert "critic" in at.row("▌")
        assert at.rows()[-2] == " Same as:  heaveto inspect c1000001 --journal"
        await at.press("home", "down")
        assert "1 change" in at.row("▌")
        await at.press("enter")
        assert at.place == "operation"
        assert "analyst" in at.row("outline")
        await at.press("4")
        await at.press("v")
        assert at.word == "This run keeps no generation store."
        await at.press("escape")
        assert at.place == "run"


async def test_find_shows_the_lines_that_match(tmp_path: Path) -> None:
    async with console([on_disk(tmp_path, "clean")]) as at:
        await _open(at)
        await at.press("slash")
        await at.type("analyst")
        assert "analyst" in at.row("▌")
        assert "survey" not in at.text()
        await at.type("zz")
        assert "Nothing matches." in at.text()
        await at.press("escape")
        assert "survey" in at.text()


async def test_a_refused_unit_is_never_a_state(tmp_path: Path) -> None:
    async with console([on_disk(tmp_path, "refused")]) as at:
        await _open(at)
        rows = at.rows()
        assert rows[2] == " ✗ refused"
        assert "A record is missing" in rows[3]
        assert "sequence_gap" in at.row("▌")
        body = "\n".join(rows[2:-2])
        assert not any(word in body for word in OUTCOMES)


async def test_version_2_and_nothing_are_told(tmp_path: Path) -> None:
    runs = [on_disk(tmp_path, "version2"), on_disk(tmp_path, "none")]
    runs[0] = replace(runs[0], run=replace(runs[0].run, source="lionagi"))
    async with console(runs) as at:
        at.app.choose_run(_key(at, "c4"))
        await _open(at)
        assert "version 2 is one file, no journal" in at.text()
        await at.press("1")
        at.app.choose_run(_key(at, "c5"))
        await at.press("4")
        await at.until(f"{DASH} none")
        assert "so nothing was saved" in at.text()
        assert "version 2" not in at.text()


def _key(at: Driven, short: str) -> Any:
    return next(
        seat.key
        for seat in at.app.store.seats()
        if seat.run.session_id.startswith(short)
    )


async def test_two_generations_are_compared_by_size_and_digest(tmp_path: Path) -> None:
    found = on_disk(tmp_path, "store")
    async with console([found], size=(140, 40)) as at:
        await _open(at)
        await at.press("v")
        await at.until("changed  session_state.json")
        assert "COMPARE  gen-0001  with  gen-0002" in at.text()
        assert "MARKER" not in at.text()
        assert at.rows()[-2].endswith(
            "heaveto generations c6000006 --diff gen-0001 gen-0002"
        )
        await at.press("end", "d")
        assert at.word == "gen-0003 is marked; move to the one to compare it with."
        await at.press("up")
        await at.until("COMPARE  gen-0003  with  gen-0002")
        await at.until("added  manifest.json")
        commit_turn(Path(found.run_dir or "") / "engine_state", 9)
        await at.until("current gen-0003")
        shutil.rmtree(Path(found.run_dir or "") / "engine_state")
        await at.until("● clean")
        assert at.app.last_word is not None


async def test_what_a_live_writer_adds_is_shown_and_followed(tmp_path: Path) -> None:
    found = on_disk(tmp_path, "clean")
    run = replace(found.run, state=RunState.EXECUTING, alive=True)
    journal = Path(found.run_dir or "") / "checkpoint.json.journal"
    async with console([replace(found, run=run)]) as at:
        await _open(at)
        assert "critic" in at.row("▌")
        with journal.open("ab") as file:
            file.write(line(4, entry=entry("writer")))
        await at.until("4 records since the base")
        assert "writer" in at.row("▌")
        await at.press("home")
        with journal.open("ab") as file:
            file.write(line(5, entry=entry("more")))
        await at.until("5 records since the base")
        assert "survey" in at.row("▌")


async def test_nothing_is_read_while_the_place_is_not_in_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0
    original = Inspector.read

    def counted(self: Any, *, live: bool) -> UnitView:
        nonlocal reads
        reads += 1
        return original(self, live=live)

    monkeypatch.setattr(Inspector, "read", counted)
    monkeypatch.setattr(unit_feed, "PERIOD", 0.001)
    async with console([on_disk(tmp_path, "clean")]) as at:
        await at.quiet()
        assert reads == 0
        await _open(at)
        await at.press("1")
        for _ in range(100):
            before = reads
            await asyncio.sleep(0.02)
            if reads == before:
                break
        assert reads == before
        assert reads > 0


async def test_a_run_that_is_chosen_anew_never_shows_the_other_ones_unit(
    tmp_path: Path,
) -> None:
    runs = [on_disk(tmp_path, "clean"), on_disk(tmp_path, "refused")]
    async with console(source=Scripted(runs)) as at:
        at.app.choose_run(_key(at, "c1"))
        await _open(at)
        at.app.choose_run(_key(at, "c3"))
        at.app.draw_now()
        assert "clean" not in at.text()
        await at.until("✗ refused")
