"""The feed and the store: what is read, when, and what makes a difference on screen."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events

from harness.worlds import (
    HOME,
    NOW,
    Scripted,
    cache_review,
    detail,
    operation,
    rollback,
    summary,
    world,
)
from heaveto.model import OperationStatus as Op
from heaveto.model import RunState
from heaveto.observe.attention import Group
from heaveto.observe.snapshot import HomeView
from heaveto_tui import feed as feed_module
from heaveto_tui.driver import InertParser, Outlet, PasteGuard
from heaveto_tui.feed import TAIL, Feed, read_text
from heaveto_tui.messages import Beat, ControlAnswered, DetailRead, RunsListed, TextRead
from heaveto_tui.state import Store

if TYPE_CHECKING:
    from pathlib import Path

    from textual.message import Message


class Taken:
    """What a feed posts."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.came = asyncio.Event()

    def __call__(self, message: Message) -> bool:
        self.messages.append(message)
        self.came.set()
        return True

    async def until(self, kind: type[Any], count: int = 1) -> Any:
        async with asyncio.timeout(10):
            while True:
                found = [each for each in self.messages if isinstance(each, kind)]
                if len(found) >= count:
                    return found[count - 1]
                self.came.clear()
                await self.came.wait()


async def _run(feed: Feed) -> asyncio.Task[None]:
    return asyncio.create_task(feed.run())


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_every_change_is_told_and_the_shown_run_is_read_again() -> None:
    taken, source = Taken(), Scripted(world())
    feed = Feed(source, taken)
    task = await _run(feed)
    try:
        first = await taken.until(RunsListed)
        assert len(first.runs) == len(world())
        shown = cache_review()
        feed.show(shown.run)
        assert (await taken.until(DetailRead)).detail.run.name == "cache-review"
        source.put(rollback())
        await taken.until(RunsListed, 2)
        source.put(replace(shown, controls=()))
        again = await taken.until(DetailRead, 2)
        assert again.detail.controls == ()
        assert source.reads == [shown.run.session_id] * 2  # not for the other change
        assert feed.changes == 3
    finally:
        await _stop(task)


async def test_a_text_asked_for_while_another_is_read_is_read_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where both are of the same sizes, as outputs of nothing are."""
    asked: list[str] = []
    entered, go_on = threading.Event(), threading.Event()
    real = feed_module.read_text

    def slowly(detail: Any, identifier: str, sizes: tuple[int, ...]) -> Any:
        asked.append(identifier)
        if len(asked) == 1:
            entered.set()
            assert go_on.wait(20)
        return real(detail, identifier, sizes)

    monkeypatch.setattr(feed_module, "read_text", slowly)
    taken, shown = Taken(), cache_review()
    first, second = shown.operations[0].id, shown.operations[1].id
    feed = Feed(Scripted([shown]), taken)
    task = await _run(feed)
    try:
        feed.show_text(shown, first)
        await asyncio.to_thread(entered.wait, 20)
        feed.show_text(shown, second)
        go_on.set()
        assert (await taken.until(TextRead)).text.operation_id == second
        assert not feed.reading
        assert asked[:2] == [first, second]
    finally:
        go_on.set()
        await _stop(task)


async def test_a_source_that_fails_is_read_again() -> None:
    class Failing(Scripted):
        failures = 1

        def read(self, run: Any) -> Any:
            from heaveto.errors import StateDBError

            if self.failures:
                self.failures -= 1
                raise StateDBError("busy", code="db_busy")
            return super().read(run)

    taken, source = Taken(), Failing([cache_review()])
    feed = Feed(source, taken)
    task = await _run(feed)
    try:
        feed.want([cache_review().run])
        refused = await taken.until(DetailRead)
        assert refused.detail is None
        assert refused.error.code == "db_busy"
        feed.want([cache_review().run])
        assert (await taken.until(DetailRead, 2)).detail is not None
        assert not feed.reading
    finally:
        await _stop(task)


async def test_a_run_that_changes_while_it_is_read_is_read_once_more() -> None:
    class Slow(Scripted):
        def __init__(self) -> None:
            super().__init__([cache_review()])
            self.started = threading.Event()
            self.go_on = threading.Event()

        def read(self, run: Any) -> Any:
            self.started.set()
            assert self.go_on.wait(10)
            return super().read(run)

    taken, source = Taken(), Slow()
    feed = Feed(source, taken)
    task = await _run(feed)
    try:
        run = cache_review().run
        feed.want([run])
        await asyncio.to_thread(source.started.wait, 10)
        feed.want([run])  # the very same summary, while it is being read
        source.go_on.set()
        await taken.until(DetailRead, 2)
        assert not feed.reading
    finally:
        await _stop(task)


async def test_what_is_being_sent_arrives_before_the_end() -> None:
    taken = Taken()
    feed = Feed(Scripted(), taken)
    task = await _run(feed)
    gate = asyncio.Event()

    async def work() -> tuple[str, str | None]:
        await gate.wait()
        return "queued.", "c" * 32

    feed.send("ctl.pause", "7be41a20", work)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(task, return_exceptions=True)
    answered = await taken.until(ControlAnswered)
    assert answered.answer.ok
    assert answered.answer.control_id == "c" * 32


async def test_a_refused_command_is_an_answer(tmp_path: Path) -> None:
    taken = Taken()
    feed = Feed(Scripted(), taken)
    task = await _run(feed)
    try:
        feed.command(
            "run.close", cache_review().run, ["--home", str(tmp_path), "close", "nope"]
        )
        answered = await taken.until(ControlAnswered)
        assert not answered.answer.ok
        assert answered.answer.text
        assert "\n" not in answered.answer.text
    finally:
        await _stop(task)


# --- texts of an operation


def _written(tmp_path: Path, name: str, **files: bytes) -> Any:
    folder = tmp_path / "operations" / name
    folder.mkdir(parents=True)
    for file, data in files.items():
        (folder / file.replace("_", ".")).write_bytes(data)
    return detail(
        summary("3df14667", "x", RunState.EXECUTING),
        [operation(name, Op.RUNNING, started=1)],
        run_dir=str(tmp_path),
    )


def test_texts_are_read_and_not_read_again(tmp_path: Path) -> None:
    found = _written(
        tmp_path, "engine", instruction_txt=b"Go", output_log=b"a\n", error_log=b"e\n"
    )
    read = read_text(found, "engine-id", ())
    assert read is not None
    sizes, text = read
    assert (text.instruction, text.output, text.error) == ("Go", "a\n", "e\n")
    assert read_text(found, "engine-id", sizes) is None
    (tmp_path / "operations" / "engine" / "output.log").write_bytes(b"a\nb\n")
    again = read_text(found, "engine-id", sizes)
    assert again is not None
    assert again[1].output == "a\nb\n"


def test_only_the_end_of_a_long_output_is_kept(tmp_path: Path) -> None:
    data = b"".join(b"line %d\n" % number for number in range(60_000))
    found = _written(tmp_path, "engine", output_log=data)
    read = read_text(found, "engine-id", ())
    assert read is not None
    text = read[1]
    assert text.cut
    assert text.output_bytes == len(data)
    assert len(text.output) <= TAIL
    assert text.output.startswith("line ")
    assert text.output.endswith("line 59999\n")
    assert text.instruction is None


def test_a_link_in_the_place_of_a_log_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"do not show")
    found = _written(tmp_path, "engine")
    os.symlink(secret, tmp_path / "operations" / "engine" / "output.log")
    read = read_text(found, "engine-id", ())
    assert read is not None
    assert read[1].output == ""


def test_a_name_that_is_no_path_step_reads_nothing(tmp_path: Path) -> None:
    (tmp_path / "output.log").write_bytes(b"do not show")
    for name in ("..", "../..", "a/b", "", "."):
        found = detail(
            summary("3df14667", "x", RunState.EXECUTING),
            [operation(name, Op.RUNNING, started=1)],
            run_dir=str(tmp_path / "operations"),
        )
        read = read_text(found, f"{name}-id", ())
        assert read is not None
        assert read[1].output == ""


# --- what makes a difference


def _store(*runs: Any) -> Store:
    store = Store((HOME,))
    store.set_runs([each.run for each in runs], ())
    return store


def test_ages_alone_are_no_change() -> None:
    store = _store(cache_review())
    older = replace(cache_review().run, observed_at=NOW, last_sign_at=NOW)
    assert not store.set_runs([older], ())
    assert store.set_runs([replace(older, name="another")], ())
    assert store.set_detail(cache_review())
    later = replace(
        cache_review(),
        run=replace(cache_review().run, observed_at=NOW),
        controls=tuple(replace(each, age_s=99.0) for each in cache_review().controls),
    )
    assert not store.set_detail(later)


def test_a_pause_that_lasts_needs_somebody() -> None:
    run = replace(rollback().run, observed_at=NOW, last_sign_at=NOW)
    store = Store((HOME,))
    store.set_runs([run], ())
    assert store.needs == 0
    assert not store.grow_older(NOW + 60)
    assert store.grow_older(NOW + 121)
    assert store.needs == 1
    [seat] = store.seats()
    assert seat.place.group is Group.NEEDS
    assert not store.grow_older(NOW + 130)


def test_a_state_is_as_fresh_as_its_home() -> None:
    run = cache_review().run
    store = Store((HOME,))
    read_at = NOW + 5
    store.set_runs([run], (HomeView(path=HOME, source="heaveto", read_at=read_at),))
    assert store.checked_at(run) == read_at
    assert store.data_age(NOW + 7) == 2.0
    assert store.data_age(NOW + 7, "/elsewhere") is None


async def test_a_beat_draws_only_when_an_age_passes_its_limit() -> None:
    from harness.consoles import console

    moment = [NOW]
    async with console(now=lambda: moment[0]) as at:
        at.app.post_message(Beat(at.app.store.sources))
        await at.settle()
        assert "STALE" not in at.rows()[0]
        moment[0] = NOW + 20
        at.app.post_message(Beat(at.app.store.sources))
        await at.until("STALE")


# --- the terminal's input and output


PARTS = ["\x1b[200~", "\x1b[201~", "\x1b", "[", "20", "1~", "q", "\r", "\x07", "x y"]


@given(st.lists(st.sampled_from(PARTS), max_size=12), st.data())
def test_a_paste_is_inert_however_it_is_cut(
    parts: list[str], data: st.DataObject
) -> None:
    stream = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=4)))
    guard = PasteGuard()
    whole = PasteGuard()(stream)
    pieces = [
        stream[start:end]
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
    ]
    assert "".join(guard(piece) for piece in pieces) == whole
    inside = whole.split("\x1b[200~")[1:]
    for rest in inside:
        pasted = rest.split("\x1b[201~")[0]
        assert "\x1b" not in pasted
        assert "\x07" not in pasted


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x1b")))
def test_outside_of_a_paste_nothing_is_changed(text: str) -> None:
    assert PasteGuard()(text) == text


def test_escapes_in_a_paste_are_no_keys() -> None:
    parser = InertParser()
    found = list(parser.feed("\x1b[200~q\x1b[2Jx\r\x1b[A\x1b[201~"))
    found += list(parser.tick())
    assert [type(each) for each in found] == [events.Paste]
    [paste] = found
    assert isinstance(paste, events.Paste)
    assert paste.text == "q\x1a[2Jx\r\x1a[A"
    keys = list(parser.feed("p"))
    assert [each.key for each in keys if isinstance(each, events.Key)] == ["p"]


def test_a_terminal_that_went_away_takes_everything() -> None:
    reader, writer = os.pipe()
    outlet = Outlet(writer)
    outlet.write("héllo")
    outlet.flush()
    assert os.read(reader, 100) == "héllo".encode()
    os.close(reader)
    outlet.write("more")
    outlet.flush()
    assert outlet.gone
    outlet.write("and more")
    outlet.flush()
    os.close(writer)


def test_an_ascii_terminal_gets_ascii() -> None:
    reader, writer = os.pipe()
    outlet = Outlet(writer, encoding="ascii")
    outlet.write("h\u00e9llo")
    outlet.flush()
    assert os.read(reader, 100) == b"h?llo"
    os.close(reader)
    os.close(writer)
