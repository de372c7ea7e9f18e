"""Which parts of a statement its result cannot depend on: common table expressions that nobody reads."""

from collections import defaultdict

from sqlglot import exp

from sqale_grpo.env.text import fold_name

Common = exp.Expr  # a common table expression


class Reads:
    """What a statement's SELECTs read of its common table expressions, followed from the statement itself."""

    def __init__(self, tree: exp.Expr) -> None:
        self._defined: dict[int, dict[str, Common]] = {}
        reads: dict[int, list[Common]] = defaultdict(list)  # by where it is written
        if tree.find(exp.CTE):
            for table in tree.find_all(exp.Table):
                common = None if table.db else self._meant(table)
                if common is not None:
                    reads[innermost(table)].append(common)
        self._read, todo = {0}, [0]
        while todo:
            for common in reads[todo.pop()]:
                if id(common) not in self._read:
                    self._read.add(id(common))
                    todo.append(id(common))

    def depends_on(self, node: exp.Expr) -> bool:
        """Whether the result can depend on a SELECT: it is written where something that is read looks."""
        return innermost(node) in self._read

    def _meant(self, table: exp.Expr) -> Common | None:
        """The common table expression that a FROM entry names: the innermost one of its name around it."""
        name, above = fold_name(table.name), table.parent
        while above is not None:
            with_ = above.args.get("with_")
            if with_ is not None:
                if id(with_) not in self._defined:
                    self._defined[id(with_)] = {fold_name(each.alias): each for each in with_.expressions}
                if name in self._defined[id(with_)]:
                    return self._defined[id(with_)][name]
            above = above.parent
        return None


def innermost(node: exp.Expr) -> int:
    """Id of the innermost common table expression that a node is written in; 0 outside of all."""
    above = node.parent
    while above is not None and not isinstance(above, exp.CTE):
        above = above.parent
    return id(above) if above is not None else 0
