"""Only what a run draws is executed and built, and its batches are those of the whole corpus."""

from pathlib import Path

import pytest

from sqale_grpo.corpus import PreparedCorpus, open_prepared, prepare
from sqale_grpo.corpus.question import CorpusError
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.corpora import check_run_prepared, open_corpus, prepare_drawn, prepared_folder
from sqale_grpo.settings.draws import RunDraws, draw_plan
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.load import load_config
from sqale_grpo.train.start_checks import eligible_questions, input_digests
from tests.helpers.corpora import GOOD, database, json_lines
from tests.helpers.programs import program

pytestmark = pytest.mark.full

main = program("corpus")
DATABASES = 40
FILES = ("index.parquet", "measured.parquet", "databases.parquet", "dropped.jsonl")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four hundred questions of many lengths; every fifth gold query fails, every seventh is unstable."""
    folder = tmp_path_factory.mktemp("drawn")
    for number in range(DATABASES - 1):  # the last one is missing
        database(folder / f"databases/db{number}.sqlite")
    records = []
    for number in range(400):
        sql = GOOD + " OR id = 1" * (number % 17)
        sql = f"{sql} ORDER BY broken" if number % 5 == 3 else f"{sql} LIMIT 1" if number % 7 == 2 else sql
        records.append({"question_id": f"q{number}", "db_id": f"db{number * 7 % DATABASES}", "sql": sql})
        records[-1] |= {"question": f"{number}?", "difficulty": ("simple", "hard")[number % 2]}
    records[30]["question_id"] = "q29"
    json_lines(folder / "questions.jsonl", records)
    return folder


def configured(source: Path, out: Path, *more: str) -> Config:
    given = [f"corpus.source={source}", f"corpus.prepared={out}", "corpus.name=jsonl", "corpus.difficulties=[]"]
    small = ["train.updates=5", "train.questions_per_update=4", "curriculum.warmup_updates=2"]
    return load_config([], [*given, *small, "curriculum.ramp_updates=1", "env.workers=2", *more])


@pytest.fixture(scope="module")
def complete(source: Path, tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    return prepare("jsonl", source, tmp_path_factory.mktemp("whole") / "out", progress=False, workers=2)


def batches(config: Config, corpus: PreparedCorpus) -> list[list[tuple[str, str]]]:
    """(question id, bucket) of every draw of the run, by update."""
    draws = RunDraws(config, corpus, eligible_questions(config, corpus))
    ids = corpus.column("question_id")
    return [[(ids[n], draws.bucket_name(n)) for n in draws.batch(t)] for t in range(config.train.updates)]


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("corpus.difficulties=[hard]", "seed=7"),
        ("corpus.include_unstable=true", "curriculum.strength=0"),
        ("train.updates=60",),  # the longest bucket holds fewer than the run draws: they come again
    ],
    ids=["plain", "one band", "unstable ones", "round and round"],
)
def test_the_batches_are_those_of_the_whole_corpus(
    source: Path, complete: PreparedCorpus, tmp_path: Path, more: tuple[str, ...]
) -> None:
    config = configured(source, tmp_path, *more)
    drawn = prepare_drawn(config, workers=2)
    assert batches(config, drawn) == batches(config, complete)
    ours, theirs = drawn.measured(), complete.measured()
    assert (ours.lengths, ours.difficulties) == (theirs.lengths, theirs.difficulties)
    executed = len(drawn) + sum(drawn.summary["dropped"].values())
    assert executed + drawn.summary["not_drawn"] == drawn.summary["read"] == 400
    if not more:
        played = {question_id for batch in batches(config, drawn) for question_id, _ in batch}
        assert len(played) == 20 == len(drawn.stable_indices()), "no more than the draws and what they replace"
        assert played <= set(drawn.column("question_id"))
        used = {database["db_id"] for database in drawn.databases()}
        assert used < {database["db_id"] for database in complete.databases()}
        built = len(list((drawn.directory / "databases").iterdir()))
        assert len(used) <= built < DATABASES - 1


@pytest.mark.long
@pytest.mark.full
def test_a_preparation_that_is_stopped_ends_in_the_same_folder(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqale_grpo.corpus.staging import Staging

    config = configured(source, tmp_path)
    undisturbed = prepare_drawn(config, out=tmp_path / "one")
    keep, kept = Staging.keep, []

    def stopping(self: Staging, db_id: str, result: object) -> None:
        if len(kept) == 6:
            raise KeyboardInterrupt
        kept.append(db_id)
        keep(self, db_id, result)

    monkeypatch.setattr(Staging, "keep", stopping)
    with pytest.raises(KeyboardInterrupt):
        prepare_drawn(config, out=tmp_path / "two")
    monkeypatch.undo()
    resumed = prepare_drawn(config, out=tmp_path / "two")
    for name in FILES:
        assert (undisturbed.directory / name).read_bytes() == (resumed.directory / name).read_bytes(), name


def test_counter_databases_are_chosen_for_what_is_drawn(source: Path, tmp_path: Path) -> None:
    more = ("reward.counter_databases=1", "corpus.max_luck=0.9", "train.updates=1", "corpus.limit=40")
    config = configured(source, tmp_path, *more)
    complete = prepare("jsonl", source, tmp_path / "whole", progress=False, workers=2, counter_databases=1, limit=40)
    drawn = prepare_drawn(config, workers=2)
    assert batches(config, drawn) == batches(config, complete)
    seeds = dict(zip(complete.column("question_id"), complete.column("copies"), strict=True))
    assert all(
        seeds[each] == copies for each, copies in zip(*map(drawn.column, ("question_id", "copies")), strict=True)
    )
    assert any(drawn.column("copies")) and len(drawn) < len(complete)


def test_the_command_prepares_where_the_run_looks(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configured(source, tmp_path)
    given = [f"corpus.source={source}", f"corpus.prepared={tmp_path}", "corpus.name=jsonl", "corpus.difficulties=[]"]
    given += ["train.updates=5", "train.questions_per_update=4", "curriculum.warmup_updates=2"]
    given += ["curriculum.ramp_updates=1", "env.workers=2"]
    assert "-drawn-" not in prepared_folder(config, "train").name
    assert main(["prepare", "--workers", "2", "--for", "configs/recipe.yaml", *given]) == 0
    said = capsys.readouterr()
    assert "questions that the run draws are ready in" in said.out and "are not executed" in said.out
    assert "not drawn by the run, so not executed" in said.err
    recipe = load_config([Path("configs/recipe.yaml")], given)
    folder = prepared_folder(recipe, "train")
    assert "-drawn-" in folder.name and folder.name in said.out
    check_run_prepared(recipe)
    assert open_corpus(recipe, "train").plan == draw_plan(recipe).key()
    assert main(["prepare", "--for", "configs/recipe.yaml", "--split", "train"]) == 2
    assert "--for takes --split from the configuration" in capsys.readouterr().err
    assert main(["prepare", "--corpus", "jsonl"]) == 2
    assert "prepare needs --out, or --for CONFIG..." in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.full
def test_a_run_that_is_extended_prepares_the_rest_and_meets_the_same_inputs(source: Path, tmp_path: Path) -> None:
    short = configured(source, tmp_path)
    drawn = prepare_drawn(short)
    longer = configured(source, tmp_path, "train.updates=9")
    more = open_corpus(longer, "train")
    assert more.directory != drawn.directory and len(more) > len(drawn)
    assert input_digests(longer, more) == input_digests(short, drawn)
    assert batches(longer, more)[:5] == batches(short, drawn)
    other = configured(source, tmp_path, "seed=1")
    assert input_digests(other, prepare_drawn(other)) != input_digests(short, drawn)


def test_another_run_without_its_source_is_told_the_command(source: Path, tmp_path: Path) -> None:
    config = configured(source, tmp_path)
    config.corpus.source = None
    drawn = prepare_drawn(config, source)
    assert open_corpus(config, "train").directory == drawn.directory
    config.train.updates = 9
    with pytest.raises(ConfigError, match=r"what another run draws .* `sqale-grpo corpus prepare --source PATH --for"):
        open_corpus(config, "train")


def test_a_folder_without_its_lengths_is_prepared_anew(source: Path, tmp_path: Path) -> None:
    corpus = prepare("jsonl", source, tmp_path / "out", progress=False, workers=1, limit=2)
    (corpus.directory / "measured.parquet").unlink()
    with pytest.raises(CorpusError, match=r"measured\.parquet is damaged: delete .* and prepare again"):
        open_prepared(corpus.directory).measured()
