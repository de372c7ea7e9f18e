"""When two values of results are equal: by SQLite's types, numbers within a tolerance.

The tolerance is ours. Sums of the same terms in another order differ by about 1e-13 of themselves; account numbers and
dates written as reals (20231104.0, 20231105.0) differ by 5e-8 and must not be taken for equal.
"""

from math import inf
from typing import Any

RELATIVE, ABSOLUTE = 1e-9, 1e-12


def same_value(a: Any, b: Any) -> bool:
    """Are two values of results equal? The relation is symmetric, but not transitive."""
    if a == b:
        return True
    kinds = {type(a), type(b)}
    if float not in kinds or not kinds <= {int, float}:
        return False
    gap = abs(a - b)
    return gap < inf and gap <= max(RELATIVE * max(abs(a), abs(b)), ABSOLUTE)
