"""Writing a flow's picture to a file: what ``heaveto show`` prints, byte for byte."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast, get_args

from heaveto.cli.drawing import Form, drawing_lines
from heaveto.files import Directory
from heaveto.text import short_id

if TYPE_CHECKING:
    from pathlib import Path

    from heaveto.observe.snapshot import RunDetail

__all__ = ["FORMS", "export"]

DRAW = "heaveto_tui.dag_layout:draw"
FORMS: dict[str, tuple[str, str]] = {
    "text": ("text", "txt"),
    "svg": ("SVG", "svg"),
    "mermaid": ("Mermaid", "mmd"),
    "dot": ("DOT (Graphviz)", "dot"),
}
"""What a picture can be made of: how it is called, and how its file ends."""
_MOST = 1000
"""Names tried for a file before giving up."""


def export(
    detail: RunDetail,
    form: str,
    folder: Path,
    *,
    direction: str,
    ascii_only: bool = False,
) -> Path:
    """Write the picture of a run to a new file; blocking.

    Args:
        detail: The run.
        form: One of :data:`FORMS`.
        folder: Where the file is made; what is there already is never touched.
        direction: ``LR`` or ``TB``.
        ascii_only: Text in ASCII alone.

    Returns:
        The file.

    Raises:
        OSError: It cannot be written there.
    """
    assert form in get_args(Form)
    lines = drawing_lines(
        DRAW,
        detail,
        form=cast("Form", form),
        direction=direction,
        ascii_only=ascii_only,
        encoding="utf-8",
    )
    text = "".join(f"{line}\n" for line in lines).encode("utf-8")
    run = detail.run
    ascii_name = re.sub(r"[^A-Za-z0-9]+", "-", run.name or "").strip("-").lower()[:40]
    stem = "-".join(filter(None, (short_id(run.session_id or run.run_id), ascii_name)))
    with Directory.open(folder) as directory:
        for number in range(1, _MOST):
            more = "" if number == 1 else f"-{number}"
            name = f"{stem}{more}.{FORMS[form][1]}"
            try:
                file = directory.create(name)
            except FileExistsError:
                continue
            with file:
                file.append(text)
                file.sync()
            return folder / name
    raise FileExistsError(f"{_MOST} files named {stem} are there")
