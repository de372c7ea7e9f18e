"""Maximum matching of rows whose real numbers differ slightly.

Equality within a tolerance is not transitive, so pairing rows greedily can lose pairs that exist. Rows are first cut
into blocks that no pair of equal rows crosses: by their exact values, then wherever the sorted numbers leave a gap
wider than the tolerance. Nearly all blocks then hold one row of each side. What is left is solved exactly: a sweep
where one column of numbers decides, augmenting paths elsewhere.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import itemgetter
from typing import Any

from sqale_grpo.reward.tolerance import ABSOLUTE, RELATIVE

Row = tuple[Any, ...]
Same = Callable[[Any, Any], bool]

# Tests of one pair of rows, up to 1 µs each. The blocks of a comparison share them by their sizes; small ones are
# always solved. One that needs more keeps the pairs found so far: the overlap is then too low, never too high. Only
# hundreds of rows that all nearly equal each other come here.
WORK, SMALL_BLOCK = 1_000_000, 20_000


@dataclass(frozen=True, slots=True)
class Match:
    """``size`` pairs; ``extra`` and ``missing``: a row of the left and of the right side that is left over."""

    size: int
    extra: Row | None
    missing: Row | None


def match_near(left: Sequence[Row], right: Sequence[Row], floats: Sequence[int], same: Same) -> Match:
    """A largest one-to-one matching of equal rows; ``floats``: columns in which either side holds reals."""
    size, extra, missing = 0, None, None
    work_a_row = WORK / (len(left) + len(right))
    for ours, theirs in blocks(left, right, floats, same):
        work = max(SMALL_BLOCK, int(work_a_row * (len(ours) + len(theirs))))
        pairs = match_block(ours, theirs, same, work) if ours and theirs else 0
        size += pairs
        if extra is None and pairs < len(ours):
            extra = ours[0][1]
        if missing is None and pairs < len(theirs):
            missing = theirs[0][1]
    return Match(size, extra, missing)


Item = tuple[Row, Row]  # a row's numbers in the columns with reals, and the row
Block = tuple[list[Item], list[Item]]


def blocks(left: Sequence[Row], right: Sequence[Row], floats: Sequence[int], same: Same) -> Iterator[Block]:
    """The items of both sides, in parts that no pair of equal rows crosses."""
    groups: dict[Any, Block] = {}
    parted = part_all if all_numbers(left, floats) and all_numbers(right, floats) else part_each
    for side, rows in enumerate((left, right)):
        for key, numbers, row in zip(*parted(rows, floats), rows, strict=True):
            group = groups.get(key)
            if group is None:
                group = groups[key] = ([], [])
            group[side].append((numbers, row))
    for block in groups.values():
        yield from split(block, same) if block[0] and block[1] and len(block[0]) + len(block[1]) > 2 else (block,)


def all_numbers(rows: Sequence[Row], floats: Sequence[int]) -> bool:
    """Do the columns hold nothing but numbers?"""
    return all({int, float}.issuperset(map(type, map(itemgetter(column), rows))) for column in floats)


def part_all(rows: Sequence[Row], floats: Sequence[int]) -> tuple[Iterable[Any], Iterable[Row]]:
    """Rows parted into exact values, to group by, and numbers; for columns of numbers only, which is fast."""
    numbers = map(itemgetter(*floats), rows) if len(floats) > 1 else [(row[floats[0]],) for row in rows]
    exact = [column for column in range(len(rows[0]) if rows else 0) if column not in floats]
    return (map(itemgetter(*exact), rows) if exact else repeat(None, len(rows))), numbers


def part_each(rows: Sequence[Row], floats: Sequence[int]) -> tuple[Iterable[Any], Iterable[Row]]:
    """The same for columns that mix numbers with text or NULL."""
    places, kinds = frozenset(floats), (int, float)
    numbers = [tuple([row[i] for i in floats if type(row[i]) in kinds]) for row in rows]
    # int, as a type, stands for "a number": no value of a result is a type.
    return [tuple([int if i in places and type(v) in kinds else v for i, v in enumerate(row)]) for row in rows], numbers


def split(block: Block, same: Same) -> Iterator[Block]:
    """Cut a block wherever one number's sorted values leave a gap, until no number does."""
    width = len(block[0][0][0])
    todo = [([(0, item) for item in block[0]] + [(1, item) for item in block[1]], 0, 0)]
    while todo:
        items, column, uncut = todo.pop()
        if uncut == width or len({side for side, _ in items}) < 2:
            yield [item for side, item in items if side == 0], [item for side, item in items if side == 1]
            continue
        parts = parted_at(items, column, same)
        uncut = uncut + 1 if len(parts) == 1 else 1
        todo += [(part, (column + 1) % width, uncut) for part in reversed(parts)]


def parted_at(items: list[tuple[int, Item]], column: int, same: Same) -> list[list[tuple[int, Item]]]:
    """Sort by one number and part where neighbours differ: then nothing below equals anything above."""
    items.sort(key=lambda entry: entry[1][0][column])
    parts = [[items[0]]]
    previous = items[0][1][0][column]
    for entry in items[1:]:
        value = entry[1][0][column]
        # As reals: two integers that differ may both equal a real that lies between them.
        if value != previous and not same(float(previous), float(value)):
            parts.append([])
        parts[-1].append(entry)
        previous = value
    return parts


def match_block(ours: list[Item], theirs: list[Item], same: Same, work: int) -> int:
    """Number of pairs in a largest matching of one block, or of those found after ``work`` tests."""
    if len(ours) == len(theirs) == 1:
        return int(all(map(same, ours[0][0], theirs[0][0])))
    left, right = classes(ours), classes(theirs)
    if len(left) == len(right) == 1:
        return min(len(ours), len(theirs)) if all(map(same, left[0].numbers, right[0].numbers)) else 0
    if len(left[0].numbers) == 1 and not (has_integer(left) and has_integer(right)):
        return sweep(left, right, same)
    # The same side first whichever is whose, so that a match cut short is still symmetric.
    first, second = sorted((left, right), key=outline)
    return Augmenting(first, second, same, work).size()


@dataclass(slots=True)
class Class:
    """Equal number vectors of one side: how many, and how many of them are unmatched."""

    numbers: Row
    count: int
    free: int


def classes(items: list[Item]) -> list[Class]:
    """Distinct vectors in rising order; 1 and 1.0 are two classes, since only one of them equals integers alone."""
    counts = Counter((numbers, tuple(map(type, numbers))) for numbers, _ in items)
    ranked = sorted(counts.items(), key=lambda entry: (entry[0][0], [kind is float for kind in entry[0][1]]))
    return [Class(numbers, count, count) for (numbers, _), count in ranked]


def has_integer(side: list[Class]) -> bool:
    """Does any vector hold an integer?"""
    return any(int in map(type, each.numbers) for each in side)


def outline(side: list[Class]) -> list[tuple[Row, int]]:
    """Something to sort sides by."""
    return [(each.numbers, each.count) for each in side]


def sweep(left: list[Class], right: list[Class], same: Same) -> int:
    """One number a row: what equals a value is an interval that moves with it, so pairing in order is best."""
    size = i = j = 0
    while i < len(left) and j < len(right):
        a, b = left[i], right[j]
        if same(a.numbers[0], b.numbers[0]):
            pairs = min(a.free, b.free)
            size, a.free, b.free = size + pairs, a.free - pairs, b.free - pairs
            i, j = i + (a.free == 0), j + (b.free == 0)
        elif a.numbers[0] < b.numbers[0]:
            i += 1
        else:
            j += 1
    return size


class Augmenting:
    """Largest matching by augmenting paths over classes of equal vectors, within a bound of work."""

    def __init__(self, left: list[Class], right: list[Class], same: Same, work: int) -> None:
        self.left, self.right, self.same, self.work = left, right, same, work
        self.firsts = [float(each.numbers[0]) for each in right]
        self.pairs: dict[tuple[int, int], int] = {}
        self.partners: list[set[int]] = [set() for _ in right]
        self.known: dict[int, list[int]] = {}

    def size(self) -> int:
        """Number of pairs."""
        self.pair_in_order()
        for index, each in enumerate(self.left):
            while each.free and self.work > 0 and self.augment(index):
                pass
        return sum(self.pairs.values())

    def pair_in_order(self) -> None:
        """A first matching: each left class takes the first right classes that equal it and have rows free."""
        following = list(range(len(self.right) + 1))  # from here on, the next class with rows free

        def next_free(index: int) -> int:
            while following[index] != index:
                following[index] = following[following[index]]
                index = following[index]
            return index

        for i, each in enumerate(self.left):
            low, high = self.window(i)
            j = next_free(low)
            while j < high and each.free and self.work > 0:
                if self.equal(i, j):
                    self.move(i, j, min(each.free, self.right[j].free))
                if not self.right[j].free:
                    following[j] = j + 1
                j = next_free(j + 1)

    def window(self, i: int) -> tuple[int, int]:
        """Right classes whose first number may equal the left class': a range of indices."""
        value = float(self.left[i].numbers[0])
        reach = max(abs(value) * 1.1 * RELATIVE, 2 * ABSOLUTE)
        return bisect_left(self.firsts, value - reach), bisect_right(self.firsts, value + reach)

    def equal(self, i: int, j: int) -> bool:
        """Are the two classes' rows equal? Counts as work."""
        self.work -= 1
        return all(map(self.same, self.left[i].numbers, self.right[j].numbers))

    def neighbors(self, i: int) -> list[int]:
        """All right classes that equal a left class."""
        if i not in self.known:
            low, high = self.window(i)
            self.known[i] = [j for j in range(low, high) if self.equal(i, j)]
        return self.known[i]

    def move(self, i: int, j: int, amount: int) -> None:
        """Pair ``amount`` rows, of those that are free on both sides."""
        self.left[i].free -= amount
        self.right[j].free -= amount
        self.shift(i, j, amount)

    def shift(self, i: int, j: int, amount: int) -> None:
        """Change how many rows of two classes are paired."""
        total = self.pairs.get((i, j), 0) + amount
        self.pairs[i, j] = total
        (self.partners[j].add if total else self.partners[j].discard)(i)

    def augment(self, start: int) -> bool:
        """One more row of the left class ``start`` finds a partner, others changing theirs; False: impossible."""
        left_of: dict[int, int] = {}  # the left class from which a right one was reached
        right_of: dict[int, int] = {start: -1}  # and the right class that a left one would give up
        queue = deque([start])
        while queue and self.work > 0:
            i = queue.popleft()
            for j in self.neighbors(i):
                self.work -= 1
                if j in left_of:
                    continue
                left_of[j] = i
                if self.right[j].free:
                    self.turn(left_of, right_of, j)
                    return True
                for other in self.partners[j] - right_of.keys():
                    right_of[other] = j
                    queue.append(other)
        return False

    def turn(self, left_of: dict[int, int], right_of: dict[int, int], j: int) -> None:
        """Turn the path that ends at the free right class ``j`` around."""
        self.right[j].free -= 1
        i = left_of[j]
        self.shift(i, j, 1)
        while right_of[i] >= 0:
            j = right_of[i]
            self.shift(i, j, -1)
            i = left_of[j]
            self.shift(i, j, 1)
        self.left[i].free -= 1
