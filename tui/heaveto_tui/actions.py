"""The one table of what can be done here, by id.

Key bindings, the key row, the command palette, the help overlay, the documentation
and the command line's twins are all made from it; a test holds them together. It holds
only what works. ``danger`` says what stands between the key and the effect: ``none``;
``ask`` shows what will happen and wants Enter; ``type`` wants four characters of the
id.
``--read-only`` takes every ``ask`` and ``type`` action out of the table.

Pure: no drawing library, no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "ACTIONS",
    "PLACES",
    "Action",
    "KeySet",
    "action",
    "actions_at",
    "as_markdown",
    "check_keymap",
    "key_name",
    "keys_of",
    "twin",
]

Danger = Literal["none", "ask", "type"]
KeySet = Literal["default", "vim", "tmux"]

RUNS = "runs"
RUN = "run"
OPERATION = "operation"
CHECKPOINT = "checkpoint"
CONTROLS = "controls"
HELP = "help"
PLACES: tuple[str, ...] = (RUNS, RUN, OPERATION, CHECKPOINT, CONTROLS)
"""Every place where actions work, beside the overlays on top of them."""
_ALL = frozenset(PLACES)
_ONE_RUN = frozenset({RUN, OPERATION, CHECKPOINT, CONTROLS})
_VIEWS = frozenset({RUN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing that can be done.

    Attributes:
        id: Stable, dotted; what a key map names.
        keys: Keys in the drawing library's names; the first one is shown.
        label: One or two words, for the key row.
        does: What it does, for help and palette.
        places: Where its keys work.
        group: The section of the help overlay.
        twin: The command line that does the same, with ``{id}``, or None.
        danger: What stands between the key and the effect.
        sees: It belongs to the list or pane rather than to the current run.
    """

    id: str
    keys: tuple[str, ...]
    label: str
    does: str
    places: frozenset[str] = _ALL
    group: str = "ANYWHERE"
    twin: str | None = None
    danger: Danger = "none"


def _view(
    name: str, key: str, label: str, does: str, twin: str | None = None
) -> Action:
    """Return an action on the views of a run's operations."""
    return Action(
        id=name,
        keys=(key,),
        label=label,
        does=does,
        places=_VIEWS,
        group=_LOOK,
        twin=twin,
    )


_GO = "GO TO"
_STEER = "ON A RUN"
_LOOK = "LOOK CLOSER"
_ANY = "ANYWHERE"

ACTIONS: tuple[Action, ...] = (
    Action(
        id="nav.open",
        keys=("enter",),
        label="open",
        does="one level deeper: the run, then the operation",
        places=frozenset({RUNS, RUN, CHECKPOINT, CONTROLS}),
        group=_GO,
        twin="heaveto show {id}",
    ),
    Action(
        id="ck.store",
        keys=("v",),
        label="generations",
        does="the generation store, or the journal again",
        places=frozenset({CHECKPOINT}),
        group=_LOOK,
        twin="heaveto generations {id}",
    ),
    Action(
        id="ck.compare",
        keys=("d",),
        label="compare",
        does="mark a generation; others are compared with it, by size and digest",
        places=frozenset({CHECKPOINT}),
        group=_LOOK,
        twin="heaveto generations {id} --diff GEN GEN",
    ),
    Action(
        id="nav.next_problem",
        keys=("n",),
        label="next",
        does="the next thing that needs you, here or in the list",
        group=_GO,
        twin="heaveto ls --attention",
    ),
    Action(
        id="ctl.again",
        keys=("A",),
        label="send again",
        does="send a lost message to the run that took over",
        places=frozenset({CONTROLS}),
        group=_STEER,
        twin="heaveto ctl msg {id} TEXT",
        danger="ask",
    ),
    Action(
        id="ctl.resolve",
        keys=("C",),
        label="close by hand",
        does="close a control that was taken and never reported",
        places=frozenset({CONTROLS}),
        group=_STEER,
        twin="heaveto ctl resolve {control} --as abandoned",
        danger="ask",
    ),
    Action(
        id="ctl.pause",
        keys=("p",),
        label="pause",
        does="what runs finishes, nothing new starts",
        group=_STEER,
        twin="heaveto ctl pause {id}",
        danger="ask",
    ),
    Action(
        id="ctl.resume",
        keys=("r",),
        label="resume",
        does="undo a pause",
        group=_STEER,
        twin="heaveto ctl resume {id}",
        danger="ask",
    ),
    Action(
        id="ctl.message",
        keys=("m",),
        label="message",
        does="write to the next operation that starts",
        group=_STEER,
        twin="heaveto ctl msg {id} TEXT",
        danger="ask",
    ),
    Action(
        id="ctl.stop",
        keys=("x",),
        label="stop",
        does="for good: what runs finishes, the rest never starts",
        group=_STEER,
        twin="heaveto ctl stop {id}",
        danger="type",
    ),
    Action(
        id="nav.find",
        keys=("slash",),
        label="find",
        does="show only what matches, as you type",
        places=frozenset({RUNS, RUN, CHECKPOINT, CONTROLS}),
        group=_LOOK,
        twin="heaveto ls --find TEXT",
    ),
    Action(
        id="run.close",
        keys=("C",),
        label="close",
        does="end the row of a dead run",
        places=frozenset({RUNS, RUN}),
        group=_STEER,
        twin="heaveto close {id}",
        danger="ask",
    ),
    Action(
        id="log.follow",
        keys=("f",),
        label="follow",
        does="follow the output, on the canvas what runs; moving stops it",
        places=frozenset({RUN, OPERATION}),
        group=_LOOK,
        twin="heaveto logs {id} -f",
    ),
    Action(
        id="file.pager",
        keys=("E",),
        label="pager",
        does="open the operation's text in your pager",
        places=frozenset({OPERATION}),
        group=_LOOK,
        twin="heaveto logs {id}",
    ),
    Action(
        id="go.checkpoint",
        keys=("4",),
        label="checkpoint",
        does="what of it is on disk: base, journal, report",
        group=_GO,
        twin="heaveto inspect {id} --journal",
    ),
    Action(
        id="go.controls",
        keys=("5",),
        label="controls",
        does="what was sent to it, and what came of it",
        group=_GO,
        twin="heaveto ctl status {id}",
    ),
    Action(
        id="nav.back",
        keys=("escape", "backspace"),
        label="back",
        does="one level up; closes a search first",
        group=_GO,
    ),
    Action(
        id="nav.prev",
        keys=("left_square_bracket",),
        label="previous operation",
        does="the operation before this one",
        places=frozenset({RUN, OPERATION}),
        group=_LOOK,
    ),
    Action(
        id="nav.next",
        keys=("right_square_bracket",),
        label="next operation",
        does="the operation after this one",
        places=frozenset({RUN, OPERATION}),
        group=_LOOK,
    ),
    Action(
        id="nav.pane",
        keys=("tab",),
        label="other pane",
        does="move between the list and what is beside it",
        places=frozenset({RUNS, RUN, CHECKPOINT, CONTROLS}),
        group=_LOOK,
    ),
    Action(
        id="run.end_now",
        keys=("X",),
        label="end now",
        does="end its process (SIGTERM); running work is cut off after its grace",
        places=_ONE_RUN,
        group=_STEER,
        twin=None,
        danger="type",
    ),
    Action(
        id="nav.prev_problem",
        keys=("N",),
        label="previous",
        does="the one before",
        group=_GO,
        twin="heaveto ls --attention",
    ),
    Action(
        id="list.sort",
        keys=("s",),
        label="sort",
        does="the next order of the list or the table",
        places=frozenset({RUNS, RUN}),
        group=_LOOK,
        twin="heaveto ls --sort KEY",
    ),
    _view(
        "view.outline", "o", "outline", "the operations as a tree", "heaveto show {id}"
    ),
    _view(
        "view.canvas",
        "c",
        "canvas",
        "the flow drawn; again: back to the cursor",
        "heaveto show {id} --dag",
    ),
    _view("view.around", "e", "around", "some steps around the cursor drawn"),
    _view("view.map", "w", "map", "the whole flow, one mark each"),
    _view("view.timeline", "t", "timeline", "when each operation waited and ran"),
    _view(
        "view.table",
        "T",
        "table",
        "the operations in columns, sorted",
        "heaveto show {id}",
    ),
    _view("view.next", "v", "next view", "the next of these views"),
    _view("view.unfold", "plus", "unfold", "open the folded branch under the cursor"),
    _view("view.fold", "minus", "fold", "fold the branch under the cursor"),
    _view(
        "view.less", "less_than_sign", "less", "fewer steps around, or a shorter time"
    ),
    _view(
        "view.more", "greater_than_sign", "more", "more steps around, or a longer time"
    ),
    _view(
        "view.direction",
        "D",
        "turn",
        "the canvas downwards, or from left to right",
        "heaveto show {id} --dag --direction TB",
    ),
    _view("view.tidy", "Z", "tidy", "lay the canvas out afresh"),
    _view(
        "view.idle", "i", "idle time", "time in which nothing ran, folded or in full"
    ),
    _view("view.chain", "asterisk", "chain", "only the longest chain, or all again"),
    Action(
        id="go.runs",
        keys=("1",),
        label="runs",
        does="every run; who needs you",
        group=_GO,
        twin="heaveto ls",
    ),
    Action(
        id="go.run",
        keys=("2",),
        label="run",
        does="the current run: what it is doing",
        group=_GO,
        twin="heaveto show {id}",
    ),
    _view(
        "file.save",
        "W",
        "save",
        "write the flow to a file: text, SVG, Mermaid or DOT",
        "heaveto show {id} --svg",
    ),
    Action(
        id="copy.menu",
        keys=("y",),
        label="copy",
        does="copy an id or a command (through the terminal, OSC 52)",
        group=_ANY,
    ),
    Action(
        id="nav.palette",
        keys=("colon",),
        label="command",
        does="any action, run or operation by name",
        group=_ANY,
    ),
    Action(
        id="app.utc",
        keys=("U",),
        label="UTC",
        does="local time or UTC",
        group=_ANY,
    ),
    Action(
        id="app.suspend",
        keys=("ctrl+z",),
        label="suspend",
        does="to the shell; fg comes back",
        group=_ANY,
    ),
    Action(
        id="go.help",
        keys=("question_mark",),
        label="help",
        does="the keys here, and what is off and why",
        group=_ANY,
        twin="heaveto --help",
    ),
    Action(
        id="app.leave",
        keys=("q",),
        label="leave",
        does="leave; flows keep running",
        group=_ANY,
    ),
)
"""Every action, in the order in which the key row offers them."""

_BY_ID = {each.id: each for each in ACTIONS}

_VIM: dict[str, str] = {
    "j": "down",
    "k": "up",
    "h": "escape",
    "l": "enter",
    "g": "home",
    "G": "end",
    "ctrl+d": "pagedown",
    "ctrl+u": "pageup",
}
KEYSETS: dict[KeySet, dict[str, str]] = {"default": {}, "vim": _VIM, "tmux": {}}
"""Extra keys of each set: another name for a key that already works."""

_KEY_NAMES = {
    "escape": "Esc",
    "backspace": "Backspace",
    "tab": "Tab",
    "slash": "/",
    "colon": ":",
    "question_mark": "?",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "asterisk": "*",
    "plus": "+",
    "minus": "-",
    "ctrl+z": "Ctrl-Z",
}


def action(name: str) -> Action:
    """Return an action by its id."""
    return _BY_ID[name]


def actions_at(place: str, *, read_only: bool = False) -> tuple[Action, ...]:
    """Return the actions of a place, in the order of the key row."""
    return tuple(
        each
        for each in ACTIONS
        if place in each.places and not (read_only and each.danger != "none")
    )


def key_name(key: str, *, enter: str = "↵") -> str:
    """Return how a key is written on the screen."""
    if key == "enter":
        return enter
    return _KEY_NAMES.get(key, key)


def keys_of(
    name: str,
    keyset: KeySet = "default",
    keymap: Mapping[str, str] = MappingProxyType({}),
) -> tuple[str, ...]:
    """Return the keys of an action.

    Args:
        name: The action's id.
        keyset: The set in use; tmux holds Esc back, so its set shows Backspace first.
        keymap: Single keys by the ids of their actions; they replace the usual ones.
    """
    if name in keymap:
        return (keymap[name],)
    keys = _BY_ID[name].keys
    if keyset == "tmux":
        if name == "nav.back":
            return tuple(reversed(keys))
        if name == "app.suspend":
            return ()
    return keys


def check_keymap(keymap: Mapping[str, str]) -> str | None:
    """Return what is wrong with a key map, or None.

    An id has to be one of the table's, and no two actions of one place may share a key.
    """
    for name in keymap:
        if name not in _BY_ID:
            return f"no action is called {name}"
    for place in PLACES:
        taken: dict[str, str] = {}
        for each in actions_at(place):
            for key in keys_of(each.id, "default", keymap):
                if key in taken:
                    return f"{each.id}: {key} is the key of {taken[key]}"
                taken[key] = each.id
    return None


def twin(name: str, words: dict[str, str], prefix: Iterable[str] = ()) -> str | None:
    """Return the command line that does the same as an action.

    Args:
        name: The action's id.
        words: What stands for ``id`` and ``control``.
        prefix: Options of the run's home, between ``heaveto`` and the verb.
    """
    line = _BY_ID[name].twin
    if line is None:
        return None
    for member, value in words.items():
        line = line.replace(f"{{{member}}}", value)
    options = " ".join(prefix)
    return line.replace("heaveto ", f"heaveto {options} ", 1) if options else line


def as_markdown() -> str:
    """Return the table as the documentation shows it."""
    rows = [
        "| key | action | where | does | command line | asks |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    asks = {"none": "", "ask": "Enter", "type": "4 characters of the id, Enter"}
    for each in ACTIONS:
        keys = " ".join(f"`{key_name(key, enter='Enter')}`" for key in each.keys)
        where = "all" if each.places == _ALL else ", ".join(sorted(each.places))
        line = (each.twin or "").replace("{id}", "ID").replace("{control}", "CONTROL")
        rows.append(
            f"| {keys} | `{each.id}` | {where} | {each.does} |"
            f" {f'`{line}`' if line else ''} | {asks[each.danger]} |"
        )
    return "\n".join(rows)
