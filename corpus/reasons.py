"""Why a question is dropped, and why the gold result of a kept one is called unstable."""

NO_PHRASING = "no usable phrasing"
NO_GOLD = "no gold SQL"
IMPOSSIBLE = "impossible question"
DUPLICATE = "duplicate question_id"
NO_DATABASE = "no such database"
BAD_DATABASE = "database cannot be used"
FAILS = "gold does not execute"
UNKNOWN_TABLE = "unknown table"
TIMES_OUT = "gold times out"
TOO_MANY_ROWS = "gold returns too many rows"
NO_TABLE = "gold reads no table"
READS_VIEW = "gold reads a view that no episode has"  # sampler.views says which
READS_SCHEMA = "gold reads the schema"  # its answer depends on which tables the episode holds

RANDOM = "random"  # RANDOM() and its like
CLOCK = "clock"  # CURRENT_DATE, date('now') and their like
LIMIT_TIES = "limit_ties"  # rows that tie, or that no ORDER BY ranks, cut by LIMIT
CONCAT_ORDER = "concat_order"  # group_concat and JSON arrays in the order of the scan
TIE_ORDER = "tie_order"  # the same rows in another sequence, and which of them tie in ORDER BY cannot be known
ROW_ORDER = "row_order"  # anything else that follows the order of the scan, such as a bare column of a group
