"""What the texts of a CSV column are: numbers, dates, truth values, or just text. One type has to fit all of them."""

import re
from collections.abc import Callable

from sqale_grpo.corpus.own.values import LARGEST, SMALLEST, SqliteValue

NULLS = ("", "\\N")
_INTEGER = re.compile(r"-?(0|[1-9]\d{0,18})", re.ASCII)  # no leading zeros: a postcode is text
_REAL = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?|-?\.\d+", re.ASCII)
_COMMA_REAL = re.compile(r"-?(0|[1-9]\d*)(,\d+)?", re.ASCII)
_CLOCK = r"(?:[ T](\d{1,2}):(\d{2})(?::(\d{2})(\.\d+)?)?)?"
_ISO = re.compile(rf"(\d{{4}})[-/](\d{{1,2}})[-/](\d{{1,2}}){_CLOCK}", re.ASCII)
_POINTS = re.compile(rf"(\d{{1,2}})\.(\d{{1,2}})\.(\d{{4}}){_CLOCK}", re.ASCII)  # day first, wherever it is written
_SLASHES = re.compile(rf"(\d{{1,2}})[/-](\d{{1,2}})[/-](\d{{4}}){_CLOCK}", re.ASCII)
_TRUTH = {"true": 1, "false": 0}


class ColumnReader:
    """Looks at every text of a column, then says its type and converts them."""

    def __init__(self, comma_decimals: bool) -> None:
        self.possible = dict(_CONVERSIONS)
        if not comma_decimals:
            del self.possible["comma"]
        self.seen = 0
        self.timed = False

    def look(self, text: str) -> None:
        """Strike out what this text is not."""
        if text in NULLS:
            return
        self.seen += 1
        for name, convert in list(self.possible.items()):
            try:
                value = convert(text)
            except ValueError:
                del self.possible[name]
            else:
                self.timed = self.timed or (name in _DATES and len(str(value)) > len("2000-01-01"))

    @property
    def ambiguous(self) -> bool:
        """Dates like 03/04/2021 alone: nobody can tell the day from the month, so they stay as they are."""
        return self.seen > 0 and {"month first", "day first"} <= self.possible.keys()

    @property
    def _form(self) -> str:
        if not self.seen or self.ambiguous:
            return ""
        return next(iter(self.possible), "")

    @property
    def kind(self) -> str:
        """The column's SQLite type."""
        form = self._form
        if form in _DATES:
            return "DATETIME" if self.timed else "DATE"
        return {"integer": "INTEGER", "real": "REAL", "comma": "REAL", "truth": "BOOLEAN"}.get(form, "TEXT")

    def value(self, text: str) -> SqliteValue:
        """The text as SQLite stores it."""
        if text in NULLS:
            return None
        form = self._form
        if not form:
            return text
        value = self.possible[form](text)
        midnight = self.timed and form in _DATES and len(str(value)) == len("2000-01-01")
        return f"{value!s} 00:00:00" if midnight else value


def _integer(text: str) -> int:
    value = int(_matched(_INTEGER, text))
    if not SMALLEST <= value <= LARGEST:
        raise ValueError
    return value


def _matched(pattern: re.Pattern[str], text: str) -> str:
    if not pattern.fullmatch(text):
        raise ValueError
    return text


def _truth(text: str) -> int:
    if text.lower() not in _TRUTH:
        raise ValueError
    return _TRUTH[text.lower()]


def _date(pattern: re.Pattern[str], year: int, month: int, day: int) -> Callable[[str], str]:
    def convert(text: str) -> str:
        found = pattern.fullmatch(text)
        if not found:
            raise ValueError
        parts = found.groups()
        y, m, d = (int(parts[place]) for place in (year, month, day))
        if not (1 <= m <= 12 and 1 <= d <= 31):
            raise ValueError
        clock = ""
        if parts[3] is not None:
            hour, minute, second = int(parts[3]), int(parts[4]), int(parts[5] or 0)
            if hour > 23 or minute > 59 or second > 59:
                raise ValueError
            clock = f" {hour:02d}:{minute:02d}:{second:02d}{parts[6] or ''}"
        return f"{y:04d}-{m:02d}-{d:02d}{clock}"

    return convert


_CONVERSIONS: dict[str, Callable[[str], SqliteValue]] = {
    "integer": _integer,
    "real": lambda text: float(_matched(_REAL, text)),
    "comma": lambda text: float(_matched(_COMMA_REAL, text).replace(",", ".")),
    "iso": _date(_ISO, 0, 1, 2),
    "points": _date(_POINTS, 2, 1, 0),
    "day first": _date(_SLASHES, 2, 1, 0),
    "month first": _date(_SLASHES, 2, 0, 1),
    "truth": _truth,
}
_DATES = ("iso", "points", "day first", "month first")
