"""The settings file: strictly read, or the start stops with file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from heaveto.config import Config, config_path, load_config
from heaveto.errors import HomeError


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "config.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_absent_file_means_defaults(tmp_path: Path) -> None:
    assert load_config(tmp_path / "config.toml") == Config()
    assert load_config(environ={"HEAVETO_CONFIG": str(tmp_path / "x")}) == Config()


def test_place_is_the_variable_or_the_systems_folder(tmp_path: Path) -> None:
    assert config_path({"HEAVETO_CONFIG": "~/h.toml"}) == Path.home() / "h.toml"
    assert config_path({}).parts[-2:] == ("heaveto", "config.toml")


def test_every_setting_is_read(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
homes = ["/srv/flows", "~/more"]
lionagi = false
theme = "dusk"
ascii = true
notify = "notify-send 'run ended'"
motion = "off"
mouse = false
bell = false
[keys]
"ctl.pause" = "P"
""",
    )
    assert load_config(path) == Config(
        path=path,
        homes=(Path("/srv/flows"), Path.home() / "more"),
        lionagi=False,
        theme="dusk",
        ascii=True,
        keys={"ctl.pause": "P"},
        notify="notify-send 'run ended'",
        motion=False,
        mouse=False,
        bell=False,
    )


def test_byte_order_mark_is_fine(tmp_path: Path) -> None:
    path = written(tmp_path, b'\xef\xbb\xbftheme = "dusk"\n')
    assert load_config(path).theme == "dusk"
    assert load_config(written(tmp_path, 'keys = "vi"')).keys == "vi"


@pytest.mark.parametrize(
    ("text", "line", "key", "words"),
    [
        ('theme = "dusk"\ncolour = 1\n', 2, "colour", "unknown setting"),
        ('# x\n\nascii = "yes"\n', 3, "ascii", "true or false"),
        ("bell = 1\n", 1, "bell", "true or false"),
        ("theme = []\n", 1, "theme", "a text"),
        ('theme = ""\n', 1, "theme", "a text"),
        ('homes = "x"\n', 1, "homes", "a list"),
        ('lionagi = true\nhomes = ["rel"]\n', 2, "homes", "absolute"),
        ("homes = [1]\n", 1, "homes", "a text"),
        ("lionagi = true\n[keys]\npause = 1\n", 2, "keys", "pause"),
        ('theme = "dusk",\n', 1, "theme", ""),
        ('ascii = true\ntheme = "dusk\n', 2, "theme", ""),
        ("ascii = true\nascii = false\n", 2, "ascii", ""),
        ('x = "\\q"', 1, "x", ""),
        ("\n\n= 3", 3, "", ""),
        ("a = " + "[" * 5000, None, "", ""),
    ],
)
def test_mistake_names_file_line_and_key(
    tmp_path: Path, text: str, line: int | None, key: str, words: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(HomeError) as caught:
        load_config(path)
    said = str(caught.value)
    assert caught.value.code == "config_invalid"
    place = f"{path}:{line}: " if line else f"{path}"
    assert said.startswith(place)
    assert key in said
    assert words in said
    assert "\n" not in said


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe\x00", b"theme = 'x'\n\xff", b"#" * (1 << 21), b"a\0b"],
    ids=["utf16", "latin1", "large", "nul"],
)
def test_file_that_is_no_text_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(HomeError, match=r"config\.toml"):
        load_config(written(tmp_path, content))


def test_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.toml").mkdir()
    with pytest.raises(HomeError, match="cannot be read"):
        load_config(tmp_path / "config.toml")
