"""Records of a JSON array or of a JSON-lines file, one at a time, in flat memory."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from sqale_grpo.corpus.question import CorpusError

CHUNK = 1 << 20  # characters read at a time
LONGEST_RECORD = 1 << 26  # longer than any real record, so one that does not end is malformed


def read_json_array(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file that holds one JSON array. Raises CorpusError with the record, counted from 0."""
    with _open(path) as file:
        buffer = _more(file, CHUNK, path, 0).lstrip("\ufeff \t\r\n")
        if not buffer.startswith("["):
            raise CorpusError(f"{path} does not hold a JSON array: expected [{{...}}, ...]")
        yield from _objects(file, buffer, path)


def read_json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) for every line that is not blank. Raises CorpusError with the line's number."""
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            _require_utf_8(line, f"{path}, line {number}")
            try:
                record = json.loads(line.lstrip("\ufeff"))
            except json.JSONDecodeError as error:
                raise CorpusError(
                    f"{path}, line {number}: not valid JSON ({error.msg}, column {error.colno}): mend the line, "
                    "which is one whole object"
                ) from None
            except (ValueError, RecursionError) as error:  # a number or a nesting without end
                raise CorpusError(f"{path}, line {number}: not valid JSON ({error})") from None
            if not isinstance(record, dict):
                raise CorpusError(
                    f"{path}, line {number}: expected a JSON object, not {type(record).__name__}: one object a line, "
                    "in no list"
                )
            yield number, record


def _objects(file: TextIO, buffer: str, path: Path) -> Iterator[dict[str, Any]]:
    decode = json.JSONDecoder().raw_decode
    position, number = 1, 0
    while True:
        position = _skip(buffer, position)
        try:
            record, end = (None, position) if buffer[position : position + 1] == "]" else decode(buffer, position)
        except json.JSONDecodeError as error:
            more = _more(file, max(CHUNK, len(buffer) - position), path, number)
            if not more or len(buffer) - position > LONGEST_RECORD:
                raise CorpusError(f"{path}, record {number}: not valid JSON ({error.msg})") from None
            buffer, position = buffer[position:] + more, 0
            continue
        except (ValueError, RecursionError) as error:  # a number or a nesting without end
            raise CorpusError(f"{path}, record {number}: not valid JSON ({error})") from None
        if record is None and end == position:
            if buffer[position + 1 :].strip() or _more(file, CHUNK, path, number).strip():
                raise CorpusError(f"{path}, record {number}: text after the end of the array")
            return
        if not isinstance(record, dict):
            raise CorpusError(f"{path}, record {number}: expected a JSON object, not {type(record).__name__}")
        yield record
        position, number = end, number + 1


def _more(file: TextIO, characters: int, path: Path, number: int) -> str:
    more = file.read(characters)
    _require_utf_8(more, f"{path}, record {number}")
    return more


def _require_utf_8(text: str, where: str) -> None:
    """Bytes that are not UTF-8 are read as lone surrogates, which cannot be encoded again."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        encoding = "utf-16" if "\0" in text else "latin1"
        raise CorpusError(f"{where}: not UTF-8: convert the file, as in `iconv -f {encoding} -t utf-8`") from error


def _skip(buffer: str, position: int) -> int:
    while position < len(buffer) and buffer[position] in ", \t\r\n":
        position += 1
    return position


def _open(path: Path) -> TextIO:
    if not path.is_file():
        raise CorpusError(f"no file {path}: the corpus needs it")
    return path.open(encoding="utf-8", errors="surrogateescape")
