"""Errors that a person can put right: one sentence that names the thing, the place and the fix."""

import errno
import os


class UserError(Exception):
    """Base of every error whose message a program prints as it is, instead of a traceback.

    ``exit_status``: what the program ends with: 2 for a mistake in what was asked for, 1 where some of the work failed.
    """

    exit_status = 2


class ConfigError(UserError, ValueError):
    """A configuration that cannot be run; the text names the key, its origin and the fix."""


FIXES = {
    errno.ENOSPC: "free some room there, or choose another disk; what is written stays, and the same command goes on",
    errno.EDQUOT: "your quota there is used up: free some room, or choose another disk",
    errno.EROFS: "choose another place",
    errno.EACCES: "its permissions forbid it: choose another place, or change them",
    errno.EPERM: "choose another place, or another user",
    errno.ENOTDIR: "a part of this path is a file: choose another place",
    errno.EISDIR: "a file is wanted here: name one",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOENT: "look at the path",
    errno.EMFILE: "raise the limit: ulimit -n 4096",
}


def system_sentence(error: OSError) -> str:
    """What the system refused: thing, reason, and the fix where there is a usual one."""
    if error.errno is None or error.strerror is None:
        return str(error) or type(error).__name__
    things = [
        os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes | os.PathLike)
    ]
    reason = error.strerror[:1].lower() + error.strerror[1:]
    fix = FIXES.get(error.errno)
    return ": ".join([*([" -> ".join(things)] if things else []), reason, *([fix] if fix else [])])


def first_line(error: BaseException) -> str:
    """The first line of an error's text that is not blank, else the error's type: libraries explain over many lines."""
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)
