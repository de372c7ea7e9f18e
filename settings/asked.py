"""Which questions an evaluation asks: of a seed, the same for every model and on every machine."""

from collections.abc import Sequence

from sqale_grpo.corpus import PreparedCorpus
from sqale_grpo.env.chance import key_int
from sqale_grpo.settings.check import ConfigError


def choose_questions(corpus: PreparedCorpus, count: int, seed: int, difficulties: Sequence[str] = ()) -> list[int]:
    """Numbers, rising, of ``count`` questions drawn without repetition; the same seed gives the same for every model.

    Those come first whose key of seed and ``question_id`` is lowest: a question that is missing on one machine changes
    one of them. A corpus with fewer gives all. ``difficulties``: draw from these bands alone; ConfigError where none
    is.
    """
    able = range(len(corpus)) if not difficulties else _of_bands(corpus, difficulties)
    names = corpus.column("question_id")
    drawn = sorted(able, key=lambda index: (key_int("evaluation questions", seed, names[index]), index))
    return sorted(drawn[:count])


def _of_bands(corpus: PreparedCorpus, difficulties: Sequence[str]) -> list[int]:
    bands = corpus.column("difficulty")
    able = [index for index, band in enumerate(bands) if band in difficulties]
    if not able:
        known = ", ".join(sorted(set(bands) - {""})) or "none"
        raise ConfigError(
            f"corpus.difficulties={list(difficulties)} leaves no question of {corpus.directory}; its bands are {known}"
        )
    return able
