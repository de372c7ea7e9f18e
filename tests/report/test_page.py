"""The page in a real browser: charts, filters, an episode, its group; untrusted text stays text, nothing leaves."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from sqale_grpo.corpus import PreparedCorpus
from sqale_grpo.report.charts import CHARTS, Chart
from sqale_grpo.report.counts import TIERS
from sqale_grpo.report.curves import Curves
from sqale_grpo.report.page import ASSETS, RUN_COLOURS, write_report
from sqale_grpo.rollout.held_out import add_line, held_out_line
from sqale_grpo.settings.load import load_config, save_config
from tests.helpers.reports import HOSTILE, QUESTIONS, make_run
from tests.report.test_folders import make_evaluation

Visit = Callable[..., Page]


@pytest.fixture
def page(visit: Visit, page_file: Path) -> Page:
    return visit(page_file.as_uri())


def filters(page: Page, **values: str) -> None:
    for name, value in values.items():
        field = page.locator(f"#filters [name={name}]")
        field.select_option(value) if field.evaluate("e => e.tagName") == "SELECT" else field.fill(value)


def found(page: Page) -> int:
    """Rows in the list, all of them shown."""
    while page.locator("#more").is_visible():
        page.locator("#more").click()
    return page.locator("#list > li").count()


def painted(figure: Locator, chart: Chart) -> int:
    """Pixels of a chart in the colour of one of its series."""
    return figure.locator("canvas").evaluate(
        """(canvas, names) => {
            const style = getComputedStyle(document.documentElement);
            const wanted = new Set(names.map((name) => style.getPropertyValue(`--${name}`).trim().toLowerCase()));
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            const hex = (value) => value.toString(16).padStart(2, "0");
            let found = 0;
            for (let at = 0; at < data.length; at += 4)
                if (wanted.has("#" + hex(data[at]) + hex(data[at + 1]) + hex(data[at + 2]))) found++;
            return found;
        }""",
        [name if name != "run" else "run-0" for _, _, name, _ in chart.series(Curves([], 0))] + [*TIERS, "stage-0"],
    )


def test_every_chart_is_drawn_or_says_that_it_was_not_logged(page: Page) -> None:
    figures = page.locator("[data-chart]")
    assert figures.count() == len(CHARTS)
    for number, chart in enumerate(CHARTS):
        figure = figures.nth(number)
        figure.scroll_into_view_if_needed()
        if chart.key in ("masked", "off_policy", "gaps", "held_out"):  # of vLLM, and of evaluate.every
            expect(figure.locator(".plot")).to_have_text("Not logged by this run.")
            continue
        expect(figure.locator("canvas")).to_be_visible()
        assert painted(figure, chart) > 100, chart.key
        assert chart.title in (figure.locator(".plot").get_attribute("aria-label") or "")


def test_the_published_curve_and_the_held_out_questions_are_drawn(visit: Visit, tmp_path: Path) -> None:
    folder = tmp_path / "recipe"
    folder.mkdir()
    save_config(load_config(["configs/recipe.yaml", "configs/corpus/sqale.yaml"]), folder / "config.yaml")
    values = {"equivalent_rate": 0.2, "invalid_rate": 0.3, "tool_calls": 6.0, "rounds": 6.5}
    lines = [json.dumps({"update": update, **values}) for update in range(40)]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    episode = {"reward": 1.0, "rounds": 2, "calls": 3, "written_tokens": 40}
    for update, right in ((0, 1), (20, 5), (40, 7)):
        tiers = ["equivalent"] * right + ["invalid"] * (10 - right)
        add_line(folder, held_out_line(update, [{**episode, "tier": tier} for tier in tiers], "a"))
    page = visit(write_report([folder], tmp_path / "report.html").as_uri())
    for number, chart in enumerate(CHARTS):
        if chart.published or chart.key == "held_out":
            figure = page.locator("[data-chart]").nth(number)
            figure.scroll_into_view_if_needed()
            expect(figure.locator("canvas")).to_be_visible()
            for metric in chart.published:
                expect(figure).to_contain_text(f"published {metric.replace('_', ' ')}")
            assert painted(figure, chart) > 100, chart.key


def test_a_charts_numbers_are_a_table(page: Page) -> None:
    figure = page.locator("[data-chart]").first
    figure.locator("summary").click()
    rows = figure.locator(".numbers tbody tr")
    expect(rows).to_have_count(6)
    expect(rows.first.locator("td")).to_have_count(6)
    assert [float(text) for text in rows.first.locator("td").all_inner_texts()] == [0, 0.25, 0.25, 0.25, 0.25, 0]


def test_the_filters_work_alone_and_together(page: Page) -> None:
    expect(page.locator("#count")).to_have_text("48 of 48 episodes")
    assert found(page) == 48
    filters(page, tier="equivalent")
    expect(page.locator("#count")).to_have_text("12 of 48 episodes")
    filters(page, **{"from": "2", "to": "3"})
    expect(page.locator("#count")).to_have_text("4 of 48 episodes")
    filters(page, bucket="short")
    expect(page.locator("#count")).to_have_text(re.compile("^[12] of 48 episodes"))
    page.locator("#filters button[type=reset]").click()
    expect(page.locator("#count")).to_have_text("48 of 48 episodes")
    filters(page, ended="final_turn")
    expect(page.locator("#count")).to_have_text("12 of 48 episodes")
    filters(page, ended="submit_sql")
    expect(page.locator("#count")).to_have_text("36 of 48 episodes")
    page.locator("#filters button[type=reset]").click()
    filters(page, db="sho")
    expect(page.locator("#count")).to_have_text("48 of 48 episodes")
    filters(page, db="no such database")
    expect(page.locator("#count")).to_have_text("0 of 48 episodes")


def test_text_is_searched_in_the_question_and_on_request_in_the_turns(page: Page) -> None:
    filters(page, text="what did ada")
    expect(page.locator("#count")).to_have_text("16 of 48 episodes")
    filters(page, text="no such table: nowhere")
    expect(page.locator("#count")).to_have_text("0 of 48 episodes")
    page.locator("[name=turns]").check()
    expect(page.locator("#count")).to_have_text("12 of 48 episodes")


def open_episode(page: Page, question: str, candidate: int) -> None:
    filters(page, text=QUESTIONS[question][0][:20])
    expect(page.locator("#count")).to_have_text("16 of 48 episodes")
    page.locator("#list button").nth(candidate).click()
    expect(page.locator("#episode header")).to_contain_text(f"Candidate {candidate}")


def test_an_episode_is_read_turn_by_turn(page: Page) -> None:
    open_episode(page, "q1", 0)
    episode = page.locator("#episode")
    expect(episode.locator("h3")).to_have_text(QUESTIONS["q1"][0])
    expect(episode.locator(".turn")).to_have_count(4)
    thinking = episode.locator(".turn").first.locator("details").first
    assert not thinking.evaluate("e => e.open"), "thinking is folded"
    second = episode.locator(".turn").nth(1)
    assert [call.inner_text() for call in second.locator(".call strong").all()] == ["describe_table", "sample_rows"]
    expect(second.locator("table tbody tr")).to_have_count(5)
    # The answer's result beside the gold query's: run again on the tables that the episode had.
    panels = episode.locator(".panel")
    expect(panels).to_have_count(2)
    for number in range(2):
        expect(panels.nth(number).locator("tbody tr")).to_have_count(2)
        expect(panels.nth(number)).to_contain_text("2 rows")


def test_errors_are_marked(page: Page) -> None:
    open_episode(page, "q0", 2)
    expect(page.locator("#episode .turn.failed")).to_have_count(1)
    expect(page.locator("#episode .mark")).to_have_text("error: schema")
    expect(page.locator("#episode .panel").first).to_contain_text("Error: schema: no such column: missing")


def test_the_group_stands_side_by_side_and_each_can_be_opened(page: Page) -> None:
    open_episode(page, "q1", 0)
    cards = page.locator("#episode .group > li")
    expect(cards).to_have_count(4)
    boxes = [cards.nth(number).bounding_box() for number in range(4)]
    assert len({round(box["y"]) for box in boxes if box}) == 1
    expect(cards.first).to_contain_text("3.00")
    values = cards.locator("dd:nth-of-type(2)").all_inner_texts()
    assert sum(float(value) for value in values) == pytest.approx(0, abs=0.03), "advantages are centred"
    cards.nth(1).get_by_role("button", name="Read candidate 1").click()
    expect(page.locator("#episode header")).to_contain_text("Candidate 1")
    page.get_by_role("button", name="Next").click()
    expect(page.locator("#episode header")).to_contain_text("Candidate 2")


def test_the_drawing_marks_gold_and_opened_tables(page: Page) -> None:
    open_episode(page, "q1", 0)
    graph = page.locator("#episode .graph svg")
    expect(graph.locator("g")).to_have_count(4)
    expect(graph.locator("path")).to_have_count(2)
    expect(graph.locator("g.gold")).to_have_count(3)
    expect(graph.locator("g.opened")).to_have_count(3)
    expect(graph.locator("g", has_text="empty")).not_to_have_class(re.compile("opened|gold"))
    page.locator("#episode summary", has_text="Tables as a list").click()
    expect(page.locator("#episode table[aria-label=Tables] tr", has_text="orders")).to_contain_text("customers, items")


def test_hostile_text_stays_text(page: Page) -> None:
    title = page.title()
    open_episode(page, "q2", 0)
    page.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
    heading = page.locator("#episode h3").inner_text()
    for text in HOSTILE[:4]:
        assert " ".join(text.split()) in " ".join(heading.split())
    shown = page.locator("#episode .panel").nth(1).inner_text()
    assert "nul ⟨U+0000⟩ bell ⟨U+0007⟩" in shown
    assert "right-to-left ⟨U+202E⟩ desrever ⟨U+2066⟩ isolate" in shown
    for candidate in range(4):
        page.locator("#list button").nth(candidate).click()
        expect(page.locator("#episode header")).to_contain_text(f"Candidate {candidate}")
    assert page.locator("#episode img, #episode script, #list img, #list script").count() == 0
    assert page.title() == title


def test_an_address_opens_the_same_episode_with_the_same_filters(page: Page, visit: Visit) -> None:
    open_episode(page, "q1", 2)
    again = visit(page.url)
    expect(again.locator("#count")).to_have_text("16 of 48 episodes")
    expect(again.locator("#episode header")).to_contain_text("Candidate 2")
    expect(again.locator("#episode h3")).to_have_text(QUESTIONS["q1"][0])


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_window(visit: Visit, page_file: Path, width: int) -> None:
    page = visit(page_file.as_uri(), viewport={"width": width, "height": 900})
    open_episode(page, "q2", 0)
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_the_keyboard_reaches_an_episode_and_its_heading(page: Page) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.locator("#list button").first.focus()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", "focus can be seen"
    page.keyboard.press("Enter")
    expect(page.locator("#episode h3")).to_be_focused()
    assert page.locator("#list button[aria-current=true]").count() == 1


def test_what_scrolls_can_be_scrolled_by_keyboard(page: Page) -> None:
    open_episode(page, "q1", 0)
    places = page.locator(".scroll, .graph")
    assert places.count() > 5
    assert places.evaluate_all("all => all.filter(e => e.tabIndex < 0).map(e => e.outerHTML.slice(0, 80))") == []


def test_runs_have_colours_of_their_own() -> None:
    style = (ASSETS / "page.css").read_text()
    for theme in (style.partition('[data-theme="dark"]')[0], style.partition("@media (prefers")[2]):
        colours = dict(re.findall(r"--run-(\d+): (#\w+)", theme))
        assert len(set(colours.values())) == len(colours) == RUN_COLOURS


def test_everything_has_a_name_for_a_screen_reader(page: Page) -> None:
    open_episode(page, "q1", 0)
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("input, select, button, [role=img], [role=region], nav, table, form")]
        .concat([...document.querySelectorAll("section, article")])
        .filter(e => e.offsetParent !== null || e.tagName === "svg")
        .filter(e => !(e.labels?.length || e.ariaLabel || e.getAttribute("aria-labelledby") || e.innerText?.trim()))
        .map(e => e.outerHTML.slice(0, 80))"""
    )
    assert nameless == []
    assert page.locator("table.data").evaluate_all("all => all.every(e => e.querySelector('th[scope]'))")
    assert page.locator("main, header.top, footer").count() == 3
    expect(page.locator("#count")).to_have_attribute("aria-live", "polite")


def test_dark_by_the_system_and_by_choice(visit: Visit, page_file: Path) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    dark = visit(page_file.as_uri(), color_scheme="dark").evaluate(background)
    page = visit(page_file.as_uri(), color_scheme="light")
    light = page.evaluate(background)
    assert dark != light
    page.locator("#theme").click()
    page.locator("#theme").click()
    expect(page.locator("#theme")).to_have_text("Theme: dark")
    assert page.evaluate(background) == dark


def test_an_evaluation_alone_is_a_page(visit: Visit, tmp_path: Path, corpus: PreparedCorpus) -> None:
    folder = make_evaluation(tmp_path / "after", corpus, right=True)
    page = visit(write_report([folder], tmp_path / "after.html").as_uri())
    expect(page.locator("#evaluations th[scope=col]")).to_have_text(["after"])
    page.locator("#list button").first.click()
    expect(page.locator("#episode .turn")).to_have_count(4)
    assert page.locator("#curves, #episode .group").count() == 0


def test_two_runs_are_laid_over_each_other(visit: Visit, run: Path, place: Path, corpus: PreparedCorpus) -> None:
    other = make_run(place, corpus, "beta <b>", 4)
    page = visit(write_report([run, other], place / "two.html").as_uri())
    reward = page.locator("[data-chart]").nth([c.key for c in CHARTS].index("reward"))
    reward.scroll_into_view_if_needed()
    expect(reward.locator(".u-legend .u-label")).to_have_text(["update", "alpha: reward", "beta <b>: reward"])
    page.locator("#run").select_option("1")
    outcomes = page.locator("[data-chart]").first
    outcomes.locator("summary").click()
    expect(outcomes.locator(".numbers tbody tr")).to_have_count(4)
    expect(page.locator("#count")).to_have_text("80 of 80 episodes")
    filters(page, source="beta <b>")
    expect(page.locator("#count")).to_have_text("32 of 80 episodes")
