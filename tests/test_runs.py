"""Run ids, run directories, run.json, homes and their kind."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from harness.steering import (
    add_session,
    child,
    fingerprint,
    make_home,
    run_child,
    sql,
)
from heaveto.config import Config
from heaveto.errors import ForeignOwnerError, HeavetoError, HomeError, RunError
from heaveto.homes import (
    default_home,
    home_kind,
    open_home,
    resolve_homes,
    writing_home,
)
from heaveto.runs import (
    RUN_JSON_LIMIT,
    Home,
    RunDir,
    RunRecord,
    check_file_system,
    check_name,
    file_system,
    is_run_id,
    new_run_id,
    read_run_json,
    run_names,
    write_run_json,
)

RUN = "20261129T101500-a1b2c3"


# --- ids and names


def test_run_id_is_the_time_in_utc_and_chance() -> None:
    assert new_run_id(1795947300.9, lambda: "a1b2c3") == RUN
    assert is_run_id(new_run_id())
    assert len({new_run_id(0.0) for _ in range(100)}) > 90


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "/etc",
        "a/b",
        "a/../../b",
        ".hidden",
        "-x",
        "a\0b",
        "a\nb",
        "a b",
        "x" * 129,
        "ü",
        "a\u202eb",
    ],
)
def test_name_that_is_no_path_component_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunError) as caught:
        check_name(name)
    assert caught.value.code == "run_name"
    for use in (Home(tmp_path).run, RunDir(tmp_path).operation):
        with pytest.raises(RunError):
            use(name)


@pytest.mark.parametrize("name", [RUN, "op-1", "A", "a.b", "x" * 128, "_x"])
def test_name_of_a_run_or_operation_is_fine(name: str) -> None:
    assert check_name(name) == name


# --- directories and locks


def test_directories_are_ours_alone_under_any_mask(tmp_path: Path) -> None:
    for mask in (0, 0o022, 0o077):
        said = run_child(
            "import os, sys; from pathlib import Path\n"
            "from heaveto.runs import Home, RunDir\n"
            "os.umask(int(sys.argv[2]))\n"
            "RunDir.create(Home(Path(sys.argv[1])), sys.argv[3])\n",
            tmp_path / f"deep/{mask}/home",
            mask,
            RUN,
        )
        assert said == ""
        run = tmp_path / f"deep/{mask}/home/runs/{RUN}"
        for folder in (run, run.parent, run.parent.parent, run.parents[2]):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_run_that_exists_is_not_taken_over(tmp_path: Path) -> None:
    RunDir.create(Home(tmp_path), RUN)
    with pytest.raises(RunError) as caught:
        RunDir.create(Home(tmp_path), RUN)
    assert caught.value.code == "run_exists"


def test_one_runner_holds_a_run(tmp_path: Path) -> None:
    run = RunDir.create(Home(tmp_path), RUN)
    with child(
        "import sys; from pathlib import Path; from heaveto.runs import RunDir\n"
        "held = RunDir(Path(sys.argv[1])).hold()\n"
        "print('held', flush=True); sys.stdin.readline()\n",
        run.path,
    ) as other:
        other.expect("held")
        with pytest.raises(RunError) as caught:
            run.hold()
        assert caught.value.code == "run_live"
        assert str(other.pid) in str(caught.value)
        other.kill()
    run.hold().close()
    assert stat.S_IMODE(run.lock.stat().st_mode) == 0o600


def test_lock_of_an_absent_run_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(RunError) as caught:
        Home(tmp_path).run(RUN).hold()
    assert caught.value.code == "run_missing"


@pytest.mark.parametrize("what", ["home", "runs", "state.db"])
def test_what_others_may_write_is_refused(tmp_path: Path, what: str) -> None:
    home = make_home(tmp_path / "home")
    path = home.path if what == "home" else home.path / what
    path.chmod(path.stat().st_mode | 0o020)
    with pytest.raises(ForeignOwnerError):
        home.check_writable()
    with pytest.raises(ForeignOwnerError):
        RunDir.create(home, RUN)
    assert run_names(home) == []


def test_run_directories_are_real_ones(tmp_path: Path) -> None:
    home = Home(tmp_path)
    RunDir.create(home, RUN)
    (home.runs / "20261129T101501-aaaaaa").touch()
    (home.runs / "20261129T101502-aaaaaa").symlink_to(home.runs / RUN)
    (home.runs / ".trash").mkdir()
    assert run_names(home) == [RUN]
    assert run_names(Home(tmp_path / "absent")) == []


# --- run.json


def test_record_is_read_as_written(tmp_path: Path) -> None:
    run = RunDir.create(Home(tmp_path), RUN)
    record = RunRecord(
        run_id=RUN,
        state_root=str(run.path),
        artifact_root="/a",
        cwd="/c",
        status="running",
        started_at=1795947300.0,
        session_id="ab" * 16,
        checkpoint_format=3,
        extra={"later": [1]},
    )
    write_run_json(run, record)
    assert read_run_json(run) == record
    assert stat.S_IMODE(run.run_json.stat().st_mode) == 0o600
    stored = json.loads(run.run_json.read_bytes())
    assert stored["ended_at"] is None
    assert list(stored) == [
        "run_id",
        "state_root",
        "artifact_root",
        "cwd",
        "status",
        "started_at",
        "ended_at",
        "session_id",
        "resumed_from",
        "checkpoint_format",
        "later",
    ]
    assert sorted(os.listdir(run.path)) == ["run.json"]


def test_record_with_strange_members_is_read(tmp_path: Path) -> None:
    run = RunDir.create(Home(tmp_path), RUN)
    run.run_json.write_text(
        '{"run_id": "../../x", "status": 5, "started_at": NaN, "ended_at": true,'
        ' "checkpoint_format": "3", "pid": 7}'
    )
    assert read_run_json(run) == RunRecord(run_id=RUN, extra={"pid": 7})


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 40, b"[]", b"{", b"\xff\xfe", b"[" * 100_000, b"1" * 5000],
    ids=["empty", "zeros", "list", "half", "utf16", "deep", "long"],
)
def test_damaged_record_is_a_typed_error(tmp_path: Path, content: bytes) -> None:
    run = RunDir.create(Home(tmp_path), RUN)
    run.run_json.write_bytes(content)
    with pytest.raises(RunError) as caught:
        read_run_json(run)
    assert caught.value.code == "run_damaged"


def test_record_that_is_no_small_file_is_refused_at_once(tmp_path: Path) -> None:
    run = RunDir.create(Home(tmp_path), RUN)
    os.mkfifo(run.run_json)
    with pytest.raises(RunError) as caught:
        read_run_json(run)
    assert caught.value.code == "run_damaged"
    run.run_json.unlink()
    with open(run.run_json, "wb") as stream:
        stream.truncate(10 << 30)
    with pytest.raises(RunError, match="too large"):
        read_run_json(run)
    run.run_json.unlink()
    run.run_json.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text("{}")
    with pytest.raises(RunError):
        read_run_json(run)
    assert RUN_JSON_LIMIT < 10 << 30


def test_absent_record_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(RunError) as caught:
        read_run_json(Home(tmp_path).run(RUN))
    assert caught.value.code == "run_missing"


# --- file systems

MOUNTS = [
    ("/", "ext4"),
    ("/mnt", "nfs4"),
    ("/mnt/local", "xfs"),
    ("/wsl", "9p"),
    ("/share", "cifs"),
    ("/smb", "smbfs"),
    ("/a b", "tmpfs"),
    ("/over", "ext4"),
    ("/over", "fuse.sshfs"),
]


@pytest.mark.parametrize(
    ("path", "kind", "refused"),
    [
        ("/home/u/x", "ext4", False),
        ("/mnt/x", "nfs4", True),
        ("/mntx", "ext4", False),
        ("/mnt/local/x", "xfs", False),
        ("/wsl/x", "9p", True),
        ("/share", "cifs", True),
        ("/smb/x/y", "smbfs", True),
        ("/a b/x", "tmpfs", False),
        ("/over/x", "fuse.sshfs", True),
    ],
)
def test_network_file_systems_are_refused(path: str, kind: str, refused: bool) -> None:
    assert file_system(Path(path), lambda: MOUNTS) == kind
    if refused:
        with pytest.raises(HomeError) as caught:
            check_file_system(Path(path), lambda: MOUNTS)
        assert caught.value.code == "home_remote"
    else:
        check_file_system(Path(path), lambda: MOUNTS)


def test_this_file_system_is_known_and_local(tmp_path: Path) -> None:
    assert file_system(tmp_path / "not" / "there")
    check_file_system(tmp_path)


# --- the kind of a home


def lionagi_run(path: Path) -> None:
    run = path / "runs" / RUN
    run.mkdir(parents=True)
    (run / "run.json").write_text('{"run_id": "x", "branch_id": "b"}')


def database(path: Path, lineage: str | None) -> None:
    path.mkdir(exist_ok=True)
    with closing(sqlite3.connect(path / "state.db")) as made:
        made.execute("CREATE TABLE schema_meta (key TEXT, value TEXT)")
        if lineage is not None:
            made.execute("INSERT INTO schema_meta VALUES ('lineage', ?)", (lineage,))
        made.commit()


def test_kind_by_lineage(tmp_path: Path) -> None:
    for lineage in ("heaveto", "lionagi"):
        database(tmp_path / lineage, lineage)
        assert home_kind(tmp_path / lineage) == lineage
    add_session(make_home(tmp_path / "real"), "s")
    assert home_kind(tmp_path / "real") == "heaveto"


def test_kind_by_runs_where_the_database_says_nothing(tmp_path: Path) -> None:
    lionagi_run(tmp_path / "a")
    assert home_kind(tmp_path / "a") == "lionagi"
    lionagi_run(tmp_path / "b")
    database(tmp_path / "b", None)
    assert home_kind(tmp_path / "b") == "lionagi"
    home = Home(tmp_path / "c")
    write_run_json(RunDir.create(home, RUN), RunRecord(run_id=RUN))
    assert home_kind(home.path) == "heaveto"


def test_new_home_is_absent_empty_or_has_an_empty_database(tmp_path: Path) -> None:
    assert home_kind(tmp_path / "absent") == "new"
    assert home_kind(tmp_path) == "new"
    Home(tmp_path).make()
    (tmp_path / "state.db").touch()
    (tmp_path / ".DS_Store").touch()
    assert home_kind(tmp_path) == "new"
    assert (tmp_path / "state.db").stat().st_size == 0


@pytest.mark.parametrize("what", ["strange", "text", "other", "folder", "file"])
def test_anything_else_is_no_home(tmp_path: Path, what: str) -> None:
    path = tmp_path / "home"
    path.mkdir()
    if what == "strange":
        (path / "thesis.txt").touch()
    elif what == "text":
        (path / "state.db").write_text("no database but a text " * 100)
    elif what == "other":
        database(path, "somebody")
    elif what == "folder":
        (path / "state.db").mkdir()
    else:
        path.rmdir()
        path.touch()
    before = fingerprint(tmp_path)
    with pytest.raises(HomeError):
        home_kind(path)
    assert fingerprint(tmp_path) == before


def test_kind_does_not_hang_on_who_holds_the_database(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    sql(home, "PRAGMA journal_mode = DELETE")
    with child(
        "import sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "db.execute('BEGIN EXCLUSIVE')\n"
        "db.execute(\"INSERT INTO plays VALUES ('p', 'n', 's', NULL, 1, 1, 1, 1)\")\n"
        "print('locked', flush=True); sys.stdin.readline()\n",
        home.state_db,
    ) as other:
        other.expect("locked")
        assert home_kind(home.path) == "heaveto"


# --- which homes are open


def test_given_homes_are_the_only_ones(tmp_path: Path) -> None:
    environ = {"HEAVETO_HOME": str(tmp_path / "own"), "HOME": str(tmp_path)}
    lionagi_run(tmp_path / ".lionagi")
    given = [tmp_path / "a", tmp_path / "b", tmp_path / "a"]
    homes = resolve_homes(given, environ=environ)
    assert [home.path for home in homes] == given[:2]


def test_own_home_then_those_of_the_settings_then_lionagis(tmp_path: Path) -> None:
    environ = {"HEAVETO_HOME": str(tmp_path / "own"), "HOME": str(tmp_path)}
    config = Config(homes=(tmp_path / "more", tmp_path / "own"))
    lionagi_run(tmp_path / ".lionagi")
    homes = resolve_homes(config=config, environ=environ)
    assert [(home.path.name, home.kind) for home in homes] == [
        ("own", "new"),
        ("more", "new"),
        (".lionagi", "lionagi"),
    ]
    assert writing_home(homes).path == tmp_path / "own"
    for left_out in (
        resolve_homes(config=config, lionagi=False, environ=environ),
        resolve_homes(
            config=Config(homes=config.homes, lionagi=False), environ=environ
        ),
    ):
        assert [home.path.name for home in left_out] == ["own", "more"]


def test_lionagis_home_is_where_it_says(tmp_path: Path) -> None:
    lionagi_run(tmp_path / "other")
    environ = {
        "HEAVETO_HOME": str(tmp_path / "own"),
        "HOME": str(tmp_path),
        "LIONAGI_HOME": str(tmp_path / "other"),
    }
    assert [home.path.name for home in resolve_homes(environ=environ)] == [
        "own",
        "other",
    ]
    environ["LIONAGI_HOME"] = str(tmp_path / "absent")
    assert [home.path.name for home in resolve_homes(environ=environ)] == ["own"]


def test_folder_of_lionagis_settings_alone_is_no_home(tmp_path: Path) -> None:
    (tmp_path / ".lionagi").mkdir()
    (tmp_path / ".lionagi" / "settings.yaml").touch()
    environ = {"HEAVETO_HOME": str(tmp_path / "own"), "HOME": str(tmp_path)}
    assert len(resolve_homes(environ=environ)) == 1


def test_runs_are_not_written_into_lionagis_home(tmp_path: Path) -> None:
    lionagi_run(tmp_path / "a")
    with pytest.raises(HomeError):
        writing_home([open_home(tmp_path / "a")])


def test_own_home_without_a_variable_is_the_systems_data_folder() -> None:
    assert re.search("heaveto", str(default_home({})))
    assert default_home({"HEAVETO_HOME": "~/x"}) == Path.home() / "x"


def test_every_refusal_here_is_one_of_ours() -> None:
    assert issubclass(HomeError, HeavetoError)
    assert issubclass(RunError, HeavetoError)
