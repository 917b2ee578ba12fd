"""Loading units from disk: what is there, what is not, what changes meanwhile."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from harness.units import GENERATION, OTHER, base, entry, line, text, write_unit
from heaveto.checkpoint import (
    CheckpointRefused,
    CheckpointVersionError,
    Loaded,
    RecoveryReport,
    load_checkpoint,
    normalize,
)
from heaveto.checkpoint.loader import ATTEMPTS
from heaveto.errors import CheckpointValueError
from heaveto.files import Os

if TYPE_CHECKING:
    from collections.abc import Callable

VECTORS = Path(__file__).parent / "golden" / "vectors" / "load"
SNAPSHOTS = Path(__file__).parent / "golden" / "v2"


def refused(path: Path | str, **options: Any) -> CheckpointRefused:
    with pytest.raises(CheckpointRefused) as caught:
        load_checkpoint(path, **options)
    report = caught.value.report
    assert isinstance(report, RecoveryReport)
    assert report.status == "refused"
    assert caught.value.code == report.reasons[-1].code
    return caught.value


def tree(folder: Path) -> dict[str, tuple[Any, ...]]:
    found = {}
    for path in sorted(folder.rglob("*")):
        seen = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (seen.st_mode, seen.st_mtime_ns, seen.st_ino, content)
    return found


# --- what is there


def test_a_unit_is_folded(tmp_path: Path) -> None:
    add = {"op": "add", "path": "/log/-", "value": "x"}
    path = write_unit(tmp_path, base(unknown=[1]), line(1, add), line(2))
    for spelled in (path, str(path)):
        loaded = load_checkpoint(spelled)
        assert loaded.report.status == "clean"
        assert loaded.state == {
            "version": 3,
            "session_id": "s-1",
            "prompt": "p",
            "plan": base()["plan"],
            "flow_context": {"log": ["x"]},
            "ops": {"op-1": entry("op-1"), "op-2": entry("op-2")},
            "spawned": [],
            "config": {},
            "max_spawn": None,
            "unknown": [1],
        }


def test_any_name_may_be_the_base(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(json.dumps(base()).encode())
    (tmp_path / "other.journal").write_bytes(line(1))
    assert load_checkpoint(tmp_path / "other").report.last_seq == 1


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_unit(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert load_checkpoint("checkpoint.json").report.status == "clean"


def test_loading_changes_nothing(tmp_path: Path) -> None:
    path = write_unit(tmp_path, base(), line(1), b"torn")
    (tmp_path / ".checkpoint.json.x.tmp").write_bytes(b"{}")
    before = tree(tmp_path)
    tmp_path.chmod(0o500)
    try:
        assert load_checkpoint(path).report.status == "recovered_prefix"
    finally:
        tmp_path.chmod(0o700)
    assert tree(tmp_path) == before


def test_real_snapshots_of_lionagi_load_clean() -> None:
    found = sorted(SNAPSHOTS.rglob("checkpoint.json"))
    assert found
    for path in found:
        loaded = load_checkpoint(path)
        document = json.loads(path.read_bytes())
        assert (loaded.report.status, loaded.state["version"]) == ("clean", 2)
        for name, value in document.items():
            assert text(loaded.state[name]) == text(value)


# --- what is not there, or is something else


def test_nothing_there(tmp_path: Path) -> None:
    for path in (
        tmp_path / "checkpoint.json",
        tmp_path / "no" / "folder" / "checkpoint.json",
        tmp_path / ("x" * 200) / "checkpoint.json",
    ):
        error = refused(path)
        assert error.code == "base_missing"
        assert error.prefix is None
        assert not isinstance(error, CheckpointVersionError)


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's path is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def make_link(path: Path) -> None:
    target = path.with_name("target")
    target.write_bytes(json.dumps(base()).encode() if path.suffix == ".json" else b"")
    path.symlink_to(target)


def make_dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


def make_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    "make",
    [
        Path.mkdir,
        make_fifo,
        make_socket,
        make_link,
        make_dangling,
        make_loop,
        make_device,
    ],
)
@pytest.mark.parametrize("which", ["checkpoint.json", "checkpoint.json.journal"])
def test_only_regular_files_are_read(
    tmp_path: Path, make: Callable[[Path], None], which: str
) -> None:
    path = write_unit(tmp_path, base(), line(1))
    (tmp_path / which).unlink()
    make(tmp_path / which)
    code = "base_unreadable" if which == path.name else "journal_unreadable"
    assert refused(path).code == code


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert refused(tmp_path / "file" / "checkpoint.json").code == "base_unreadable"
    assert refused(tmp_path).code == "base_unreadable"
    assert refused("with\0nul/checkpoint.json").code == "base_unreadable"
    assert refused(tmp_path / ("x" * 5000)).code == "base_unreadable"


class Failing(Os):
    """Fails one kind of call from a count on."""

    def __init__(self, call: str, after: int = 0) -> None:
        self._call = call
        self._left = after

    def _maybe(self, call: str) -> None:
        if call == self._call:
            self._left -= 1
            if self._left < 0:
                raise OSError(5, "input/output error")

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        self._maybe("pread")
        return super().pread(fd, size, offset)

    def open(
        self, path: str, flags: int, mode: int = 0o600, *, dir_fd: int | None = None
    ) -> int:
        self._maybe("open")
        return super().open(path, flags, mode, dir_fd=dir_fd)


@pytest.mark.parametrize(
    ("system", "code"),
    [
        (Failing("open"), "base_unreadable"),
        (Failing("open", 1), "base_unreadable"),
        (Failing("open", 2), "journal_unreadable"),
        (Failing("pread"), "base_unreadable"),
        (Failing("pread", 2), "journal_unreadable"),
        (Failing("pread", 3), "journal_unreadable"),
    ],
)
def test_read_errors_are_refusals(tmp_path: Path, system: Os, code: str) -> None:
    path = write_unit(tmp_path, base(), line(1))
    before = (
        set(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else None
    )
    assert refused(path, system=system).code == code
    if before is not None:
        assert set(os.listdir("/proc/self/fd")) <= before | {max(before, key=int)}


HUGE = b"9" * 5000


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 300,
        b"null",
        b"[]",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"[" * 3000 + b"]" * 3000,
        b'{"version":3,"x":' + b"[" * 2000 + b"]" * 2000 + b"}",
        b'{"version":2,"x":' + b"[" * 400 + b"]" * 400 + b"}",
        b'{"version":3,"x":' + HUGE + b"}",
        b'{"version":2,"x":' + HUGE + b"}",
        b'{"version":' + HUGE + b"}",
        b'{"version":3}{"version":3}',
        json.dumps(base()).encode("utf-16"),
        json.dumps(base()).encode("utf-8-sig"),
        json.dumps(base(prompt="é"), ensure_ascii=False).encode("latin-1"),
        json.dumps(base()).encode()[:-1],
    ],
    ids=lambda content: repr(content[:24]),
)
def test_a_malformed_base(tmp_path: Path, content: bytes) -> None:
    error = refused(write_unit(tmp_path, content))
    assert error.code == "base_malformed"
    assert cast("RecoveryReport", error.report).checkpoint_version is None


@pytest.mark.parametrize(
    ("version", "code", "declared"),
    [
        (4, "version_unsupported", 4),
        (0, "version_unsupported", 0),
        (-1, "version_unsupported", -1),
        (99, "version_unsupported", 99),
        ("3", "version_unsupported", None),
        (3.0, "version_unsupported", None),
        (True, "version_unsupported", None),
        (None, "version_unsupported", None),
        ([3], "version_unsupported", None),
    ],
)
def test_an_unknown_version(
    tmp_path: Path, version: Any, code: str, declared: int | None
) -> None:
    error = refused(write_unit(tmp_path, base(version=version)))
    assert isinstance(error, CheckpointVersionError)
    assert error.code == code
    assert cast("RecoveryReport", error.report).checkpoint_version == declared


def test_no_version_and_two_versions(tmp_path: Path) -> None:
    document = base()
    del document["version"]
    assert refused(write_unit(tmp_path, document)).code == "version_unsupported"
    spelled = json.dumps(base())[:-1]
    for second in ('"version":3', '"version":2', '"\\u0076ersion":2'):
        error = refused(write_unit(tmp_path, f"{spelled},{second}}}".encode()))
        assert isinstance(error, CheckpointVersionError)
        assert error.code == "version_ambiguous"
    nested = base(2, config={"version": 9, "x": [{"version": 1}]})
    assert load_checkpoint(write_unit(tmp_path, nested)).report.status == "clean"


def test_version_2_keeps_its_legacy_reading(tmp_path: Path) -> None:
    spelled = json.dumps(base(2, config={"a": 1}))
    twice = spelled.replace('"a": 1', '"a": 1, "a": {"n": NaN, "i": 1e999}').encode()
    loaded = load_checkpoint(write_unit(tmp_path, twice, b"not looked at"))
    config = loaded.state["config"]["a"]
    assert text(config) == '{"i": Infinity, "n": NaN}'
    assert loaded.report == RecoveryReport(checkpoint_version=2)
    with pytest.raises(CheckpointValueError) as caught:
        normalize(loaded.state)
    assert caught.value.reason == "non_finite"
    assert caught.value.path == "$.config.a.n"


def test_a_version_2_snapshot_is_alone(tmp_path: Path) -> None:
    loaded = load_checkpoint(write_unit(tmp_path, base(2), journal=False))
    assert loaded.report.status == "clean"
    assert loaded.report.last_seq is None


# --- what a refusal tells


def test_a_refusal_has_the_prefix_and_says_where(tmp_path: Path) -> None:
    path = write_unit(tmp_path, base(), line(1), b"{}\n", line(2))
    error = refused(path)
    assert error.prefix is not None
    assert list(cast("dict[str, Any]", error.prefix["ops"])) == ["op-1"]
    assert f"line 2, byte {len(line(1))}" in str(error)


MARK = "sEcReTmArKeR"


@pytest.mark.parametrize("seed", range(40))
def test_reports_errors_and_logs_hold_no_content(
    tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    rng = random.Random(seed)
    document = base(
        session_id=MARK,
        prompt=MARK,
        flow_context={MARK: MARK},
        config={MARK: [MARK]},
        ops={MARK: entry(MARK, MARK)},
    )
    op = {"op": "add", "path": f"/{MARK}/{MARK}", "value": MARK}
    records = [
        line(1, {"op": "add", "path": f"/{MARK}1", "value": MARK}, entry=entry(MARK)),
        rng.choice(
            [
                line(2, op, entry=entry(MARK, MARK)),
                line(2, entry=entry(MARK, status=MARK)),
                line(2, kind=MARK),
                line(2).replace(b'"ok"', f'"{MARK}'.encode()),
                line(2).replace(b'"ok"', f'{{"{MARK}":1,"{MARK}":2}}'.encode()),
                line(2, **{MARK: 1}),
                line(7, entry=entry(MARK)),
                MARK.encode() + b"\n",
                MARK.encode(),
            ]
        ),
    ]
    content = json.dumps(document).encode()
    if seed % 5 == 0:
        content = rng.choice(
            [
                content.replace(b'"prompt"', b'"prompts"'),
                content[:-30],
                content.replace(b"{", f'{{"{MARK}":1,"{MARK}":2,'.encode(), 1),
                content.replace(b'"version": 3', f'"version": "{MARK}"'.encode()),
            ]
        )
    path = write_unit(tmp_path, content, *records)
    try:
        report: Any = load_checkpoint(path).report
        spelled = ""
    except CheckpointRefused as error:
        report, spelled = error.report, f"{error!s} {error!r} {error.__context__!r}"
    assert report.status != "clean"
    assert MARK not in json.dumps(report.as_dict()) + repr(report) + spelled
    assert MARK not in caplog.text


# --- what changes meanwhile


class Acting(Os):
    """Does something right after a call on a name, as another process might."""

    def __init__(self, call: str, name: str, act: Callable[[], None]) -> None:
        self._when = (call, name)
        self._act = act
        self._names: dict[int, str] = {}

    def _after(self, call: str, name: str) -> None:
        if (call, name) == self._when:
            self._act()

    def open(
        self, path: str, flags: int, mode: int = 0o600, *, dir_fd: int | None = None
    ) -> int:
        fd = super().open(path, flags, mode, dir_fd=dir_fd)
        self._names[fd] = path
        self._after("open", path)
        return fd

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        data = super().pread(fd, size, offset)
        self._after("read", self._names[fd])
        return data

    def stat(
        self, path: str, *, dir_fd: int | None = None, follow: bool = False
    ) -> os.stat_result:
        found = super().stat(path, dir_fd=dir_fd, follow=follow)
        self._after("stat", path)
        return found


class Writer:
    """Publishes units as a writer does: base first, then an empty journal."""

    def __init__(self, folder: Path, *, in_place: bool = False) -> None:
        self.folder = folder
        self.path = folder / "checkpoint.json"
        self.outcomes: dict[str, Any] = {}
        self.published = 0
        self.in_place = in_place
        self.compact()

    @property
    def generation(self) -> str:
        return f"{self.published:032x}"

    def put(self, path: Path, data: bytes) -> None:
        temp = self.folder / "temp"
        temp.write_bytes(data)
        os.replace(temp, path)

    def record(self) -> None:
        name = f"op-{len(self.outcomes)}"
        self.outcomes[name] = entry(name)
        self.seq += 1
        with self.journal.open("ab") as file:
            file.write(
                line(self.seq, generation=self.generation, entry=self.outcomes[name])
            )

    @property
    def journal(self) -> Path:
        return self.path.with_name("checkpoint.json.journal")

    def publish(self) -> None:
        self.published += 1
        document = base(ops=dict(self.outcomes), generation=self.generation)
        self.put(self.path, json.dumps(document).encode())

    def compact(self) -> None:
        self.publish()
        if self.in_place:
            self.journal.write_bytes(b"")
        else:
            self.put(self.journal, b"")
        self.seq = 0


SEAMS = [
    ("open", "checkpoint.json"),
    ("open", "checkpoint.json.journal"),
    ("stat", "checkpoint.json"),
    ("read", "checkpoint.json"),
    ("read", "checkpoint.json.journal"),
]


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("seam", SEAMS)
def test_a_compaction_at_any_moment_of_a_load(
    tmp_path: Path, seam: tuple[str, str], in_place: bool
) -> None:
    writer = Writer(tmp_path, in_place=in_place)
    for _ in range(3):
        writer.record()
    before = dict(writer.outcomes)
    acted: list[int] = []

    def act() -> None:
        if not acted:
            acted.append(1)
            writer.record()
            writer.compact()
            writer.record()

    loaded = load_checkpoint(writer.path, system=Acting(*seam, act))
    assert acted
    assert loaded.report.status == "clean"
    found = loaded.state["ops"]
    assert list(found) == list(writer.outcomes)[: len(found)]
    assert len(found) >= len(before)
    assert loaded.report.attempts in (1, 2)


@pytest.mark.parametrize("seam", SEAMS)
def test_a_base_without_its_reset_is_stale_and_not_wrong(
    tmp_path: Path, seam: tuple[str, str]
) -> None:
    writer = Writer(tmp_path)
    writer.record()
    writer.record()

    def act() -> None:
        if writer.published == 1:
            writer.publish()

    loaded = load_checkpoint(writer.path, system=Acting(*seam, act))
    assert loaded.state["ops"] == writer.outcomes
    assert loaded.report.status in ("clean", "recovered_prefix")
    if loaded.report.status == "recovered_prefix":
        assert loaded.report.stale_records == 2


def test_a_base_that_never_stands_still_is_incoherent(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    slept: list[float] = []
    system = Acting("open", "checkpoint.json", writer.publish)
    error = refused(writer.path, system=system, sleep=slept.append)
    report = cast("RecoveryReport", error.report)
    assert error.code == "incoherent_unit"
    assert report.as_dict() | {"reasons": []} == {
        "report_version": 1,
        "status": "refused",
        "checkpoint_version": None,
        "generation": None,
        "base_seq": None,
        "last_seq": None,
        "applied_records": None,
        "stale_records": None,
        "valid_bytes": None,
        "discarded_tail_bytes": None,
        "attempts": ATTEMPTS,
        "reasons": [],
    }
    assert report.reasons[0].where == "unit"
    assert len(slept) == ATTEMPTS
    assert sum(slept) < 0.5


def test_a_base_rewritten_in_place_is_read_again(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    done: list[int] = []

    def act() -> None:
        if not done:
            done.append(1)
            document = base(generation=OTHER, prompt="a longer prompt")
            writer.path.write_bytes(json.dumps(document).encode())

    loaded = load_checkpoint(
        writer.path, system=Acting("read", "checkpoint.json", act), sleep=lambda _: None
    )
    assert loaded.report.generation == OTHER
    assert loaded.report.attempts == 2


def test_an_append_during_the_load_is_whole_or_torn(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.record()
    data = line(2, generation=writer.generation, entry=entry("op-1"))
    halves = [data[:50], data[50:]]

    def act() -> None:
        if halves:
            with writer.journal.open("ab") as file:
                file.write(halves.pop(0))

    report = load_checkpoint(
        writer.path, system=Acting("open", "checkpoint.json.journal", act)
    ).report
    assert report.status == "recovered_prefix"
    assert (report.last_seq, report.discarded_tail_bytes) == (1, 50)
    report = load_checkpoint(
        writer.path, system=Acting("open", "checkpoint.json.journal", act)
    ).report
    assert (report.status, report.last_seq) == ("clean", 2)


# --- the grace for displays


def test_a_display_waits_for_an_append_and_a_resume_does_not(tmp_path: Path) -> None:
    data = line(2)
    path = write_unit(tmp_path, base(), line(1), data[:60])
    slept: list[float] = []

    def finish(seconds: float) -> None:
        slept.append(seconds)
        with path.with_name("checkpoint.json.journal").open("ab") as file:
            file.write(data[60:])

    report = load_checkpoint(path, sleep=finish).report
    assert (report.status, slept) == ("recovered_prefix", [])
    report = load_checkpoint(path, live=True, sleep=finish).report
    assert (report.status, report.last_seq, len(slept)) == ("clean", 2, 1)


def test_a_display_waits_only_so_long(tmp_path: Path) -> None:
    slept: list[float] = []
    path = write_unit(tmp_path, base(), line(1), b"torn")
    report = load_checkpoint(path, live=True, sleep=slept.append).report
    assert report.status == "recovered_prefix"
    assert 0 < sum(slept) <= 0.2
    slept.clear()
    refused(write_unit(tmp_path, base(), b"{}\n"), live=True, sleep=slept.append)
    assert slept == []
    path.unlink()
    refused(path, live=True, sleep=slept.append)
    assert slept


# --- damage of any kind


def sources() -> list[tuple[bytes, bytes]]:
    found = []
    for folder in sorted(VECTORS.iterdir()):
        parts = [folder / "checkpoint.json", folder / "checkpoint.json.journal"]
        data = [part.read_bytes() if part.exists() else b"" for part in parts]
        if 0 < len(data[0]) < 4000 and len(data[1]) < 4000:
            found.append((data[0], data[1]))
    return found


TOKENS = [
    *(b"NaN", b"1e999", b"null", b"true", b"{}", b"[]", b'""', b"-", b"\n", b"\0"),
    *(b"\xff", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b'"a":1,"a":2', b"\\ud800", b"~2"),
    *(b"[" * 300, b'{"":' * 300, b"9" * 4400, b'"version":3,', GENERATION.encode()),
    *(b'"seq":2', b'"status":"pending"', b'"kind":"spawned"', b"\\u0000", b"/"),
]


def damaged(rng: random.Random, data: bytes) -> bytes:
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice([0, 1, 1, 3, 20, 200]))
        how = rng.randrange(6)
        if how == 0:
            data = data[:at] + rng.choice(TOKENS) + data[end:]
        elif how == 1:
            data = data[:at] + data[end:]
        elif how == 2:
            data = data[:at] + data[at:end] * 2 + data[end:]
        elif how == 3:
            data = data[:at] + rng.randbytes(end - at) + data[end:]
        elif how == 4:
            lines = data.split(b"\n")
            rng.shuffle(lines)
            data = b"\n".join(lines)
        else:
            data = data[:at]
    return data


def check_damage(folder: Path, seed: int, units: list[tuple[bytes, bytes]]) -> str:
    rng = random.Random(seed)
    content, journal = rng.choice(units)
    if rng.random() < 0.4:
        content = damaged(rng, content)
    if rng.random() < 0.8:
        journal = damaged(rng, journal)
    path = write_unit(folder, content, journal)
    before = tree(folder)
    try:
        loaded: Loaded | None = load_checkpoint(path)
        assert loaded is not None
        report: Any = loaded.report
    except CheckpointRefused as error:
        report, loaded = error.report, None
    assert tree(folder) == before
    assert (loaded is None) is (report.status == "refused")
    assert [reason.fatal for reason in report.reasons[:-1]] == [False] * (
        len(report.reasons) - 1
    )
    json.dumps(report.as_dict())
    if loaded is not None and loaded.state["version"] == 3:
        assert text(normalize(loaded.state)) == text(loaded.state)
    return str(report.status)


def test_damage_ends_in_one_of_three_ways(tmp_path: Path) -> None:
    units = sources()
    seen = {check_damage(tmp_path, seed, units) for seed in range(2000)}
    assert seen == {"clean", "recovered_prefix", "refused"}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_much_damage_ends_in_one_of_three_ways(tmp_path: Path) -> None:
    units = sources()
    for seed in range(2000, 52_000):
        check_damage(tmp_path, seed, units)


@pytest.mark.parametrize("links", [1, 3])
def test_a_folder_behind_links_is_read(tmp_path: Path, links: int) -> None:
    real = tmp_path / "real"
    real.mkdir()
    write_unit(real, base(), line(1))
    last = real
    for number in range(links):
        made = tmp_path / f"link{number}"
        made.symlink_to(last)
        last = made
    assert load_checkpoint(last / "checkpoint.json").report.last_seq == 1
    with contextlib.chdir(last):
        assert load_checkpoint("checkpoint.json").report.last_seq == 1
