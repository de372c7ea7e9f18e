"""Curves: counts are over all episodes, plans follow the configuration, warnings come from the data alone."""

import dataclasses
import random
import shutil
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sqale_grpo.curriculum import MixtureSchedule
from sqale_grpo.report.alarms import alarms
from sqale_grpo.report.charts import chart_data
from sqale_grpo.report.counts import CountReader, RecordedGroup, count_file
from sqale_grpo.report.curves import Curves, is_papers_run, planned, published_curve, run_curves
from sqale_grpo.report.episodes import choose_groups
from sqale_grpo.report.folders import RunFolder, open_folder
from sqale_grpo.report.page import group_shares
from sqale_grpo.rollout.held_out import add_line, held_out_line
from sqale_grpo.rollout.rates import wilson
from sqale_grpo.rollout.record import write_episodes
from sqale_grpo.settings.load import load_config
from tests.helpers.reports import make_config

ROOT = Path(__file__).resolve().parents[2]


def test_rates_agree_with_what_the_trainer_logged(run: Path) -> None:
    folder = open_folder(run)
    assert isinstance(folder, RunFolder)
    curves = run_curves(folder, [count_file(path) for path in folder.files])
    assert (curves.updates, curves.episodes, curves.anchors) == (list(range(6)), 48, [3])
    for update, logged in enumerate(folder.metrics):
        for name in ("equivalent", "executable", "parsable", "invalid"):
            assert curves.get(name)[update] == pytest.approx(logged[f"{name}_rate"])
        assert curves.get("gate")[update] == pytest.approx(logged["gate_rate"])
        assert curves.get("bucket/short")[update] == pytest.approx(logged["bucket/short"])
    # Beyond what is known the curve has gaps, not zeros.
    assert curves.get("no such metric") == [None] * 6


def test_void_episodes_have_a_curve_and_no_part_in_the_reward(run: Path, tmp_path: Path) -> None:
    """In two of six updates: a copy of a run whose record says that the machine failed in a third of the episodes."""
    shutil.copytree(run, tmp_path / "void")
    folder = open_folder(tmp_path / "void")
    assert isinstance(folder, RunFolder)
    for path in folder.files[2:4]:
        rows = pq.read_table(path).to_pylist()
        for row in rows[::3]:
            row |= {"tier": "void", "reward": None, "error": "a disk that cannot be read"}
        write_episodes(path.parent, int(path.stem), rows)
    curves = run_curves(folder, [count_file(path) for path in folder.files])
    known = [row["reward"] for row in pq.read_table(folder.files[2]).to_pylist() if row["reward"] is not None]
    assert curves.get("void") == [0.0, 0.0, 3 / 8, 3 / 8, 0.0, 0.0]
    assert curves.get("reward")[2] == pytest.approx(sum(known) / len(known)) and len(known) == 5
    (alarm,) = [text for text in alarms(curves) if "void" in text]
    assert "episodes of 2 of 6 updates, most in update 2 (38%)" in alarm
    assert not [text for text in alarms(run_curves(folder, [])) if "void" in text]


def test_a_file_is_read_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = CountReader()
    files = sorted((run / "episodes").glob("*.parquet"))
    first, _ = reader.counts(files[:4])
    monkeypatch.setattr("sqale_grpo.report.counts.count_file", lambda path: pytest.fail(f"{path} is read again"))
    assert reader.counts(files[:4])[0] == first


def test_the_plan_is_the_schedules(tmp_path: Path) -> None:
    config = make_config(tmp_path, "x")
    curves = planned(config, range(8))
    schedule = MixtureSchedule(warmup=2, ramp=4)
    assert [curves["planned/very_long"][u] for u in range(8)] == [schedule.mixture(u)[3] for u in range(8)]
    assert curves["gate_planned"][:4] == pytest.approx([1, 2 / 3, 1 / 3, 0])


def test_published_points_come_with_the_papers_run_alone() -> None:
    recipe = ROOT / "configs" / "recipe.yaml"
    papers = load_config([recipe, ROOT / "configs" / "corpus" / "sqale.yaml"])
    bird = load_config([recipe, ROOT / "configs" / "corpus" / "bird.yaml"])
    demo = load_config([ROOT / "configs" / "demo.yaml"])
    assert [is_papers_run(config) for config in (papers, bird, demo, None)] == [True, False, False, False]
    short = dataclasses.replace(papers, train=dataclasses.replace(papers.train, updates=100))
    assert not is_papers_run(short)
    curves = Curves([0, 1], 288, {"tool_calls": [6.0, 6.1], "equivalent": [0.1, 0.12]})
    shape = {chart["key"]: chart for chart in chart_data([("a", curves, True)])}["shape"]
    calls, rounds = shape["published"]
    assert (calls["label"], rounds["label"]) == ("published tool calls", "published rounds")
    assert len(calls["x"]) == len(calls["y"]) == len(rounds["y"]) == 277
    assert (calls["x"][:2], calls["y"][0], rounds["y"][0]) == ([2, 8], 7.302, 6.647)
    assert (calls["x"][-2:], calls["y"][-1]) == ([1652, 1656], 20.271)
    assert not any(chart["published"] for chart in chart_data([("a", curves, False)]))


def test_published_points_are_what_the_page_says_of_them() -> None:
    """First 30 updates: 43% invalid, 12% equivalent; the last 200: under 1% and 45%. Each is a mean of 864 episodes."""
    points = published_curve()
    first, last = [at < 30 for at in points["updates"]], [at >= 1_458 for at in points["updates"]]

    def mean(metric: str, chosen: list[bool]) -> float:
        values = [value for value, wanted in zip(points[metric], chosen, strict=True) if wanted]
        return sum(values) / len(values)

    assert (round(mean("invalid", first), 2), round(mean("equivalent", first), 2)) == (0.43, 0.12)
    assert mean("invalid", last) < 0.01 and round(mean("equivalent", last), 2) == 0.45
    assert all(abs(value * 864 - round(value * 864)) < 0.05 for value in points["equivalent"][:-1])


def test_held_out_questions_are_drawn_with_their_interval_where_they_were_played(run: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(run, tmp_path / "run"))
    episode = {"reward": 1.0, "rounds": 2, "calls": 3, "written_tokens": 40}
    for update, right in ((0, 1), (2, 5)):
        tiers = ["equivalent"] * right + ["invalid"] * (10 - right)
        add_line(copied, held_out_line(update, [{**episode, "tier": tier} for tier in tiers], "a"))
    folder = open_folder(copied)
    assert isinstance(folder, RunFolder)
    curves = run_curves(folder, CountReader().counts(list(folder.files))[0])
    assert curves.get("held_out/equivalent")[:3] == [0.1, 0.5, None], "after two updates: at the second of them"
    ends = [curves.get(f"held_out/equivalent_{end}")[1] for end in ("low", "high")]
    assert ends == pytest.approx(wilson(5, 10), abs=1e-5)
    chart = {each["key"]: each for each in chart_data([("a", curves, False)])}["held_out"]
    assert chart["joined"] and [series["label"] for series in chart["series"]] == ["equivalent", "lowest", "highest"]
    assert chart["words"] == ["a: equivalent 10% → 50%; lowest 2% → 24%; highest 40% → 76%"]


def noisy(values: list[float], seed: int, spread: float = 0.03) -> list[float | None]:
    chance = random.Random(seed)
    return [max(0.0, value + chance.uniform(-spread, spread)) for value in values]


def made(updates: int, **series: list[float]) -> Curves:
    noise = {name: noisy(values, number) for number, (name, values) in enumerate(series.items())}
    return Curves(list(range(updates)), updates * 144, dict(noise))


def ramp(start: float, end: float, count: int) -> list[float]:
    return [start + (end - start) * place / (count - 1) for place in range(count)]


def test_reward_rising_while_right_answers_vanish_is_a_collapse() -> None:
    equivalent = ramp(0.1, 0.45, 60) + ramp(0.45, 0.05, 60)
    reward = ramp(0.8, 1.6, 60) + ramp(1.6, 2.0, 60)
    (text,) = alarms(made(120, equivalent=equivalent, reward=reward))
    assert text.startswith("Collapse: equivalent fell from 4") and "updates 108–119" in text


def test_a_healthy_run_and_a_harder_curriculum_raise_no_alarm() -> None:
    assert alarms(made(120, equivalent=ramp(0.1, 0.45, 120), reward=ramp(0.8, 1.9, 120))) == []
    # Longer questions lower both.
    equivalent, reward = ramp(0.1, 0.6, 60) + ramp(0.6, 0.3, 60), ramp(0.8, 2.2, 60) + ramp(2.2, 1.5, 60)
    assert alarms(made(120, equivalent=equivalent, reward=reward)) == []
    assert alarms(made(4, equivalent=[0.5, 0.1, 0.1, 0.1], reward=[1, 2, 2, 2])) == [], "too short to tell"


def test_an_engine_that_is_not_the_policy_is_told() -> None:
    def told(cap: float = 3.0, **changed: list[float]) -> list[str]:
        return alarms(Curves(list(range(40)), 40 * 144, {**fine, **changed}), cap)  # type: ignore[dict-item]

    fine = {"sampling/logp_difference": [0.012] * 40, "importance/sequences_over_cap": [0.07] * 40}
    fine |= {"importance/effective_share": [0.6] * 40, "importance/gap_from_0": [0.01] * 40}
    fine |= {"importance/gap_from_4096": [0.014] * 40}
    assert told() == []
    for name, values, says in (
        ("sampling/logp_difference", [0.01] * 20 + [0.4] * 20, "Sampler and trainer are 0.4 nats a token apart"),
        ("importance/sequences_over_cap", [0.6] * 40, "60% of the importance ratios are over 3 (updates 36–39)"),
        ("importance/gap_from_4096", [0.09] * 40, "grow apart along an episode, from 0.01 to 0.09 nats a token"),
        ("importance/effective_share", [0.1] * 40, "The effective share of an update's episodes is 10%"),
    ):
        (text,) = told(**{name: values})
        assert says in text
    (text,) = told(5.0, **{"importance/sequences_over_cap": [0.3] * 40})
    assert "that is 20% at most, at any length" in text


def test_other_alarms() -> None:
    flat = [1.0] * 60
    invalid = made(60, invalid=ramp(0.4, 0.02, 30) + ramp(0.02, 0.5, 30), reward=flat, equivalent=[0.3] * 60)
    assert any(text.startswith("Invalid answers came back") for text in alarms(invalid))
    stuck = made(60, zero_variance_groups=[0.93] * 60, reward=flat, equivalent=[0.3] * 60)
    assert any("give no gradient" in text for text in alarms(stuck))
    broken = Curves(list(range(20)), 2880, {"loss": [0.1] * 12 + [None] * 8, "seconds/update": [1.0] * 20})
    assert alarms(broken) == ["The loss is no number after update 11."]
    for updates in (2, 20):
        never = Curves(list(range(updates)), 288, {"loss": [None] * updates, "seconds/update": [1.0] * updates})
        assert alarms(never) == ["The loss is no number at any update."]
    # The episodes of an update come before its metrics, and a run may log no loss.
    under_way = Curves([0, 1, 2], 432, {"loss": [0.1, 0.1, None], "seconds/update": [1.0, 1.0, None]})
    assert alarms(under_way) == [] == alarms(Curves([0], 144, {"seconds/update": [1.0]}))


@pytest.mark.parametrize("groups", [1, 5, 60, 480])
@pytest.mark.parametrize(("runs", "evaluations"), [(1, 0), (1, 2), (9, 27), (0, 1), (0, 3)])
def test_runs_and_evaluations_share_a_page(groups: int, runs: int, evaluations: int) -> None:
    shares = group_shares(groups, [True] * runs + [False] * evaluations)
    assert min(shares) >= 1 and sum(shares) <= max(groups, runs + evaluations)
    if groups >= runs + evaluations:
        assert sum(shares) > groups - runs - evaluations, "nothing is wasted"
    if runs and groups == 480:
        assert sum(shares[:runs]) >= 240, "evaluations take no more than half"


def test_a_sample_holds_whole_groups_of_all_times_and_outcomes() -> None:
    tiers = ("equivalent", "executable", "parsable", "invalid")
    # Groups without one right answer are one in fifty.
    rare = {(update, 0) for update in range(0, 600, 3)}
    groups = [
        RecordedGroup(Path(f"{u}"), 8 * n, u, f"q{u}.{n}", (tiers[3] if (u, n) in rare else tiers[0],) * 8)
        for u in range(600)
        for n in range(18)
    ]
    chosen = choose_groups(groups, 240)
    assert len(set(chosen)) == 240 and chosen == choose_groups(groups, 240)
    assert chosen != choose_groups(groups, 240, seed=1)
    assert Counter(group.tiers[0] for group in chosen)["invalid"] == 120
    assert set(Counter(group.update // 50 for group in chosen).values()) == {20}
    assert choose_groups(groups, 100) == chosen[:100], "a smaller page holds a part of the same"
    assert sorted(choose_groups(groups[:30], 240), key=str) == sorted(groups[:30], key=str)
