"""A run's curves as one small picture: the four outcomes and the calls an episode, by update; static SVG."""

from collections.abc import Sequence
from typing import Any

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 720, 260, 40, 34, 28
RATES = {
    "equivalent_rate": "#1a7f37",
    "executable_rate": "#bf8700",
    "parsable_rate": "#8250df",
    "invalid_rate": "#cf222e",
}
FONT = 'font-family="sans-serif" font-size="11"'
POINTS = 180  # a curve of 1,800 updates is drawn as means of ten


def means(values: Sequence[float], points: int = POINTS) -> list[float]:
    """Means over consecutive stretches, at most ``points`` of them."""
    size = max(1, -(-len(values) // points))
    return [
        sum(values[start : start + size]) / len(values[start : start + size]) for start in range(0, len(values), size)
    ]


def draw(metrics: Sequence[dict[str, Any]]) -> str:
    """The picture; one panel of the outcomes' shares and one of the tool calls."""
    middle = WIDTH // 2
    rates = {name: means([line[name] for line in metrics]) for name in RATES}
    calls = means([line["tool_calls"] for line in metrics])
    most = max(1.0, *calls)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {FONT}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        *_panel(LEFT, middle - 20, "share of episodes", "1", len(metrics)),
        *_panel(middle + LEFT, WIDTH - 20, "tool calls an episode", f"{most:.1f}", len(metrics)),
    ]
    for place, (name, colour) in enumerate(RATES.items()):
        parts.append(_line(rates[name], LEFT, middle - 20, 1.0, colour))
        label = name.removesuffix("_rate")
        parts.append(f'<text x="{LEFT + 4 + 72 * place}" y="{TOP - 6}" fill="{colour}">{label}</text>')
    parts.append(_line(calls, middle + LEFT, WIDTH - 20, most, "#0969da"))
    return "\n".join([*parts, "</svg>\n"])


def _panel(left: int, right: int, title: str, top: str, updates: int) -> list[str]:
    low = HEIGHT - BOTTOM
    return [
        f'<text x="{left}" y="14" font-weight="bold">{title}</text>',
        f'<path d="M{left} {TOP}V{low}H{right}" fill="none" stroke="#57606a"/>',
        f'<text x="{left - 6}" y="{TOP + 4}" text-anchor="end">{top}</text>',
        f'<text x="{left - 6}" y="{low}" text-anchor="end">0</text>',
        f'<text x="{left}" y="{HEIGHT - 10}">1</text>',
        f'<text x="{right}" y="{HEIGHT - 10}" text-anchor="end">update {updates}</text>',
    ]


def _line(values: Sequence[float], left: int, right: int, most: float, colour: str) -> str:
    low = HEIGHT - BOTTOM
    step = (right - left) / max(1, len(values) - 1)
    points = " ".join(
        f"{left + place * step:.1f},{low - (low - TOP) * value / most:.1f}" for place, value in enumerate(values)
    )
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
