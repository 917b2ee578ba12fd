"""Reads a drawn flow back: which operations can a reader follow a wire to?

It knows the picture alone: rows, boxes, direction. Lines are followed forward only,
along the flow; a vertical line met sideways is a bridge and is passed straight.

Also the graphs that are drawn most: seeded plans of 12 to 5000 operations with fan-out,
fan-in, long edges and a tail of spawned children, as data in ``golden/dag``.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heaveto.text import cell_width

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Reader", "edges_of", "golden", "grid", "kinds_seen", "read_back"]

Box = tuple[int, int, int, int]
Edge = tuple[str, str]
Node = tuple[str, str, list[str]]

GOLDEN = Path(__file__).parent.parent / "golden" / "dag"

UP, RIGHT, DOWN, LEFT = (0, -1), (1, 0), (0, 1), (-1, 0)

_ARMS = {
    "│╎║┊": (UP, DOWN),
    "─╌═┈": (LEFT, RIGHT),
    "╭╔": (RIGHT, DOWN),
    "╮╗": (LEFT, DOWN),
    "╰╚": (UP, RIGHT),
    "╯╝": (UP, LEFT),
    "├": (UP, DOWN, RIGHT),
    "┤": (UP, DOWN, LEFT),
    "┬": (LEFT, RIGHT, DOWN),
    "┴": (LEFT, RIGHT, UP),
    "┼": (UP, DOWN, LEFT, RIGHT),
}
_ASCII_ARMS = {
    "|:#!": (UP, DOWN),
    "-~=?": (LEFT, RIGHT),
    ",": (RIGHT, DOWN),
    ".": (LEFT, DOWN),
    "`": (UP, RIGHT),
    "'": (UP, LEFT),
    "[": (UP, DOWN, RIGHT),
    "]": (UP, DOWN, LEFT),
    "T": (LEFT, RIGHT, DOWN),
    "^": (LEFT, RIGHT, UP),
    "+": (UP, DOWN, LEFT, RIGHT),
}
_BRIDGES = "│╎║┊"
_TIPS = {"LR": "►>", "TB": "▼v"}
_KINDS = {
    "╌╎~:": "spawn",
    "═║╔╗╚╝=#": "escalation",
    "┈┊?!": "conditional",
}


@cache
def _graphs() -> dict[str, list[list[Any]]]:
    found: dict[str, list[list[Any]]] = json.loads((GOLDEN / "graphs.json").read_text())
    return found


def golden(size: int, seed: int = 1) -> list[Node]:
    """Return a stored plan; every prefix of it is a plan."""
    return [
        (f"n{at:04}", label, [f"n{dep:04}" for dep in deps])
        for at, (label, *deps) in enumerate(_graphs()[f"{size}/{seed}"])
    ]


def edges_of(nodes: Iterable[Node]) -> set[Edge]:
    """Return the edges that a picture has to show."""
    return {(dep, name) for name, _, deps in nodes for dep in deps}


_NARROW = re.compile("[\u0300-\u036f\u1100-\uffff\U00010000-\U0010ffff]")
"""What may take more or less than one cell; there is no need to be exact."""


def grid(rows: Iterable[str]) -> list[list[str]]:
    """Return the cells; what follows a wide sign is an empty string."""
    cells: list[list[str]] = []
    for row in rows:
        if len(row) == cell_width(row) and not _NARROW.search(row):
            cells.append(list(row))
            continue
        line: list[str] = []
        for sign in row:
            width = cell_width(sign)
            if not width and line:
                line[-1] += sign
            else:
                line += [sign] + [""] * (width - 1)
        cells.append(line)
    return cells


class Reader:
    """A picture, as somebody reads it who sees nothing else."""

    def __init__(
        self,
        rows: Sequence[str],
        boxes: Mapping[str, Box],
        direction: str,
        *,
        ascii_only: bool = False,
    ) -> None:
        self._cells = grid(rows)
        self._boxes = boxes
        self._forth = RIGHT if direction == "LR" else DOWN
        self._back = LEFT if direction == "LR" else UP
        self._tips = _TIPS[direction]
        table = _ASCII_ARMS if ascii_only else _ARMS
        self._arms = {sign: arms for signs, arms in table.items() for sign in signs}
        self._bridges = ")" if ascii_only else _BRIDGES
        self._owner: dict[tuple[int, int], str] = {}
        self.overlaps = 0
        for name, (x, y, width, height) in boxes.items():
            for cell in ((x + i, y + j) for i in range(width) for j in range(height)):
                self.overlaps += cell in self._owner
                self._owner[cell] = name

    def edges(self) -> set[Edge]:
        """Return the pairs of operations that a reader finds joined."""
        return {(name, end) for name in self._boxes for end in self._follow(name)}

    def _at(self, cell: tuple[int, int]) -> str:
        x, y = cell
        if 0 <= y < len(self._cells) and 0 <= x < len(self._cells[y]):
            return self._cells[y][x] or " "
        return " "

    def _port(self, name: str) -> tuple[int, int]:
        x, y, width, height = self._boxes[name]
        if self._forth == RIGHT:
            return x + width, y + height // 2
        return x + width // 2, y + height

    def _follow(self, name: str) -> set[str]:
        found: set[str] = set()
        todo = [(self._port(name), self._forth)]
        seen: set[tuple[tuple[int, int], tuple[int, int]]] = set()
        while todo:
            cell, way = todo.pop()
            if (cell, way) in seen:
                continue
            seen.add((cell, way))
            sign = self._at(cell)
            if cell in self._owner:
                continue
            if sign in self._tips and way == self._forth:
                target = self._owner.get(_step(cell, self._forth))
                if target is not None:
                    found.add(target)
                continue
            arms = self._arms.get(sign, ())
            if sign in self._bridges and (way[1] == 0 or sign == ")"):
                todo.append((_step(cell, way), way))
            elif _opposite(way) in arms:
                todo += [
                    (_step(cell, arm), arm)
                    for arm in arms
                    if arm not in (_opposite(way), self._back)
                ]
        return found

    def faults(self) -> list[str]:
        """Return what is wrong with the wires: loose arms, wires into boxes."""
        faults: list[str] = []
        for y, line in enumerate(self._cells):
            for x, sign in enumerate(line):
                if sign not in ("", " ") and (x, y) not in self._owner:
                    faults += self._loose(x, y, sign)
        return faults

    def _loose(self, x: int, y: int, sign: str) -> list[str]:
        cell = (x, y)
        if sign in self._tips and _step(cell, self._forth) in self._owner:
            return []
        arms = (UP, DOWN, LEFT, RIGHT) if sign == ")" else self._arms.get(sign)
        if arms is None:
            return [f"{cell} strange {sign!r}"]
        return [
            f"{cell} {sign} open to {arm}"
            for arm in arms
            if not self._takes(*_step(cell, arm), arm)
        ]

    def _takes(self, x: int, y: int, way: tuple[int, int]) -> bool:
        """Tell whether a wire that comes to a cell this way is taken on by it."""
        cell = (x, y)
        name = self._owner.get(cell)
        if name is not None:
            return way == self._back and self._port(name) == _step(cell, self._forth)
        sign = self._at(cell)
        if sign in self._bridges and (way[1] == 0 or sign == ")"):
            return self._takes(*_step(cell, way), way)
        if sign in self._tips:
            return way == self._forth
        return _opposite(way) in self._arms.get(sign, ())


def kinds_seen(cells: Iterable[str]) -> set[str]:
    """Return the kinds of edges that the signs of some cells show."""
    return {
        kind
        for sign in cells
        for signs, kind in _KINDS.items()
        if sign and sign in signs
    }


def read_back(
    rows: Sequence[str],
    boxes: Mapping[str, Box],
    direction: str,
    edges: set[Edge],
    *,
    ascii_only: bool = False,
) -> dict[str, object]:
    """Return what is wrong with a picture: nothing, if it shows these edges alone."""
    reader = Reader(rows, boxes, direction, ascii_only=ascii_only)
    seen = reader.edges()
    wrong = {
        "missing": sorted(edges - seen),
        "false": sorted(seen - edges),
        "overlaps": reader.overlaps,
        "faults": reader.faults()[:5],
        "ragged": len(set(map(cell_width, rows))) > 1,
    }
    return {name: value for name, value in wrong.items() if value}


def _step(cell: tuple[int, int], way: tuple[int, int]) -> tuple[int, int]:
    return cell[0] + way[0], cell[1] + way[1]


def _opposite(way: tuple[int, int]) -> tuple[int, int]:
    return -way[0], -way[1]
