"""The one error of this package: input that a person has to put right."""


class CorpusError(Exception):
    """Bad input. The message names the thing, the place and the fix in one sentence."""
