"""Values and types of other databases as SQLite stores them: dates as ISO text, numbers as its own two kinds."""

import datetime
import decimal
import ipaddress
import json
import math
import uuid
from collections.abc import Callable
from typing import Any

SMALLEST, LARGEST = -(2**63), 2**63 - 1
SqliteValue = int | float | str | bytes | None


def plain(value: Any) -> SqliteValue:
    """The value as SQLite stores it.

    Dates and times are ISO text, with a blank between them, those with a zone in UTC; booleans 0 and 1; decimals, and
    integers over 64 bits, are integers or reals, so more than 15 digits are rounded; lists and objects are JSON; what
    is not a number is NULL.
    """
    convert = _CONVERSIONS.get(type(value))
    if convert is None:
        convert = next((each for kind, each in _CONVERSIONS.items() if isinstance(value, kind)), str)
    return convert(value)


def sqlite_type(declared: str) -> str:
    """The column type for a type name of Postgres, MySQL, DuckDB or Arrow."""
    name = declared.lower().strip()
    if name.endswith("[]") or name.startswith(("list", "struct", "map", "array", "json", "large_list")):
        return "TEXT"
    word = name.split("(")[0].split("[")[0].strip()
    if word in ("tinyint", "bit") and name in ("tinyint(1)", "bit(1)"):
        return "BOOLEAN"
    if word in ("numeric", "decimal", "number", "decimal128", "decimal256"):
        return _decimal_type(name)
    for kind, words in _TYPES.items():
        if word.removesuffix(" unsigned") in words:
            return kind
    if word.startswith("timestamp"):
        return "DATETIME"
    if word.startswith("time"):
        return "TIME"
    if word.startswith("date"):
        return "DATE"
    return "TEXT"


def _decimal_type(name: str) -> str:
    _, _, inside = name.partition("(")
    scale = inside.rstrip(")").partition(",")[2].strip()
    return "INTEGER" if inside and scale in ("", "0") else "REAL"


_TYPES = {
    "BOOLEAN": {"bool", "boolean", "logical"},
    "INTEGER": {
        *("int", "integer", "smallint", "bigint", "tinyint", "mediumint", "int2", "int4", "int8", "hugeint", "year"),
        *("uint8", "uint16", "uint32", "uint64", "int16", "int32", "int64", "uinteger", "ubigint", "usmallint"),
        *("utinyint", "uhugeint", "serial", "bigserial", "oid"),
    },
    "REAL": {"real", "float", "double", "double precision", "float4", "float8", "halffloat", "money"},
    "BLOB": {
        *("bytea", "blob", "tinyblob", "mediumblob", "longblob", "binary", "varbinary", "large_binary"),
        "fixed_size_binary",
    },
}


def _integer(value: int) -> SqliteValue:
    return value if SMALLEST <= value <= LARGEST else float(value)


def _real(value: float) -> SqliteValue:
    return None if math.isnan(value) else value


def _decimal(value: decimal.Decimal) -> SqliteValue:
    if not value.is_finite():
        return None if value.is_nan() else float(value)
    if value == value.to_integral_value() and value.as_tuple().exponent >= 0:  # type: ignore[operator]
        return _integer(int(value))
    return float(value)


def _moment(value: datetime.datetime) -> str:
    if value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return value.isoformat(sep=" ")


def _duration(value: datetime.timedelta) -> str:
    """As [-]HH:MM:SS: MySQL's TIME, which may exceed a day, comes as a duration."""
    sign, seconds = ("-", -value) if value < datetime.timedelta() else ("", value)
    whole, rest = divmod(seconds, datetime.timedelta(seconds=1))
    hours, minutes = divmod(whole // 60, 60)
    fraction = f".{rest.microseconds:06d}" if rest.microseconds else ""
    return f"{sign}{hours:02d}:{minutes:02d}:{whole % 60:02d}{fraction}"


def _text(value: str) -> str:
    return value.encode("utf-8", "replace").decode("utf-8")


def _structure(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=plain)


_CONVERSIONS: dict[type, Callable[[Any], SqliteValue]] = {
    type(None): lambda _: None,
    bool: int,
    int: _integer,
    float: _real,
    str: _text,
    bytes: bytes,
    bytearray: bytes,
    memoryview: bytes,
    decimal.Decimal: _decimal,
    datetime.datetime: _moment,
    datetime.date: datetime.date.isoformat,
    datetime.time: datetime.time.isoformat,
    datetime.timedelta: _duration,
    uuid.UUID: str,
    ipaddress.IPv4Address: str,
    ipaddress.IPv6Address: str,
    dict: _structure,
    list: _structure,
    tuple: _structure,
    set: lambda value: _structure(sorted(value, key=str)),
}
