"""Question templates over a schema and its values: each is a plain sentence and its SQL."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sqale_grpo.corpus.own import wording
from sqale_grpo.corpus.own.profile import Facts, Profile
from sqale_grpo.env.schema import ForeignKey
from sqale_grpo.env.text import fold_name, quote_name

MOST_GROUPS = 40
_NO_SUM = frozenset(
    re.findall(
        r"\w+",
        "price rate height weight age percent percentage discount ratio temperature score level low high open close "
        "value average kg cm",
    )
)


@dataclass(frozen=True)
class Proposal:
    """A question and its SQL. ``template`` names the kind."""

    template: str
    table: str
    question: str
    sql: str


def proposals(tables: list[Profile]) -> Iterator[Proposal]:
    """All proposals, the kinds one after the other for each table."""
    named = {table.name: table for table in tables}
    for table in tables:
        for template in _ONE:
            yield from template(table)
        for key in table.keys:
            parent = named.get(key.parent)
            if parent is not None and parent is not table and parent.label is not None and len(key.columns) == 1:
                for joined in _TWO:
                    yield from joined(table, parent, key)


def one(table: Profile) -> str:
    """One row: "order item"; of a view, whose name is often a phrase, 'entry of "Sales by Year"'."""
    return f'entry of "{table.name}"' if table.is_view else wording.one(table.title)


def many(table: Profile) -> str:
    """Several rows."""
    return f'entries of "{table.name}"' if table.is_view else wording.many(table.title)


def _adds_up(amount: Facts) -> bool:
    """Whether a sum of it means something."""
    return not set(amount.title.split()) & _NO_SUM


def _text(value: object) -> str:
    return "'" + str(value).replace("'", "''") + "'"


def _at(table: Profile) -> str:
    return _named(table.name)


def _col(column: Facts | str, alias: str = "") -> str:
    return (f"{alias}." if alias else "") + _named(column if isinstance(column, str) else column.name)


def _named(name: str) -> str:
    plain = re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) and fold_name(name) not in _KEYWORDS
    return name if plain else quote_name(name)


_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        "add all alter and as asc between by case check column commit create cross current_date default delete desc "
        "distinct drop else end escape except exists for foreign from full glob group having if in index inner insert "
        "intersect into is isnull join key left like limit match natural no not notnull null of offset on or order "
        "outer plan primary range references right row rows select set table temp then to transaction trigger union "
        "unique update using values view when where window with",
    )
)


def _count(table: Profile) -> Iterator[Proposal]:
    if not table.is_view:
        yield Proposal("count", table.name, f"How many {many(table)} are there?", f"SELECT count(*) FROM {_at(table)}")


def _where(table: Profile) -> Iterator[Proposal]:
    for column in table.of("category"):
        for value in column.values[1:3]:
            condition = f"{_col(column)} = {_text(value)}"
            yield Proposal(
                "count where",
                table.name,
                f"How many {many(table)} have the {column.title} '{value}'?",
                f"SELECT count(*) FROM {_at(table)} WHERE {condition}",
            )
            if table.label is not None:
                yield Proposal(
                    "list where",
                    table.name,
                    f"List the {table.label.title} of each {one(table)} whose {column.title} is '{value}'.",
                    f"SELECT {_col(table.label)} FROM {_at(table)} WHERE {condition}",
                )


def _distinct(table: Profile) -> Iterator[Proposal]:
    for column in table.of("category"):
        known = f" WHERE {_col(column)} IS NOT NULL" if column.missing else ""
        yield Proposal(
            "distinct",
            table.name,
            f"Which different values does the {column.title} of the {many(table)} take?",
            f"SELECT DISTINCT {_col(column)} FROM {_at(table)}{known}",
        )


def _groups(table: Profile) -> Iterator[Proposal]:
    for column in table.of("category"):
        if column.distinct > MOST_GROUPS or column.missing:
            continue
        name = _col(column)
        yield Proposal(
            "group count",
            table.name,
            f"How many {many(table)} are there for each {column.title}? Give it and the count.",
            f"SELECT {name}, count(*) FROM {_at(table)} GROUP BY {name}",
        )
        yield Proposal(
            "most common",
            table.name,
            f"Which {column.title} is the most common among the {many(table)}?",
            f"SELECT {name} FROM {_at(table)} GROUP BY {name} ORDER BY count(*) DESC LIMIT 1",
        )
        for amount in table.of("amount")[:2]:
            yield Proposal(
                "group average",
                table.name,
                f"What is the average {amount.title} of the {many(table)} for each {column.title}? "
                f"Give the {column.title} and the average.",
                f"SELECT {name}, avg({_col(amount)}) FROM {_at(table)} GROUP BY {name}",
            )


def _amounts(table: Profile) -> Iterator[Proposal]:
    for amount in table.of("amount"):
        name = _col(amount)
        for function, word in (("avg", "average"), ("max", "highest"), ("min", "lowest")):
            yield Proposal(
                word,
                table.name,
                f"What is the {word} {amount.title} of all {many(table)}?",
                f"SELECT {function}({name}) FROM {_at(table)}",
            )
        if table.label is not None:
            for order, word in (("DESC", "highest"), ("ASC", "lowest")):
                known = f" WHERE {name} IS NOT NULL" if amount.missing and order == "ASC" else ""
                yield Proposal(
                    f"{word} one",
                    table.name,
                    f"What is the {table.label.title} of the {one(table)} with the {word} {amount.title}?",
                    f"SELECT {_col(table.label)} FROM {_at(table)}{known} ORDER BY {name} {order} LIMIT 1",
                )
            numbers = sorted(value for value in amount.values if isinstance(value, int | float))
            bound = numbers[len(numbers) * 4 // 5]
            yield Proposal(
                "above",
                table.name,
                f"List the {table.label.title} of each {one(table)} with a {amount.title} above {bound}.",
                f"SELECT {_col(table.label)} FROM {_at(table)} WHERE {name} > {bound}",
            )


def _dates(table: Profile) -> Iterator[Proposal]:
    for date in table.of("date"):
        name = _col(date)
        years = sorted({str(value)[:4] for value in date.values})
        middle = years[len(years) // 2]
        if len(years) > 1:
            yield Proposal(
                "in year",
                table.name,
                f"How many {many(table)} have a {date.title} in {middle}?",
                f"SELECT count(*) FROM {_at(table)} WHERE strftime('%Y', {name}) = '{middle}'",
            )
            known = f" WHERE {name} IS NOT NULL" if date.missing else ""
            yield Proposal(
                "by year",
                table.name,
                f"How many {many(table)} are there for each year of their {date.title}? Give both.",
                f"SELECT strftime('%Y', {name}), count(*) FROM {_at(table)}{known} GROUP BY 1",
            )
        if table.label is not None:
            yield Proposal(
                "latest",
                table.name,
                f"What is the {table.label.title} of the {one(table)} with the latest {date.title}?",
                f"SELECT {_col(table.label)} FROM {_at(table)} ORDER BY {name} DESC LIMIT 1",
            )


def _link(child: Profile, parent: Profile, key: ForeignKey) -> tuple[str, str]:
    """(FROM clause with aliases c and p, the parent in words)."""
    mine, theirs = key.columns[0], key.parent_columns[0]
    on = f"{_col(mine, 'c')} = {_col(theirs, 'p')}"
    return f"{_at(child)} c JOIN {_at(parent)} p ON {on}", _role_of(child, key, parent)


def _role_of(child: Profile, key: ForeignKey, parent: Profile) -> str:
    """The parent as this key means it: billing_customer_id is the "billing customer"."""
    title = next((column.title for column in child.columns if column.name == key.columns[0]), "")
    said = re.sub(r"\s*(id|key|code|no|fk)$", "", title).strip()
    return said if said and said.split()[-1] == one(parent).split()[-1] else one(parent)


def _joined(child: Profile, parent: Profile, key: ForeignKey) -> Iterator[Proposal]:
    source, called = _link(child, parent, key)
    label = parent.label
    assert label is not None
    name = _col(label, "p")
    for value in label.values[1:3]:
        where = f"{name} = {_text(value)}"
        yield Proposal(
            "count of parent",
            child.name,
            f"How many {many(child)} belong to the {called} '{value}'?",
            f"SELECT count(*) FROM {source} WHERE {where}",
        )
        if child.label is not None and not child.is_view:
            yield Proposal(
                "list of parent",
                child.name,
                f"List the {child.label.title} of each {one(child)} that belongs to the {called} '{value}'.",
                f"SELECT {_col(child.label, 'c')} FROM {source} WHERE {where}",
            )
        for amount in [each for each in child.of("amount") if _adds_up(each)][:1]:
            yield Proposal(
                "total of parent",
                child.name,
                f"What is the total {amount.title} of the {many(child)} of the {called} '{value}'?",
                f"SELECT sum({_col(amount, 'c')}) FROM {source} WHERE {where}",
            )
    if child.label is not None and child.label.values:
        value = child.label.values[len(child.label.values) // 2]
        asked = called if called.endswith(label.title) else f"{label.title} of the {called}"
        yield Proposal(
            "parent of",
            child.name,
            f"What is the {asked} of the {one(child)} '{value}'?",
            f"SELECT {name} FROM {source} WHERE {_col(child.label, 'c')} = {_text(value)}",
        )


def _most(child: Profile, parent: Profile, key: ForeignKey) -> Iterator[Proposal]:
    source, called = _link(child, parent, key)
    label = parent.label
    assert label is not None
    mine, theirs = key.columns[0], key.parent_columns[0]
    yield Proposal(
        "most children",
        child.name,
        f"Which {called} has the most {many(child)}? Give its {label.title}.",
        f"SELECT {_col(label, 'p')} FROM {source} GROUP BY {_col(theirs, 'p')} ORDER BY count(*) DESC LIMIT 1",
    )
    if sum(other.parent == key.parent for other in child.keys) == 1:  # else it is open which key is meant
        yield Proposal(
            "no children",
            parent.name,
            f"Which {many(parent)} have no {many(child)}? Give their {label.title}.",
            f"SELECT {_col(label, 'p')} FROM {_at(parent)} p WHERE NOT EXISTS "
            f"(SELECT 1 FROM {_at(child)} c WHERE {_col(mine, 'c')} = {_col(theirs, 'p')})",
        )
    for category in parent.of("category")[:2]:
        name = _col(category, "p")
        if not category.missing:
            yield Proposal(
                "group by parent",
                child.name,
                f"How many {many(child)} are there for each {category.title} of their {called}? "
                f"Give the {category.title} and the count.",
                f"SELECT {name}, count(*) FROM {source} GROUP BY {name}",
            )


_ONE: tuple[Callable[[Profile], Iterator[Proposal]], ...] = (_count, _where, _distinct, _groups, _amounts, _dates)
_TWO: tuple[Callable[[Profile, Profile, ForeignKey], Iterator[Proposal]], ...] = (_joined, _most)
