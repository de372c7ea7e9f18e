"""The private names of the ``sqale`` library that the SQaLe loader touches, held against the installed version.

The public ``load_questions`` returns a list with every parsed gold result in it: gigabytes for the train split. These
are the parts that it is made of. ``tests/corpus/test_seams.py`` names the one that a newer version no longer has.
"""

# Function of sqale.deserialize: its parameters, and what it is used for.
SQALE = {
    "_iter_rows": (("source", "split"), "the rows of a Hub data set or of local parquet files, one at a time"),
    "_normalise": (("row",), "a row with the types of the published columns, whatever wrote the file"),
    "_parse_questions": (("raw",), "the phrasings of a question by their style"),
}
