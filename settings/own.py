"""The questions of a corpus of one's own, read before anything is prepared or loaded: a mistake costs no wait."""

from collections import Counter

from sqale_grpo.corpus import CorpusError, jsonl
from sqale_grpo.corpus.sources import check_demo_source
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.sections import CorpusConfig
from sqale_grpo.settings.shape import check_corpus_size

OWN = "jsonl"


def own_questions(corpus: CorpusConfig, split: str) -> Counter[str] | None:
    """How many questions each difficulty has, at most ``corpus.limit`` in all: those that preparation will look at.

    None where the corpus is another one or its source is not given. Raises CorpusError for a line that is no question,
    where there is none, and where no question's database is there.
    """
    if corpus.name != OWN or corpus.source is None:
        return None
    path = jsonl.questions_file(corpus.source, split)
    found = list(jsonl.questions(path))[: corpus.limit]
    if not found:
        raise CorpusError(f"{path} holds no question: add some with `sqale-grpo corpus add {corpus.source} FILE`")
    db_ids = {question.db_id for question in found}
    if not jsonl.found_databases(path.parent, db_ids):
        raise CorpusError(
            f"{path.parent} holds no database that {path.name} names, such as {min(db_ids)!r}: put it there as "
            f"{min(db_ids)}.sqlite, or mend 'db_id'"
        )
    return Counter(question.difficulty for question in found)


def check_own_run(config: Config) -> None:
    """ConfigError where a run's own questions cannot fill an update; raises what ``own_questions`` does.

    CorpusError where the loader was forgotten, so that the demo would be made in somebody's folder.
    """
    if config.corpus.name == "demo" and config.corpus.source is not None:
        check_demo_source(config.corpus.source)
    found = own_questions(config.corpus, config.corpus.split)
    if config.evaluate.every:
        own_questions(config.corpus, config.evaluate.split)
    if found is None:
        return
    wanted, place = config.corpus.difficulties, jsonl.questions_file(str(config.corpus.source), config.corpus.split)
    if wanted and not set(wanted) & set(found):
        named = ", ".join(sorted(filter(None, found)))
        raise ConfigError(
            f"no question of {place} has one of corpus.difficulties={wanted}; "
            + (f"there are {named}" if named else "it names none: set corpus.difficulties=[]")
        )
    check_corpus_size(config, sum(found[each] for each in wanted or found), str(place))
