"""Statements that do not end by themselves in reasonable time, or ask for too much; on a table ``n`` with rows."""

ENDLESS = "WITH c(x) AS (VALUES(1) UNION ALL SELECT x+1 FROM c) SELECT count(*) FROM c"
# One call each that looks at no clock and at no interrupt for tens of seconds.
DEAF = (
    "SELECT instr(hex(zeroblob(499000)), hex(zeroblob(249000)) || '1') FROM n",
    "SELECT length(printf('%.*c', 900000000, 'x'))",
    "SELECT length(trim(hex(zeroblob(490000)), printf('%.*c', 80000, 'x') || '0'))",
)
EXPLODING = "WITH t0 AS (SELECT 1 x)" + "".join(
    f", t{i} AS (SELECT * FROM t{i - 1} UNION ALL SELECT * FROM t{i - 1})" for i in range(1, 25)
)
HUNGRY = (
    "WITH c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c LIMIT 9000) "
    "SELECT length(json_group_array(printf('%.*c', 90000, 'a'))) FROM c"
)
BOMBS = (ENDLESS, *DEAF, f"{EXPLODING} SELECT count(*) FROM t24", HUNGRY)
