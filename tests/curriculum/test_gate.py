"""The submit gate falls from always to never, one draw an episode."""

import pytest

from sqale_grpo.curriculum import gate_closed, gate_probability


@pytest.mark.parametrize(
    ("update", "expected"), [(0, 1.0), (20, 0.75), (40, 0.5), (79, 0.0125), (80, 0.0), (1799, 0.0)]
)
def test_probability(update: int, expected: float) -> None:
    assert gate_probability(update) == pytest.approx(expected, abs=1e-12)


def test_other_starts_and_lengths() -> None:
    assert gate_probability(5, start=0.8, updates=10) == pytest.approx(0.4)
    assert gate_probability(0, updates=0) == 0.0


def test_the_draw_follows_the_probability_and_its_keys_alone() -> None:
    draws = [
        gate_closed(42, 40, f"question {number}", candidate, 0.5) for number in range(500) for candidate in range(8)
    ]
    assert 0.46 < sum(draws) / len(draws) < 0.54  # five standard deviations
    assert draws == [
        gate_closed(42, 40, f"question {number}", candidate, 0.5) for number in range(500) for candidate in range(8)
    ]
    # Candidates of one question are drawn one by one, not as a group.
    mixed = [number for number in range(500) if 0 < sum(draws[number * 8 : number * 8 + 8]) < 8]
    assert len(mixed) > 480
    assert all(gate_closed(1, 0, "q", candidate, gate_probability(0)) for candidate in range(50))
    assert not any(gate_closed(1, 80, "q", candidate, gate_probability(80)) for candidate in range(50))
