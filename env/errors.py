"""Errors that a person can put right: one sentence that names the thing, the place and the fix."""


class UserError(Exception):
    """Base of every error whose message a program prints as it is, instead of a traceback.

    ``exit_status``: what the program ends with: 2 for a mistake in what was asked for, 1 where some of the work failed.
    """

    exit_status = 2


def first_line(error: BaseException) -> str:
    """The first line of an error's text that is not blank, else the error's type: libraries explain over many lines."""
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)
