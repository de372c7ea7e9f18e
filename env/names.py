"""Names as SQLite compares them."""

_ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def fold_name(name: str) -> str:
    """The form under which SQLite compares names: ASCII letters in lower case, all others as they are."""
    return name.lower() if name.isascii() else name.translate(_ASCII_LOWER)
