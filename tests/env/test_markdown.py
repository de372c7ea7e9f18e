"""Tables in Markdown."""

from sqale_grpo.env.markdown import markdown_table


def test_a_table_has_a_line_per_row_and_figures_stand_to_the_right() -> None:
    assert markdown_table(["name", "n"], [["a", "1"], ["b", "2"]], names=1) == (
        "| name | n |\n| --- | ---: |\n| a | 1 |\n| b | 2 |"
    )
    assert markdown_table(["name", "text"], []) == "| name | text |\n| --- | --- |"


def test_a_cell_ends_neither_itself_nor_its_line() -> None:
    (_, _, line) = markdown_table(["a", "b"], [["x|y\r\nz\u2028", "|"]]).split("\n")
    assert line == "| x\\|y z | \\| |"
