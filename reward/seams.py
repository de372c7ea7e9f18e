"""The private names of sqlglot that the join share touches, held against the installed version.

sqlglot has no bound on the work of a parse, and a policy can write a text that takes it minutes; so its parser gets an
end from a subclass (``reward/statement.py``). ``tests/reward/test_seams.py`` names the method that a newer version no
longer has.
"""

# Method of sqlglot's SQLiteParser: its parameters, and what it is used for.
SQLGLOT = {
    "_advance": (("times",), "every step through the tokens, forth and back: they are counted here"),
    "_parse_unary": ((), "what stands behind a plus sign, which sqlglot drops"),
}
