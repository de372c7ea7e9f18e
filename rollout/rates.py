"""The 95% interval of a rate. Imports nothing."""

import math

Z95 = 1.959964
Interval = tuple[float, float]


def wilson(successes: int, n: int) -> Interval:
    """Wilson's 95% interval of a rate."""
    rate, z2 = successes / n, Z95**2
    middle = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * math.sqrt(rate * (1 - rate) / n + z2 / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)
