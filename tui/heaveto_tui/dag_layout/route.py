"""The wires between two neighbouring layers: lanes, legs and detours.

Seen left to right (top to bottom is the same, turned): a *net* leaves one item of the
left layer on its *row* and ends on the rows of items of the right layer. It runs along
its row to a *lane* (a column of this gap), along the lane, and along the rows of its
ends to the right. The rule that makes the picture true: two edges share a wire only if
they share their source or their target. From it follows

- a lane holds one net, or nets that have the same single end (they merge);
- on the row of an end all its nets merge, leftmost first. Whoever comes later must not
  bring other ends along, so a net with several ends gets there by a *leg*: it leaves
  its lane on the free row beside the end and takes the last step on the next lane;
- where one net leaves the row on which another net ends, the first must be left of the
  second. If such demands form a circle, one net makes a *detour*: a lane at the far
  left takes it to a free row, from which it goes on as if it had started there.

Rows of items are even, so odd rows are free. A row of a detour is used by nothing else
and is never beside an end that may need legs; all legs on one row lie on lanes of their
own net. So no two wires touch but where they merge, by construction.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Gap", "Leg", "Net", "Path", "route"]


class Net(NamedTuple):
    """What one source has to connect between two layers."""

    owner: int
    """The source node."""
    row: int
    """The even row on which it comes in."""
    ends: tuple[int, ...]
    """The even rows on which it goes out, ascending."""


class Leg(NamedTuple):
    """How a net reaches one of its ends."""

    end: int
    row: int
    """The row on which it leaves the trunk: that of the end, or the free one beside."""
    lane: int
    """The lane of the last step; that of the trunk when ``row`` is the end."""


class Path(NamedTuple):
    """How a net runs through a gap."""

    net: Net
    detour: tuple[int, int] | None
    """Lane and row that stand in for the row of the net, if it makes a detour."""
    lane: int
    """The lane of the trunk; -1 for a straight wire."""
    legs: tuple[Leg, ...]
    """One for each end, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """The routed wires between two layers."""

    lanes: int
    paths: tuple[Path, ...]


class _Segment:
    """What takes one lane: a trunk, a merge, or the first or last part of a detour."""

    __slots__ = ("high", "lane", "lefts", "legs", "low", "nets", "rights")

    def __init__(
        self, nets: list[int], lefts: Iterable[int], rights: Iterable[int]
    ) -> None:
        self.nets = nets
        self.lefts = sorted(lefts)
        self.rights = sorted(rights)
        self.low = min(self.lefts[0], self.rights[0])
        self.high = max(self.lefts[-1], self.rights[-1])
        self.legs: dict[int, int] = {}  # end -> free row on which the trunk is left
        self.lane = -1


def route(nets: Sequence[Net]) -> Gap:
    """Route the nets between two layers.

    Args:
        nets: At most one for each row of the left layer; a row of the right layer that
            stands for a passing wire must be the end of one net only.
    """
    bent = [at for at, net in enumerate(nets) if net.ends != (net.row,)]
    segments = _segments(nets, bent)
    detours: dict[int, tuple[_Segment, _Segment]] = {}
    lanes = 0
    if segments:
        segments, before = _untied(nets, segments, detours)
        costs = _costs(segments)
        order = _ordered(costs, before)
        _find_legs(nets, segments, order, before)
        lanes = _pack(segments, _after(order, costs, before))
    home: dict[int, _Segment] = {}
    for segment in segments:
        home.update(dict.fromkeys(segment.nets, segment))
    paths: list[Path] = []
    for at, net in enumerate(nets):
        if at in detours:
            first, rest = detours[at]
            paths.append(_path(net, rest, (first.lane, first.rights[0])))
        elif at in home:
            paths.append(_path(net, home[at], None))
        else:
            paths.append(Path(net, None, -1, (Leg(net.row, net.row, -1),)))
    return Gap(lanes=lanes, paths=tuple(paths))


def _path(net: Net, segment: _Segment, detour: tuple[int, int] | None) -> Path:
    lane = segment.lane
    legs = tuple(
        Leg(end, segment.legs[end], lane + 1)
        if end in segment.legs
        else Leg(end, end, lane)
        for end in net.ends
    )
    return Path(net, detour, lane, legs)


def _segments(nets: Sequence[Net], bent: Sequence[int]) -> list[_Segment]:
    """Return a segment for each net, but one for all that share their single end."""
    segments: list[_Segment] = []
    merges: dict[int, list[int]] = {}
    for at in bent:
        net = nets[at]
        if len(net.ends) == 1:
            merges.setdefault(net.ends[0], []).append(at)
        else:
            segments.append(_Segment([at], [net.row], net.ends))
    for end, members in merges.items():
        segments.append(_Segment(members, [nets[at].row for at in members], [end]))
    return segments


def _untied(
    nets: Sequence[Net],
    segments: list[_Segment],
    detours: dict[int, tuple[_Segment, _Segment]],
) -> tuple[list[_Segment], list[set[int]]]:
    """Return segments without circles of demands, and for each what must be left of it.

    Circles are broken by taking merges apart, and where that is not enough by detours.
    """
    while True:
        before = _demands(segments)
        circle = _circle(before)
        if not circle:
            break
        merge = next((at for at in circle if len(segments[at].nets) > 1), None)
        if merge is None:
            break
        apart = segments.pop(merge)
        segments += [_Segment([at], [nets[at].row], apart.rights) for at in apart.nets]
    if circle:
        _detour(nets, segments, before, circle, detours)
        before = _demands(segments)
    return segments, before


def _demands(segments: Sequence[_Segment]) -> list[set[int]]:
    """Return, for each segment, the segments that must be left of it."""
    comes_in = {row: at for at, one in enumerate(segments) for row in one.lefts}
    before: list[set[int]] = [set() for _ in segments]
    for at, one in enumerate(segments):
        for row in one.rights:
            other = comes_in.get(row, at)
            if row % 2:  # a detour goes on here
                before[other].add(at)
            elif other != at:
                before[at].add(other)
    return before


def _circle(before: Sequence[set[int]], gone: Iterable[int] = ()) -> list[int]:
    """Return the segments that lie on circles of demands or between two of them."""
    left = set(range(len(before))).difference(gone)
    after: list[list[int]] = [[] for _ in before]
    for at, others in enumerate(before):
        for other in others:
            after[other].append(at)
    for near, far in ((before, after), (after, before)):
        open_ = {at: sum(1 for one in near[at] if one in left) for at in left}
        free = [at for at, count in open_.items() if not count]
        for at in free:  # grows while it is read
            left.discard(at)
            for other in far[at]:
                if other in left:
                    open_[other] -= 1
                    if not open_[other]:
                        free.append(other)
    return sorted(left)


def _detour(
    nets: Sequence[Net],
    segments: list[_Segment],
    before: Sequence[set[int]],
    circle: list[int],
    detours: dict[int, tuple[_Segment, _Segment]],
) -> None:
    """Send nets on detours until no circle is left.

    A net on a detour is on no circle: nothing ends on its row but itself, and its first
    part waits for nobody.
    """
    crowded = _crowded(nets)
    last = max(max(net.row, net.ends[-1]) for net in nets)
    taken: set[int] = set()
    gone: set[int] = set()
    while circle:
        inside = set(circle)
        waits = {at: len(before[at] & inside) for at in circle}
        holds = dict.fromkeys(circle, 0)
        for at in circle:
            for other in before[at] & inside:
                holds[other] += 1
        worst = max(circle, key=lambda at: (waits[at] * holds[at], -at))
        gone.add(worst)
        segment = segments[worst]
        row = _free_row(segment, crowded, taken, last)
        taken.add(row)
        first = _Segment(segment.nets, segment.lefts, [row])
        rest = _Segment(segment.nets, [row], segment.rights)
        detours[segment.nets[0]] = (first, rest)
        segments[worst] = first
        segments.append(rest)
        circle = _circle(before, gone)


def _crowded(nets: Sequence[Net]) -> set[int]:
    """Return the ends that several nets share and that may need legs."""
    arrivals: dict[int, int] = {}
    several: set[int] = set()
    for net in nets:
        for end in net.ends:
            arrivals[end] = arrivals.get(end, 0) + 1
        if len(net.ends) > 1:
            several.update(net.ends)
    return {end for end in several if arrivals[end] > 1}


def _free_row(segment: _Segment, crowded: set[int], taken: set[int], last: int) -> int:
    """Return the nearest row that a detour may have for itself."""

    def beside(free: int) -> bool:
        return free in taken or free - 1 in crowded or free + 1 in crowded

    row = segment.lefts[0]
    side = 1 if segment.rights[len(segment.rights) // 2] >= row else -1
    for away in range(1, last, 2):
        for free in (row + side * away, row - side * away):
            if 0 < free < last and not beside(free):
                return free
    free = last + 1 if last not in crowded else last + 3
    while free in taken:
        free += 2
    return free


def _ordered(costs: Sequence[dict[int, int]], before: Sequence[set[int]]) -> list[int]:
    """Return the segments from left to right, demands kept, with few crossings."""
    pull = [0] * len(costs)  # crossings if it comes before all others, less if after
    for one, row in enumerate(costs):
        for other, cost in row.items():
            pull[one] += cost - costs[other][one]
    waits = [len(others) for others in before]
    after: list[list[int]] = [[] for _ in before]
    for at, others in enumerate(before):
        for other in others:
            after[other].append(at)
    ready = {at for at, number in enumerate(waits) if not number}
    order: list[int] = []
    while ready:
        best = min(ready, key=lambda at: (pull[at], at))
        ready.discard(best)
        order.append(best)
        for other, cost in costs[best].items():
            pull[other] -= costs[other][best] - cost
        for other in after[best]:
            waits[other] -= 1
            if not waits[other]:
                ready.add(other)
    _swap(order, costs, before)
    return order


def _costs(segments: Sequence[_Segment]) -> list[dict[int, int]]:
    """Return how often each segment crosses those it overlaps if it is left of them."""
    costs: list[dict[int, int]] = [{} for _ in segments]
    by_low = sorted(range(len(segments)), key=lambda at: segments[at].low)
    for number, one in enumerate(by_low):
        ours = segments[one]
        for other in by_low[number + 1 :]:
            theirs = segments[other]
            if theirs.low > ours.high:
                break
            costs[one][other] = _inside(ours.rights, theirs) + _inside(
                theirs.lefts, ours
            )
            costs[other][one] = _inside(theirs.rights, ours) + _inside(
                ours.lefts, theirs
            )
    return costs


def _inside(rows: Sequence[int], segment: _Segment) -> int:
    """Return how many of the rows run across the segment."""
    if len(rows) == 1:
        return segment.low < rows[0] < segment.high
    return bisect_left(rows, segment.high) - bisect_right(rows, segment.low)


def _swap(
    order: list[int], costs: Sequence[dict[int, int]], before: Sequence[set[int]]
) -> None:
    """Swap neighbours as long as that saves crossings."""
    for _ in range(4):
        moved = False
        for at in range(len(order) - 1):
            left, right = order[at], order[at + 1]
            gain = costs[left].get(right, 0) - costs[right].get(left, 0)
            if gain > 0 and left not in before[right]:
                order[at], order[at + 1] = right, left
                moved = True
        if not moved:
            return


def _find_legs(
    nets: Sequence[Net],
    segments: Sequence[_Segment],
    order: Sequence[int],
    before: Sequence[set[int]],
) -> None:
    """Decide which ends a trunk must reach by a leg: all where it is not the leftmost.

    Where it is, whatever else ends there has to stay right of it.
    """
    straight = {net.row for net in nets if net.ends == (net.row,)}
    trunks: dict[int, int] = {}  # end -> trunk that is its leftmost
    reached = set(straight)
    for at in order:
        segment = segments[at]
        several = len(segment.rights) > 1
        rows = segment.lefts[:]
        for end in segment.rights:
            row = end
            if end in trunks:
                before[at].add(trunks[end])
            if several and end in reached:
                row = end - 1 if end > segment.lefts[0] else end + 1
                segment.legs[end] = row
            elif several:
                trunks[end] = at
            reached.add(end)
            rows.append(row)
        segment.low, segment.high = min(rows), max(rows)


def _after(
    order: Sequence[int], costs: Sequence[dict[int, int]], before: Sequence[set[int]]
) -> list[set[int]]:
    """Return, for each segment, those that have to be on a lane right of it.

    Of two that overlap, only where it is demanded or spares crossings.
    """
    place = {at: number for number, at in enumerate(order)}
    after: list[set[int]] = [set() for _ in before]
    for at, others in enumerate(before):
        for other in others:
            after[other].add(at)
    for at, row in enumerate(costs):
        for other, cost in row.items():
            if place[at] < place[other] and cost < costs[other][at]:
                after[at].add(other)
    return after


def _pack(segments: Sequence[_Segment], after: Sequence[set[int]]) -> int:
    """Fill lane after lane with what may come next; return how many are used."""
    waits = [0] * len(segments)
    for others in after:
        for other in others:
            waits[other] += 1
    depth = _depths(after, waits)
    ready = [at for at, count in enumerate(waits) if not count]
    used: list[list[tuple[int, int]]] = [[], []]
    lane = 0
    while ready:
        ready.sort(key=lambda at: (-depth[at], segments[at].low, at))
        used.append([])
        placed = [at for at in ready if _fits(segments[at], used[lane], used[lane + 1])]
        for at in placed:
            segments[at].lane = lane
            ready.remove(at)
        for at in placed:
            for other in after[at]:
                waits[other] -= 1
                if not waits[other]:
                    ready.append(other)
        lane += 1
    return lane if not used[lane] else lane + 1


def _depths(after: Sequence[set[int]], waits: Sequence[int]) -> list[int]:
    """Return how long a chain of segments each one holds up."""
    depth = [0] * len(after)
    left = list(waits)
    order = [at for at, count in enumerate(left) if not count]
    for at in order:  # grows while it is read
        for other in after[at]:
            left[other] -= 1
            if not left[other]:
                order.append(other)
    for at in reversed(order):
        depth[at] = 1 + max((depth[other] for other in after[at]), default=0)
    return depth


def _fits(
    segment: _Segment, lane: list[tuple[int, int]], following: list[tuple[int, int]]
) -> bool:
    """Take the place for a segment on two lanes, with a row of air, if it is free."""
    legs = [(min(pair), max(pair)) for pair in segment.legs.items()]
    if _taken(segment.low, segment.high, lane):
        return False
    if any(_taken(low, high, following) for low, high in legs):
        return False
    lane.append((segment.low, segment.high))
    following += legs
    return True


def _taken(low: int, high: int, pieces: Sequence[tuple[int, int]]) -> bool:
    return any(first <= high + 1 and low <= last + 1 for first, last in pieces)
