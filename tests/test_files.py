"""Directories and files by their handles: what they do, and what they leave alone."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from harness.faults import Fault, FaultyOs
from heaveto.errors import (
    FileIdentityError,
    FileMissingError,
    FileTypeError,
    ForeignOwnerError,
    LockHeldError,
)
from heaveto.files import (
    OS,
    Directory,
    Identity,
    Os,
    check_owner,
    hold_file,
    lock_holder,
    make_directories,
    replace_file,
    temp_name,
)

FOREIGN = b"somebody else's"


@pytest.fixture
def folder(tmp_path: Path) -> Directory:
    return Directory.open(tmp_path)


@pytest.fixture(autouse=True)
def _closed(folder: Directory) -> object:
    yield
    folder.close()


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd")) if sys.platform == "linux" else set()


# --- directories


def test_opening_what_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileMissingError):
        Directory.open(tmp_path / "absent")
    with pytest.raises(FileTypeError):
        Directory.open(tmp_path / "file")


def test_a_directory_is_known_by_its_handle(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    with Directory.open(place) as directory:
        directory.verify()
        place.rename(tmp_path / "aside")
        with pytest.raises(FileIdentityError):
            directory.verify()
        place.touch()
        with pytest.raises(FileIdentityError):
            directory.verify()
        place.unlink()
        place.mkdir()
        with pytest.raises(FileIdentityError):
            directory.verify()
        with directory.create("new"):
            pass
        assert os.listdir(place) == []
        assert os.listdir(tmp_path / "aside") == ["new"]


def test_a_parent_that_is_no_directory_any_more(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    with Directory.open(inner) as directory:
        inner.parent.rename(tmp_path / "aside")
        (tmp_path / "a").touch()
        with pytest.raises(FileIdentityError):
            directory.verify()


def test_subdirectories_are_not_opened_through_links(
    tmp_path: Path, folder: Directory
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    folder.subdirectory("real").close()
    for name in ("link", "absent"):
        with pytest.raises((FileTypeError, FileMissingError)):
            folder.subdirectory(name)
    folder.make("made").close()
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o700
    with pytest.raises(FileExistsError):
        folder.make("made")


def test_a_tree_is_removed_without_following_links(
    tmp_path: Path, folder: Directory
) -> None:
    kept = tmp_path / "kept"
    kept.write_bytes(FOREIGN)
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "deep" / "file").touch()
    (tmp_path / "tree" / "link").symlink_to(kept)
    folder.remove_tree("tree")
    assert folder.names() == ["kept"]
    assert kept.read_bytes() == FOREIGN


def test_a_folder_without_sync_says_so_once(tmp_path: Path) -> None:
    class NoSync(Os):
        calls = 0

        def fsync(self, fd: int) -> None:
            self.calls += 1
            raise OSError(errno.EINVAL, "no")

    system = NoSync()
    with Directory.open(tmp_path, system=system) as directory:
        directory.sync()
        directory.sync()
    assert (system.calls, directory.can_sync) == (1, False)


def test_an_unexpected_sync_error_is_no_capability(tmp_path: Path) -> None:
    class Broken(Os):
        def fsync(self, fd: int) -> None:
            raise OSError(errno.EIO, "no")

    with Directory.open(tmp_path, system=Broken()) as directory:
        with pytest.raises(OSError, match="no"):
            directory.sync()
        assert directory.can_sync


# --- making directories


def test_missing_parents_are_made_private_and_synced(tmp_path: Path) -> None:
    system = FaultyOs()
    before = os.umask(0)
    try:
        make_directories(tmp_path / "a" / "b" / "c", system=system)
    finally:
        os.umask(before)
    assert [seam.call for seam in system.seams].count("mkdir") == 3
    assert [seam.call for seam in system.seams].count("fsync") == 3
    for place in ("a", "a/b", "a/b/c"):
        assert stat.S_IMODE((tmp_path / place).stat().st_mode) == 0o700
    make_directories(tmp_path / "a" / "b" / "c")
    make_directories(tmp_path / "d", sync=False, system=(quiet := FaultyOs()))
    assert "fsync" not in {seam.call for seam in quiet.seams}


def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileTypeError):
        make_directories(tmp_path / "dangling" / "inner")
    (tmp_path / "file").touch()
    with pytest.raises(FileTypeError):
        make_directories(tmp_path / "file" / "inner")
    assert not (tmp_path / "nowhere").exists()


def test_a_link_that_leads_to_a_folder_may_stand_above(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    make_directories(tmp_path / "link" / "inner")
    assert (tmp_path / "real" / "inner").is_dir()


def test_two_may_make_the_same_directory(tmp_path: Path) -> None:
    class Raced(Os):
        def mkdir(
            self, path: str, mode: int = 0o700, *, dir_fd: int | None = None
        ) -> None:
            super().mkdir(path, mode, dir_fd=dir_fd)
            super().mkdir(path, mode, dir_fd=dir_fd)

    make_directories(tmp_path / "a" / "b", system=Raced())
    assert (tmp_path / "a" / "b").is_dir()


# --- files


def test_a_file_is_created_exclusively(tmp_path: Path, folder: Directory) -> None:
    (tmp_path / "taken").write_bytes(FOREIGN)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for name in ("taken", "link"):
        with pytest.raises(FileExistsError):
            folder.create(name)
    assert (tmp_path / "taken").read_bytes() == FOREIGN
    assert not (tmp_path / "target").exists()
    before = os.umask(0)
    try:
        with folder.create("new") as owned:
            assert stat.S_IMODE(os.fstat(owned.fd).st_mode) == 0o600
            assert owned.identity == Identity.of(os.stat(tmp_path / "new"))
    finally:
        os.umask(before)


def test_short_writes_are_completed_and_counted(folder: Directory) -> None:
    class OneByte(Os):
        def write(self, fd: int, data: bytes | memoryview) -> int:
            return super().write(fd, data[:1])

    folder.system = OneByte()
    with folder.create("file") as owned:
        owned.append(b"hello")
        assert (owned.written, folder.written, owned.size()) == (5, 5, 5)
    assert folder.read("file") == b"hello"


def test_a_write_without_progress_is_an_error(folder: Directory) -> None:
    class Nothing(Os):
        def write(self, fd: int, data: bytes | memoryview) -> int:
            return 0

    folder.system = Nothing()
    with folder.create("file") as owned, pytest.raises(OSError, match="no progress"):
        owned.append(b"hello")


def test_an_append_wants_the_very_file(tmp_path: Path, folder: Directory) -> None:
    with folder.create("file") as owned:
        identity = owned.identity
    with folder.open_append("file", identity=identity) as again:
        again.append(b"x")
    (tmp_path / "file").rename(tmp_path / "aside")
    with pytest.raises(FileMissingError):
        folder.open_append("file", identity=identity)
    (tmp_path / "file").write_bytes(FOREIGN)
    with pytest.raises(FileIdentityError):
        folder.open_append("file", identity=identity)
    assert (tmp_path / "file").read_bytes() == FOREIGN


@pytest.mark.timeout(20)
def test_what_is_no_regular_file_is_neither_read_nor_waited_for(
    tmp_path: Path, folder: Directory
) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    for name in ("fifo", "folder", "link"):
        for act in (folder.read, folder.open_append, folder.pin):
            with pytest.raises(FileTypeError):
                act(name)
    with pytest.raises(FileMissingError):
        folder.read("absent")


def test_reading_whole_and_in_part(tmp_path: Path, folder: Directory) -> None:
    (tmp_path / "file").write_bytes(b"x" * 3_000_000)
    assert len(folder.read("file")) == 3_000_000
    assert folder.read("file", limit=10) == b"x" * 10


# --- installing, publishing, discarding


class NoExchange(Os):
    def exchange(self, one: str, other: str, *, dir_fd: int) -> None:
        raise OSError(errno.EPERM, "no")

    def rename_new(self, source: str, target: str, *, dir_fd: int) -> None:
        raise OSError(errno.ENOSYS, "no")


@pytest.fixture(params=[Os, NoExchange], ids=["exchange", "rename"])
def either(folder: Directory, request: pytest.FixtureRequest) -> Directory:
    folder.system = request.param()
    return folder


def test_installing_gives_a_free_name(either: Directory) -> None:
    with either.create("temp") as owned:
        either.install(owned, "name", replacing=None)
        assert owned.name == "name"
        assert either.names() == ["name"]
        assert either.identity_of("name") == owned.identity


def test_installing_replaces_an_own_file_only(
    tmp_path: Path, either: Directory
) -> None:
    with either.create("name") as old, either.create("temp") as new:
        either.install(new, "name", replacing=old)
        assert either.identity_of("name") == new.identity
        either.discard(old)
        assert either.names() == ["name"]
    with either.create("other") as newer:
        os.replace(tmp_path / "name", tmp_path / "aside")
        (tmp_path / "name").write_bytes(FOREIGN)
        for replacing in (new, None):
            with pytest.raises(FileIdentityError):
                either.install(newer, "name", replacing=replacing)
    assert (tmp_path / "name").read_bytes() == FOREIGN


def test_installing_wants_the_file_under_its_own_name(
    tmp_path: Path, either: Directory
) -> None:
    with either.create("temp") as owned:
        os.replace(tmp_path / "temp", tmp_path / "aside")
        (tmp_path / "temp").write_bytes(FOREIGN)
        with pytest.raises(FileIdentityError):
            either.install(owned, "name", replacing=None)
    assert (tmp_path / "temp").read_bytes() == FOREIGN
    assert not (tmp_path / "name").exists()


def test_a_file_that_comes_between_check_and_exchange_is_not_lost(
    tmp_path: Path, folder: Directory
) -> None:
    class Racing(Os):
        def exchange(self, one: str, other: str, *, dir_fd: int) -> None:
            os.replace(tmp_path / other, tmp_path / "aside")
            (tmp_path / other).write_bytes(FOREIGN)
            super().exchange(one, other, dir_fd=dir_fd)

        def rename_new(self, source: str, target: str, *, dir_fd: int) -> None:
            (tmp_path / target).write_bytes(FOREIGN)
            super().rename_new(source, target, dir_fd=dir_fd)

    folder.system = Racing()
    with folder.create("name") as old, folder.create("temp") as new:
        with pytest.raises(FileIdentityError):
            folder.install(new, "name", replacing=old)
        assert folder.identity_of("name") == new.identity
        assert (tmp_path / "temp").read_bytes() == FOREIGN
    with folder.create("other") as owned:
        with pytest.raises(FileIdentityError):
            folder.install(owned, "fresh", replacing=None)
        assert (tmp_path / "fresh").read_bytes() == FOREIGN


def test_after_an_uncertain_rename_a_file_is_found(folder: Directory) -> None:
    with folder.create("one") as owned:
        assert folder.locate(owned, "two", "one")
        assert owned.name == "one"
        OS.rename("one", "two", dir_fd=folder.fd, target_dir_fd=folder.fd)
        assert folder.locate(owned, "two", "one")
        assert owned.name == "two"
        folder.remove("two")
        assert not folder.locate(owned, "two", "one")
        assert owned.name == ""
        folder.discard(owned)


def test_only_the_own_object_is_discarded(tmp_path: Path, folder: Directory) -> None:
    with folder.create("temp") as owned:
        os.replace(tmp_path / "temp", tmp_path / "aside")
        (tmp_path / "temp").write_bytes(FOREIGN)
        folder.discard(owned)
    assert (tmp_path / "temp").read_bytes() == FOREIGN


# --- replacing a file whole


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    with Directory.open(tmp_path, system=(system := FaultyOs())) as directory:
        replace_file(directory, "file", b"new")
        calls = [seam.call for seam in system.seams]
        assert calls.index("fsync") < calls.index("rename") < len(calls) - 1
        assert directory.names() == ["file"]
        system.seams.clear()
        replace_file(directory, "file", b"newer", sync=False)
        assert "fsync" not in [seam.call for seam in system.seams]
    assert (tmp_path / "file").read_bytes() == b"newer"
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "call", ["create", "fstat", "write", "fsync", "rename", "stat"]
)
def test_a_failed_replacement_leaves_the_old_file(tmp_path: Path, call: str) -> None:
    (tmp_path / "file").write_bytes(b"old")
    system = FaultyOs()
    with Directory.open(tmp_path, system=system) as directory:
        begin = len(system.seams)
        replace_file(directory, "file", b"old")
        at = next(s.number for s in system.seams[begin:] if s.call == call) - begin
        fault = Fault(at=len(system.seams) + at, act="fail", error=errno.ENOSPC)
        system.faults = [fault]
        open_before = descriptors()
        with pytest.raises(OSError, match="No space left"):
            replace_file(directory, "file", b"new")
        assert descriptors() == open_before
    assert (tmp_path / "file").read_bytes() == b"old"
    left = [name for name in os.listdir(tmp_path) if name != "file"]
    assert len(left) <= (call == "fstat")


def test_two_temps_never_have_one_name() -> None:
    names = {temp_name("f") for _ in range(100)}
    assert len(names) == 100
    assert all(name.startswith(".f.") for name in names)


# --- locks


def test_a_folder_is_held_by_one_handle(tmp_path: Path, folder: Directory) -> None:
    folder.hold()
    with Directory.open(tmp_path) as other, pytest.raises(LockHeldError):
        other.hold()
    folder.close()
    with Directory.open(tmp_path) as other:
        other.hold()


def test_a_lock_file_is_asked_without_being_taken(
    tmp_path: Path, folder: Directory
) -> None:
    path = tmp_path / ".lock"
    assert lock_holder(path) is None
    with hold_file(folder, ".lock"):
        assert lock_holder(path) == os.getpid()
        code = (
            "import sys; from pathlib import Path\n"
            "from heaveto.errors import LockHeldError\n"
            "from heaveto.files import Directory, hold_file, lock_holder\n"
            "path = Path(sys.argv[1]); print(lock_holder(path))\n"
            "try: hold_file(Directory.open(path.parent), path.name)\n"
            "except LockHeldError as error: print(error.pid)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)],
            check=True,
            capture_output=True,
            text=True,
        )
        assert done.stdout.split() == [str(os.getpid())] * 2
        assert lock_holder(path) == os.getpid()
    assert lock_holder(path) is None


@pytest.mark.timeout(20)
def test_a_lock_file_that_is_none(tmp_path: Path, folder: Directory) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("elsewhere")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for name in ("fifo", "link", "folder", "file", "file/inner", "absent"):
        assert lock_holder(tmp_path / name) is None
    for name in ("fifo", "link", "folder"):
        with pytest.raises(FileTypeError):
            hold_file(folder, name)


# --- nothing leaks


@pytest.mark.skipif(sys.platform != "linux", reason="counts /proc/self/fd")
@pytest.mark.parametrize("call", ["fstat", "flock", "fsync", "mkdir", "open", "lockf"])
def test_a_failed_call_leaks_no_descriptor(tmp_path: Path, call: str) -> None:
    def act(system: Os) -> None:
        make_directories(tmp_path / "a" / "b", system=system)
        with Directory.open(tmp_path / "a" / "b", system=system) as directory:
            directory.hold()
            with directory.create("file"):
                pass
            with hold_file(directory, ".lock"):
                pass
            directory.pin("file").close()
        directory = Directory.open(tmp_path, system=OS)
        directory.remove_tree("a")
        directory.close()

    act(counting := FaultyOs())
    for seam in counting.seams:
        if seam.call == call:
            before = descriptors()
            fault = Fault(at=seam.number, act="fail", error=errno.EIO)
            with contextlib.suppress(OSError):
                act(system := FaultyOs([fault]))
            assert system.struck
            assert descriptors() == before
            with Directory.open(tmp_path) as directory:
                if "a" in directory.names():
                    directory.remove_tree("a")


# --- who owns it


def test_what_others_may_write_is_foreign(tmp_path: Path) -> None:
    check_owner(tmp_path / "absent")
    check_owner(tmp_path)
    with pytest.raises(ForeignOwnerError):
        check_owner(tmp_path, uid=lambda: os.geteuid() + 1)
    for mode in (0o720, 0o702):
        tmp_path.chmod(mode)
        with pytest.raises(ForeignOwnerError):
            check_owner(tmp_path)
    tmp_path.chmod(0o755)
    check_owner(tmp_path)
