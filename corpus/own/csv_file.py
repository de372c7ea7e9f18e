"""One CSV file: its encoding, its separator, its heading, its lines; every fault with the line that has it."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from sqale_grpo.corpus.question import CorpusError

SEPARATORS = ",;\t|"
LONGEST_CELL = 1 << 27
_MARKS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"))


class CsvFile:
    """A CSV file with a heading. Raises CorpusError, which names file and line, for one that cannot be read whole."""

    def __init__(self, path: Path, encoding: str | None = None) -> None:
        self.path = path
        self.encoding = encoding or _encoding(path)
        csv.field_size_limit(LONGEST_CELL)
        with self._open() as file:
            first = file.readline()
        if not first.strip():
            raise CorpusError(f"{path} is empty: its first line should name the columns")
        self.separator = max(SEPARATORS, key=first.count)
        self.heading = self._heading()

    def _open(self) -> io.TextIOWrapper:
        try:
            return self.path.open(encoding=self.encoding, newline="")
        except LookupError:
            raise CorpusError(
                f"there is no encoding {self.encoding!r}: name one such as utf-8, latin1, cp1252"
            ) from None

    def _heading(self) -> tuple[str, ...]:
        _, names = next(self._records())
        names = [name.strip() for name in names]
        empty = [place for place, name in enumerate(names, 1) if not name]
        if empty:
            raise CorpusError(f"{self.path}, line 1: column {empty[0]} has no name: give it one in the heading")
        folded = [name.lower() for name in names]
        twice = next((name for name, low in zip(names, folded, strict=True) if folded.count(low) > 1), None)
        if twice is not None:
            raise CorpusError(f"{self.path}, line 1: two columns are called {twice!r}: rename one of them")
        return tuple(names)

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """(number of its last line, texts) of each record below the heading. Blank lines are none."""
        width = len(self.heading)
        records = self._records()
        next(records)
        for line, texts in records:
            if len(texts) != width:
                raise CorpusError(
                    f"{self.path}, line {line}: {len(texts)} cells where the heading has {width}: mend the line (a "
                    f"cell with {self._named()} in it goes between double quotes)"
                )
            yield line, texts

    def _named(self) -> str:
        return "a tab" if self.separator == "\t" else repr(self.separator)

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        with self._open() as file:
            reader = csv.reader(file, delimiter=self.separator, strict=True)
            started = 1
            while True:
                try:
                    texts = next(reader)
                except StopIteration:
                    return
                except csv.Error as error:
                    raise CorpusError(
                        f"{self.path}, line {started}: a record that begins here is broken ({error}): look for a "
                        'double quote that is not closed, or not doubled ("")'
                    ) from None
                except UnicodeError:
                    raise CorpusError(
                        f"{self.path} is not {self.encoding} from line {started} on: name its encoding, as in "
                        "--encoding cp1252"
                    ) from None
                started = reader.line_num + 1
                if texts:
                    yield reader.line_num, texts


def _encoding(path: Path) -> str:
    """UTF-8, or what a mark at the start says. CorpusError, with the line, where a byte is no UTF-8."""
    with path.open("rb") as file:
        start = file.read(3)
        marked = next((name for mark, name in _MARKS if start.startswith(mark)), None)
        if marked:
            return marked
        file.seek(0)
        other = 0  # the last line that holds a character which takes several bytes in UTF-8, and is right
        for number, line in enumerate(file, 1):
            try:
                if not line.isascii():
                    line.decode("utf-8")
                    other = number
            except UnicodeDecodeError as error:
                shown = line[max(0, error.start - 12) : error.end + 12].decode("latin1")
                if other:
                    raise CorpusError(
                        f"{path} has two encodings: line {other} is UTF-8, line {number} is not ({shown!r}): convert "
                        "the lines of one of them"
                    ) from None
                raise CorpusError(
                    f"{path}, line {number}: not UTF-8 ({shown!r}): name the encoding, as in --encoding cp1252"
                ) from None
    return "utf-8"
