"""The card's tables: corpus by benchmark, schema size, literals looked up, size against compute.

The card's own figures stand beside ours where the policy is the card's.
"""

from collections.abc import Sequence

from sqale_grpo.evaluate import published
from sqale_grpo.evaluate.evaluations import Evaluation, benchmarks, policies, sizes
from sqale_grpo.evaluate.figures import NOTHING, figure
from sqale_grpo.evaluate.table_data import (
    Table,
    accuracy_and_recall,
    accuracy_cell,
    benchmark_name,
    by_policy_and_size,
    card_name,
    largest_size,
    policy_label,
    select,
    size_name,
)

LITERAL_METRICS = {
    "literals_seen": "looked up",
    "stated_literals_seen": "… stated",
    "unstated_literals_seen": "… not stated",
    "unstated_literals_used": "not stated, used",
    "unstated_literals_used_of_seen": "… of those looked up",
}
BESIDE = {"equivalent": "", "robust": ", robust", "official": ", its own verdict"}
COMPUTE_METRICS = {
    "processed_tokens": (",.0f", "tokens, each once"),
    "reprocessed_tokens": (",.0f", "tokens, context again each turn"),
    "tflops": (",.3g", "TFLOPs, each once"),
    "tflops_reprocessed": (",.3g", "TFLOPs, context again"),
}


def benchmark_table(evaluations: Sequence[Evaluation]) -> Table:
    """Execution accuracy by policy and benchmark (card: "Evaluation").

    Beside ours, where known, the share that is right on counter-databases too, and the benchmark's own verdict.
    """
    size = largest_size(evaluations)
    names = benchmarks(select(evaluations, schema=size))
    columns = [
        (name, metric)
        for name in names
        for metric in BESIDE
        if metric == "equivalent" or _has(select(evaluations, benchmark=name, schema=size), metric)
    ]
    heads = [benchmark_name(name) + BESIDE[metric] for name, metric in columns]
    table = Table("benchmarks", f"Execution accuracy (%), {size_name(size).lower()}", ["Policy", *heads])
    for policy in policies(select(evaluations, schema=size)):
        mine = select(evaluations, policy, schema=size)
        card = published.ACCURACY.get(card_name(mine) or "", {}) if size == "full" else {}
        cells = []
        for name, metric in columns:
            here = select(mine, benchmark=name)
            known = card.get(name) if metric == published.verdict(name) else None
            cells.append(figure(here, metric, published=known) if here else None)
        table.add(policy_label(mine), (cell.text() if cell else NOTHING for cell in cells))
        table.figures += filter(None, cells)
        if card:
            values = [card.get(name) if metric == published.verdict(name) else None for name, metric in columns]
            table.add(f"… published: {card_name(mine)}", (NOTHING if v is None else f"{v:.1f}" for v in values))
    return table


def _has(evaluations: Sequence[Evaluation], metric: str) -> bool:
    return any(row[metric] is not None for each in evaluations for row in each.rows)


def schema_size_table(evaluations: Sequence[Evaluation], benchmark: str) -> Table:
    """Accuracy by tables in the database and policy; brackets: every gold table was opened (card: "Schema size")."""
    mine = select(evaluations, benchmark=benchmark)
    names = policies(mine)
    cards = {name: card_name(select(mine, name)) if benchmark == "sqale" else None for name in names}
    head = ["Tables in the database"]
    for name in names:
        head.append(policy_label(select(mine, name)))
        head += [f"{cards[name]}, published"] if cards[name] in published.SCHEMA_SIZE else []
    title = f"{benchmark_name(benchmark)}: accuracy (episodes that opened every gold table), %"
    table = Table(f"schema_size_{benchmark}", title, head)
    for size in sizes(mine):
        cells = []
        for name in names:
            here = select(mine, name, schema=size)
            card = published.SCHEMA_SIZE.get(cards[name] or "", {})
            cells.append(accuracy_and_recall(table, here, card.get(size)) if here else NOTHING)
            if card:
                known = card.get(size)
                cells.append(f"{known.accuracy:.1f} ({known.recall:.1f})" if known else NOTHING)
        table.add(size_name(size), cells)
    return table


def literals_table(evaluations: Sequence[Evaluation], benchmark: str) -> Table:
    """String literals looked up before the answer, by whether the question states them (card: "Looking up values")."""
    mine = select(evaluations, benchmark=benchmark)
    head = ["Policy", "Tables", *LITERAL_METRICS.values()]
    table = Table(f"literals_{benchmark}", f"{benchmark_name(benchmark)}: string literals of the gold query, %", head)
    for labels, here in by_policy_and_size(mine):
        card = (
            published.LITERALS.get(card_name(here) or "", {})
            if (benchmark, here[0].schema) == ("sqale", "full")
            else {}
        )
        figures = [figure(here, metric, published=card.get(metric)) for metric in LITERAL_METRICS]
        table.add(labels, (each.text() for each in figures))
        table.figures += figures
        if card:
            known = [card.get(metric) for metric in LITERAL_METRICS]
            table.add([f"… published: {card_name(here)}", ""], (NOTHING if v is None else f"{v:.0f}" for v in known))
    return table


def compute_table(evaluations: Sequence[Evaluation], benchmark: str, difficulty: str = "") -> Table:
    """Size against compute (card: "Highlights"); of one difficulty where one is named.

    TFLOPs a question are 2 x parameters x tokens: every token once, as with a cache of the context between turns, or
    the whole context again at every turn, of which the latter fits all 25 published models. These follow the policies
    on the questions that they were asked: the moderate ones of SQaLe test, in full schemas.
    """
    mine = select(evaluations, benchmark=benchmark)
    title = f"{benchmark_name(benchmark)}: accuracy (%) and compute a question" + (difficulty and f", {difficulty}")
    head = ["Policy", "Tables", "parameters", "accuracy", *(name for _, name in COMPUTE_METRICS.values())]
    table = Table(f"compute_{benchmark}" + (difficulty and f"_{difficulty}"), title, head)
    for labels, here in by_policy_and_size(mine):
        card = _card_compute(here, difficulty)
        accuracy = accuracy_cell(table, here, card and card[0], difficulty)
        figures = {name: figure(here, name, difficulty) for name in COMPUTE_METRICS}
        parameters = next((each.parameters for each in here if each.parameters), None)
        cells = [figures[name].text(1.0, form) for name, (form, _) in COMPUTE_METRICS.items()]
        table.add(labels, [f"{parameters:,.0f}" if parameters else NOTHING, accuracy, *cells])
        table.figures += figures.values()
        if card:
            table.add([f"… published: {card_name(here)}", ""], _published_compute(card))
    if any(_as_published(here, difficulty) for _, here in by_policy_and_size(mine)):
        for name, known in sorted(published.COMPUTE.items(), key=lambda pair: pair[1][1]):
            table.add([f"published: {name}", size_name("full")], _published_compute(known))
    table.notes.append(
        "TFLOPs = 2 x parameters x tokens / 10^12, of mixture-of-experts models all parameters. Published figures "
        "count the context again at every turn."
    )
    return table


def _published_compute(known: tuple[float, float, float]) -> list[str]:
    """Cells of a published model, under the columns of the table."""
    accuracy, tflops, parameters = known
    return [f"{parameters:,.0f}", f"{accuracy:.1f}", *[NOTHING] * (len(COMPUTE_METRICS) - 1), f"{tflops:,.0f}"]


def _as_published(here: Sequence[Evaluation], difficulty: str) -> bool:
    """Whether evaluations asked what the published models were asked."""
    bands = ("sqale", f"sqale-{published.COMPUTE_DIFFICULTY}")  # the band may be all that was played
    moderate = difficulty == published.COMPUTE_DIFFICULTY
    return moderate and here[0].schema == "full" and here[0].benchmark in bands


def _card_compute(here: Sequence[Evaluation], difficulty: str) -> tuple[float, float, float] | None:
    return published.COMPUTE.get(card_name(here) or "") if _as_published(here, difficulty) else None
