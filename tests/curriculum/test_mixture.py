"""The mixture schedule is the card's."""

import pytest

from sqale_grpo.curriculum import MixtureSchedule

START, END = (0.40, 0.30, 0.20, 0.10), (0.15, 0.20, 0.25, 0.40)


@pytest.mark.parametrize(
    ("update", "shares"),
    [
        (0, (1, 0, 0, 0)),
        (399, (1, 0, 0, 0)),
        (400, START),
        (650, (0.3375, 0.275, 0.2125, 0.175)),
        (900, (0.275, 0.25, 0.225, 0.25)),
        (1400, END),
        (1799, END),
        (10**9, END),
    ],
)
def test_the_published_schedule(update: int, shares: tuple[float, ...]) -> None:
    assert MixtureSchedule().mixture(update) == pytest.approx(shares, abs=1e-12)


def test_after_the_warmup_no_bucket_falls_below_its_published_floor() -> None:
    schedule = MixtureSchedule()
    short = [schedule.mixture(update)[0] for update in range(400, 1800)]
    assert min(short) == 0.15
    assert min(min(schedule.mixture(update)) for update in range(400, 1800)) == 0.10
    for update in range(1800):
        assert sum(schedule.mixture(update)) == pytest.approx(1, abs=1e-12)


def test_strength_blends_with_the_natural_shares() -> None:
    natural = (0.52, 0.29, 0.14, 0.05)
    none = MixtureSchedule(strength=0.0, natural=natural)
    half = MixtureSchedule(strength=0.5, natural=natural)
    for update in (0, 400, 900, 1799):
        full = MixtureSchedule().mixture(update)
        assert none.mixture(update) == natural
        expected = [(a + b) / 2 for a, b in zip(natural, full, strict=True)]
        assert half.mixture(update) == pytest.approx(expected, abs=1e-12)


def test_a_schedule_without_warmup_or_ramp() -> None:
    assert MixtureSchedule(warmup=0).mixture(0) == START
    assert MixtureSchedule(warmup=3, ramp=0).mixture(2) == (1, 0, 0, 0)
    assert MixtureSchedule(warmup=3, ramp=0).mixture(3) == END


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"start": (0.5, 0.5, 0.5, 0.5)}, "mixture's start must be 4 shares that sum to 1"),
        ({"end": (1.0, 0.0)}, "mixture's end"),
        ({"natural": (1.2, -0.2, 0.0, 0.0)}, "mixture's natural"),
        ({"start": (0.5, float("nan"), 0.5, 0.0)}, "mixture's start"),
        ({"strength": 1.5}, "strength lies between 0"),
        ({"warmup": -1}, "counts of updates"),
    ],
)
def test_bad_input_is_named(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MixtureSchedule(**arguments)


def test_updates_count_from_zero() -> None:
    with pytest.raises(ValueError, match="count from 0"):
        MixtureSchedule().mixture(-1)
