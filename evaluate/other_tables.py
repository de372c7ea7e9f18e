"""Tables beside the card's: what was evaluated, by difficulty, how episodes went, several candidates, differences."""

from collections.abc import Sequence
from itertools import combinations

from sqale_grpo.evaluate.calibration import Voted, best_threshold, held_out, thresholds, votes_of
from sqale_grpo.evaluate.evaluations import Evaluation, benchmarks, policies, seeds_of, sizes
from sqale_grpo.evaluate.figures import NOTHING, PART_OF_BENCHMARK, Figure, figure, identity_fields
from sqale_grpo.evaluate.identity import MARKED_SHARE, different_keys, told
from sqale_grpo.evaluate.intervals import Interval, Part, ratio, seeds_difference
from sqale_grpo.evaluate.metrics import (
    METRICS,
    by_question,
    metric_parts,
    metric_value,
    rate_interval,
    refuse_other_questions,
    run_difference,
    several_candidates,
    stable,
)
from sqale_grpo.evaluate.table_data import (
    Table,
    accuracy_and_recall,
    benchmark_name,
    by_policy_and_size,
    select,
    size_name,
)

BEHAVIOUR_METRICS = {
    "rounds": "rounds",
    "calls": "calls",
    "distinct_calls": "different calls",
    "calls_per_round": "calls a round",
    "written_tokens": "tokens written",
}


def runs_table(evaluations: Sequence[Evaluation]) -> Table:
    """What was evaluated: every evaluation with its state, and what is in no average."""
    head = [
        "Evaluation",
        "policy",
        "benchmark",
        "schema",
        "state",
        "questions",
        "failed",
        "unstable gold",
        "empty gold",
        "not asked",
        "identity",
    ]
    table = Table("runs", "Evaluations", head)
    for each in evaluations:
        rows = stable(each.rows)
        apart = len(by_question(each.rows)) - len(by_question(rows))
        empty = by_question([row for row in rows if row["gold_empty"]])
        counts = [len(by_question(rows)), each.failed, apart, len(empty)]
        names = [each.name or each.model, each.policy, benchmark_name(each.benchmark), each.schema, each.state]
        about = identity_fields([each])
        mark = PART_OF_BENCHMARK if about["left_out"] > MARKED_SHARE else ""
        table.add(names, [*map(str, counts), about["why"] + mark or NOTHING, about["identity"] or NOTHING])
    return table


def difficulty_table(evaluations: Sequence[Evaluation], benchmark: str) -> Table:
    """Accuracy and table recall by difficulty of the question."""
    mine = select(evaluations, benchmark=benchmark)
    order = {"simple": 0, "moderate": 1, "hard": 2, "challenging": 2}
    found = {row["difficulty"] for each in mine for row in each.rows}
    levels = sorted(found, key=lambda name: (order.get(name, 3), name))
    title = f"{benchmark_name(benchmark)}: accuracy (episodes that opened every gold table) by difficulty, %"
    table = Table(f"difficulty_{benchmark}", title, ["Policy", "Tables", *(level or NOTHING for level in levels)])
    for labels, here in by_policy_and_size(mine):
        table.add(labels, [accuracy_and_recall(table, here, difficulty=level) for level in levels])
    return table


def behaviour_table(evaluations: Sequence[Evaluation], benchmark: str) -> Table:
    """How episodes went: rounds, calls, tokens, and how they ended."""
    mine = select(evaluations, benchmark=benchmark)
    head = ["Policy", "Tables", *BEHAVIOUR_METRICS.values(), "ended by"]
    table = Table(f"behaviour_{benchmark}", f"{benchmark_name(benchmark)}: a mean episode", head)
    for labels, here in by_policy_and_size(mine):
        figures = [figure(here, metric) for metric in BEHAVIOUR_METRICS]
        rows = [row for seed in seeds_of(here) for row in seed]
        names = sorted({row["ended_by"] for row in rows})
        ended = [f"{name} {sum(row['ended_by'] == name for row in rows) / len(rows):.1%}" for name in names]
        table.add(labels, [*(each.text(1.0) for each in figures), ", ".join(ended) or NOTHING])
        table.figures += figures
    return table


def candidates_table(evaluations: Sequence[Evaluation], benchmark: str) -> Table | None:
    """pass@k and majority@k, of policies that played several candidates a question; None where none did."""
    found: list[tuple[list[str], list[Evaluation], dict[str, list[list[Part]]]]] = []
    for labels, here in by_policy_and_size(select(evaluations, benchmark=benchmark)):
        seeds = [by_question(rows) for rows in seeds_of(here)]
        k = min((len(rows) for groups in seeds for rows in groups.values()), default=1)
        if k > 1:
            each_seed = [several_candidates(groups, k) for groups in seeds]
            found.append((labels, here, {name: [parts[name] for parts in each_seed] for name in each_seed[0]}))
    if not found:
        return None
    names = list(dict.fromkeys(name for _, _, parts in found for name in parts))
    title = f"{benchmark_name(benchmark)}: several candidates a question, %"
    table = Table(f"candidates_{benchmark}", title, ["Policy", "Tables", *names])
    for labels, here, parts in found:
        figures = {name: _parts_figure(here, name, parts[name]) for name in names if name in parts}
        table.add(labels, (figures[name].text() if name in figures else NOTHING for name in names))
        table.figures += figures.values()
    return table


def calibration_table(evaluations: Sequence[Evaluation], benchmark: str) -> Table | None:
    """Accuracy of what is answered against the share answered, by the share of candidates that must agree.

    None where no policy played several candidates. A policy's seeds choose one threshold together.
    """
    title = f"{benchmark_name(benchmark)}: what is answered where so many candidates must agree, %"
    head = ["Policy", "Tables", "agree", "answered", "accuracy of what is answered"]
    table = Table(f"calibration_{benchmark}", title, head)
    for labels, here in by_policy_and_size(select(evaluations, benchmark=benchmark)):
        seeds = [votes_of(rows) for rows in seeds_of(here)]
        if not seeds or not all(seeds) or len({votes[0].of for votes in seeds}) > 1:
            continue
        every = [vote for votes in seeds for vote in votes]
        best = best_threshold(every)
        for at in thresholds(every):
            mark = " (calibrated)" if at == best else ""
            name = f"{round(at * every[0].of)} of {every[0].of}"
            figures = _answered_figures(here, [[(v, v.share >= at) for v in votes] for votes in seeds], name)
            table.add([*labels, name + mark], [each.text() for each in figures])
            table.figures += figures
        apart = _answered_figures(here, [held_out(votes) for votes in seeds], "calibrated, held out")
        table.add([*labels, "calibrated on the other half"], [each.text() for each in apart])
        table.figures += apart
    return table if table.rows else None


def _answered_figures(
    here: Sequence[Evaluation], seeds: Sequence[Sequence[tuple[Voted, bool]]], name: str
) -> list[Figure]:
    answered = [[(vote.question_id, float(given), 1.0) for vote, given in votes] for votes in seeds]
    right = [
        [(vote.question_id, float(given and vote.right), float(given)) for vote, given in votes] for votes in seeds
    ]
    return [_parts_figure(here, f"answered, {name}", answered), _parts_figure(here, f"accuracy, {name}", right)]


def _parts_figure(here: Sequence[Evaluation], name: str, seeds: Sequence[list[Part]]) -> Figure:
    """The mean over seeds of a metric that is given by its parts."""
    first = here[0]
    values = [value for value in map(ratio, seeds) if value is not None]
    interval = rate_interval(seeds)
    low, high = interval or (None, None)
    questions = {question for parts in seeds for question, _, _ in parts}
    value = sum(values) / len(values) if values else None
    return Figure(
        policy=first.policy,
        benchmark=first.benchmark,
        schema=first.schema,
        metric=name,
        value=value,
        low=low,
        high=high,
        n=len(questions),
        seeds=len(seeds),
        **identity_fields(here),
    )


def difference(before: Sequence[Evaluation], after: Sequence[Evaluation], metric: str = "equivalent") -> Figure:
    """Mean over seeds of ``after`` minus that of ``before`` on the same questions, with its 95% interval.

    ValueError where the two did not answer the same questions, or one is not finished.
    """
    first, second = (seeds_of(side, METRICS[metric].every) for side in (before, after))
    for side, seeds in ((before, first), (after, second)):
        if not seeds:
            raise ValueError(f"{side[0].policy} on {side[0].benchmark}, {side[0].schema}: {side[0].state}")
    refuse_other_questions(*({row["question_id"] for rows in side for row in rows} for side in (first, second)))
    value: float | None
    interval: Interval | None
    if len(first) == len(second) == 1:
        value, interval = run_difference(first[0], second[0], metric)
    else:
        start, end = (metric_value(seeds, METRICS[metric]) for seeds in (first, second))
        value = None if start is None or end is None else end - start
        parts = [[metric_parts(rows, METRICS[metric]) for rows in seeds] for seeds in (first, second)]
        interval = seeds_difference(parts[0], parts[1])
    low, high = interval or (None, None)
    a, b = before[0], after[0]
    missing = tuple(each.state for each in (*before, *after) if each.state != "finished")
    questions = {row["question_id"] for rows in first for row in rows}
    return Figure(
        policy=f"{b.policy} - {a.policy}",
        benchmark=b.benchmark,
        schema=b.schema,
        metric=metric,
        value=value,
        low=low,
        high=high,
        n=len(questions),
        seeds=min(len(first), len(second)),
        missing=missing,
        **identity_fields([*before, *after]),
    )


def differences_table(evaluations: Sequence[Evaluation], most: int = 15) -> Table:
    """Paired differences in accuracy between any two policies, or, of more than ``most`` pairs, to the first policy."""
    title = "Paired differences in accuracy, percentage points [95% interval]"
    table = Table("differences", title, ["Difference", "benchmark", "schema", "points", "questions"])
    names = policies(evaluations)
    pairs = list(combinations(names, 2))
    pairs = pairs if len(pairs) <= most else [(names[0], name) for name in names[1:]]
    for first, second in pairs:
        for benchmark in benchmarks(evaluations):
            mine = select(evaluations, benchmark=benchmark)
            for size in sizes(mine):
                before, after = select(mine, first, schema=size), select(mine, second, schema=size)
                if before and after:
                    _add_difference(table, before, after)
    return table


def _add_difference(table: Table, before: Sequence[Evaluation], after: Sequence[Evaluation]) -> None:
    label = f"{after[0].policy} - {before[0].policy}"
    where = [benchmark_name(after[0].benchmark), size_name(after[0].schema)]
    metrics = ["equivalent"]
    if all(row["robust"] is not None for each in (*before, *after) for row in each.rows):
        metrics.append("robust")
    try:
        found = [difference(before, after, metric) for metric in metrics]
    except ValueError as error:
        table.add([label, *where], [NOTHING, NOTHING])
        table.notes.append(f"{label}, {', '.join(where)}: {error}.")
        return
    names = different_keys(before[0].identity, after[0].identity)
    if names:
        asked = told([before[0].identity, after[0].identity], names)
        table.notes.append(f"{label}, {', '.join(where)}: not measured alike: {asked}.")
    for each in found:
        name = label if each.metric == "equivalent" else f"{label}, {each.metric}"
        table.add([name, *where], [each.text(), str(each.n)])
        table.figures.append(each)
