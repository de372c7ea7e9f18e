"""Backend openai: retries, refusals and keys against a server that misbehaves on demand, over real connections."""

import json
import time
from collections.abc import Iterator
from email.utils import formatdate
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from rich.console import Console

from sqale_grpo.corpus import PreparedCorpus
from sqale_grpo.evaluate.open_backend import without_end
from sqale_grpo.evaluate.records import read_records
from sqale_grpo.evaluate.runner import EvaluationError, run_evaluation
from sqale_grpo.evaluate.server import check_server, client_of, open_server
from sqale_grpo.rollout.http import HttpClient, RequestRefused, ServerError, backoff, retry_after
from sqale_grpo.rollout.served import SMALLEST_TURN
from sqale_grpo.rollout.served_play import EMPTY, turn_text
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.evaluation import ServerConfig, load_evaluation
from tests.conftest import ROOT
from tests.helpers.faulty_server import CHAT_ANSWER, faulty_server, url
from tests.helpers.programs import program

KEY = "sk-test-123456"


@pytest.fixture
def faulty() -> Iterator[ThreadingHTTPServer]:
    with faulty_server() as server:
        yield server


def client(server: ThreadingHTTPServer, waits: list[float], **values: object) -> HttpClient:
    return client_of(ServerConfig(url=url(server), **values), waits.append)


def test_what_may_pass_is_tried_again_at_growing_distances(faulty):
    faulty.faults = [(500, "broken", {}), (429, "slow down", {"Retry-After": "7"}), "cut", (503, "starting", {})]
    waits: list[float] = []
    assert client(faulty, waits).post("/chat/completions", {"a": 1}, "x") == CHAT_ANSWER
    assert [body for _, body, _ in faulty.seen] == [{"a": 1}] * 5
    assert waits == [backoff(0, "x"), 7.0, backoff(2, "x"), backoff(3, "x")]
    assert all(0.25 * 2**n <= backoff(n, "x") <= 0.75 * 2**n for n in range(6)) and backoff(30, "x") <= 90
    assert backoff(1, "x") != backoff(1, "y"), "requests do not come back all at once"


def test_a_date_in_retry_after_is_understood():
    assert 50 < retry_after(formatdate(time.time() + 60, usegmt=True)) <= 60
    nowhere = formatdate(time.time() + 60).replace("+0000", "-0000")
    assert 50 < retry_after(nowhere) <= 60
    assert retry_after("nonsense") is None and retry_after(None) is None and retry_after("-3") == 0.0


def test_a_timeout_is_tried_again_and_then_told(faulty):
    faulty.faults = ["slow"]
    waits: list[float] = []
    assert client(faulty, waits, timeout_seconds=0.3).post("/chat/completions", {}, "x") == CHAT_ANSWER
    faulty.faults = ["slow", "slow"]
    with pytest.raises(ServerError, match="no answer in 2 tries; the last: no answer within 0.3 s"):
        client(faulty, waits, timeout_seconds=0.3, retries=1).post("/chat/completions", {}, "x")


def test_a_refusal_is_not_tried_again(faulty):
    faulty.faults = [(400, "the context holds 4096 tokens", {})]
    waits: list[float] = []
    with pytest.raises(RequestRefused, match="refuses the request \\(400\\): the context holds 4096 tokens"):
        client(faulty, waits).post("/chat/completions", {}, "x")
    assert not waits and len(faulty.seen) == 1


def test_the_key_is_sent_and_never_shown(faulty, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    faulty.faults = [(401, f"Incorrect API key provided: {KEY}", {})]
    mine = client(faulty, [], key_variable="MY_KEY")
    with pytest.raises(ConfigError, match="refuses the key in the environment variable MY_KEY") as error:
        mine.post("/chat/completions", {}, "x")
    assert faulty.seen[0][2] == f"Bearer {KEY}" and KEY not in str(error.value)
    faulty.faults = [(400, f"bad request of {KEY}", {})]
    with pytest.raises(RequestRefused) as refused:
        mine.post("/chat/completions", {}, "x")
    assert KEY not in str(refused.value) and "***" in str(refused.value)
    monkeypatch.delenv("MY_KEY")
    faulty.faults = [(401, "no", {})]
    with pytest.raises(ConfigError, match="refuses a request without a key; set the environment variable MY_KEY"):
        client(faulty, [], key_variable="MY_KEY").post("/chat/completions", {}, "x")


@pytest.mark.parametrize("key", ["sk-one\ntwo", "sk-schlüssel"])
def test_a_key_that_no_request_can_carry_is_one_sentence_without_it(key, monkeypatch):
    monkeypatch.setenv("MY_KEY", key)
    with pytest.raises(ConfigError, match="MY_KEY holds a line break or another character") as error:
        client_of(ServerConfig(key_variable="MY_KEY"))
    assert "sk-" not in str(error.value)


def test_no_part_of_the_key_is_left_where_a_long_message_is_cut(faulty, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    faulty.faults = [(400, "x" * (300 - len(KEY) + 3) + KEY, {})]
    with pytest.raises(RequestRefused) as refused:
        client(faulty, [], key_variable="MY_KEY").post("/chat/completions", {}, "x")
    assert KEY[:5] not in str(refused.value)


@pytest.mark.parametrize("address", ["http://127.0.0.1:abc/v1", "http://[::1/v1"])
def test_an_address_that_is_none_is_one_sentence(address):
    with pytest.raises(ConfigError, match="server.url is no address"):
        client_of(ServerConfig(url=address))


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"choices": {}}, "without choices"),
        ({"choices": ["x"]}, "a choice that is no object"),
        ({"choices": [{"message": "x"}]}, "a message or a usage"),
        ({"choices": [{"message": {"content": [{"type": "text", "text": "x"}]}}]}, "a text that is none"),
        ({"choices": [{"text": 3}]}, "a text that is none"),
        ({"choices": [{"text": "x", "token_ids": [1, -1]}]}, "token ids that are none"),
        ({"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": "50"}}, "a usage that is no number"),
    ],
)
def test_an_answer_in_another_shape_fails_its_question_alone(faulty, tmp_path, answer, problem):
    backend = open_server(config(url(faulty), tmp_path))
    faulty.faults = [answer]
    with pytest.raises(RequestRefused, match=problem):
        backend.server.ask("/chat/completions", {}, 5, "x")
    backend.close()


def config(address: str, prepared: Path, *more: str):
    given = ["backend=openai", "model=tiny", f"server.url={address}", f"corpus.prepared={prepared}", "questions=6"]
    prompts = f"env.prompts={ROOT / 'configs' / 'prompts' / 'demo.json'}"
    return load_evaluation([ROOT / "configs" / "eval" / "demo.yaml"], [*given, prompts, "name=x", *more])


def test_parameters_that_a_server_does_not_take_are_left_out_and_said(faulty, tmp_path):
    faulty.faults = [
        (400, "Unrecognized request argument supplied: top_k, chat_template_kwargs", {}),
        (400, "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead.", {}),
        (400, "Unsupported value: 'temperature' does not support 0.6 with this model.", {}),
    ]
    backend = open_server(config(url(faulty), tmp_path))
    assert backend.facts["api"] == "chat"
    assert backend.facts["not_sent"] == ["chat_template_kwargs", "temperature", "top_k"]
    sent = faulty.seen[-1][1]
    assert sent["max_completion_tokens"] == 1 and sent["top_p"] == 0.95 and sent["model"] == "tiny"
    backend.close()


def test_an_unknown_model_and_no_server_are_one_sentence(faulty, tmp_path):
    faulty.faults = [(404, "The model `tiny2` does not exist.", {})]
    with pytest.raises(ConfigError, match="has no model 'tiny'; it has tiny: set model="):
        open_server(config(url(faulty), tmp_path))
    with pytest.raises(ConfigError, match="no server answers at http://127.0.0.1:9/v1 .*; start it, or set server.url"):
        open_server(config("http://127.0.0.1:9/v1", tmp_path))
    with pytest.raises(ConfigError, match="needs the model's tokenizer; set server.tokenizer"):
        open_server(config(url(faulty), tmp_path, "server.api=completions"))


@pytest.mark.long
def test_a_failed_question_is_recorded_and_played_at_the_next_start(
    faulty, demo_split: PreparedCorpus, prepared_folder: Path, tmp_path: Path
):
    asked = config(url(faulty), prepared_folder, "server.retries=0", "server.concurrency=1")
    faulty.faults = [None, (500, "out of memory", {})]  # the probe, then the first question
    folder = tmp_path / "x"
    with pytest.raises(EvaluationError, match="1 of the questions could not be played, .* status 500: out of memory"):
        run_evaluation(asked, folder, Console(quiet=True))
    assert len(json.loads((folder / "failed.json").read_text())) == 1 and len(read_records(folder)) == 5
    assert not (folder / "summary.json").exists(), "nothing is averaged without it"
    run_evaluation(asked, folder, Console(quiet=True))
    summary = json.loads((folder / "summary.json").read_text())
    assert not (folder / "failed.json").exists() and len(read_records(folder)) == 6
    assert (summary["api"], summary["n"]) == ("chat", 6)
    assert (summary["written_tokens"], summary["processed_tokens"], summary["prompt_tokens"]) == (12, 62, 50)


def test_an_outage_ends_the_evaluation_instead_of_failing_every_question(
    faulty, demo_split: PreparedCorpus, prepared_folder: Path, tmp_path: Path
):
    asked = config(url(faulty), prepared_folder, "server.retries=0", "batch=2")
    faulty.faults = [None] + [(503, "down", {})] * 20
    with pytest.raises(EvaluationError, match="2 of the questions could not be played"):
        run_evaluation(asked, tmp_path / "x", Console(quiet=True))


def test_thinking_that_comes_apart_is_put_back():
    assert turn_text({"content": "x", "reasoning_content": " a "}) == "<think>\na\n</think>\n\nx"
    assert turn_text({"content": "<think>a</think>x"}) == "<think>a</think>x" and turn_text({"content": None}) == ""


# Servers that differ from ours in what they take and give, each as public reports have it.
CALLS = ('{"tool": "run_query", "args": {"sql": "SELECT 1"}}', '{"tool": "submit_sql", "args": {"sql": "SELECT 1"}}')
FULL = (
    "This model's maximum context length is 2048 tokens. However, you requested 3071 tokens (1023 in the messages, "
    "2048 in the completion). Please reduce the length of the messages or completion."
)


def said(message: dict, finish: str = "stop") -> tuple[int, dict]:
    usage = {"prompt_tokens": 50, "completion_tokens": 30}
    return 200, {"choices": [{"finish_reason": finish, "message": {"role": "assistant", **message}}], "usage": usage}


def refused(words: str) -> tuple[int, dict]:
    return 400, {"error": {"message": words, "type": "invalid_request_error"}}


def turns(body: dict) -> list[str]:
    return [message["content"] for message in body["messages"] if message["role"] == "assistant"]


def call(body: dict) -> str:
    return CALLS[min(len(turns(body)), 1)]


def played(server: ThreadingHTTPServer, prepared: Path, folder: Path, answer, *more: str) -> tuple[list[dict], str]:
    """Records of two questions that were played over chat, and what was printed."""
    server.answer = answer
    console = Console(width=400, record=True, quiet=False, file=(folder.parent / "printed").open("w"))
    given = ("server.api=chat", "server.retries=1", "server.concurrency=1", "questions=2", "batch=2", *more)
    run_evaluation(config(url(server), prepared, *given), folder, console)
    return read_records(folder), console.export_text()


def test_a_turn_without_text_is_sent_as_a_placeholder(faulty, demo_split, prepared_folder: Path, tmp_path: Path):
    def answer(body):
        if not all(text.strip() for text in turns(body)):
            return refused("messages.2: all messages must have non-empty content")
        return said({"content": "" if not turns(body) else call(body)})

    rows, _ = played(faulty, prepared_folder, tmp_path / "x", answer)
    assert [[turn["completion"] for turn in row["turns"]] for row in rows] == [["", CALLS[1]]] * 2
    assert [row["turns"][0]["calls"][0]["error"] for row in rows] == ["no_call"] * 2
    assert turns(faulty.seen[-1][1]) == [EMPTY]


def test_a_shorter_context_ends_the_episode_with_its_last_working_query(
    faulty, demo_split, prepared_folder: Path, tmp_path: Path
):
    asked: list[int] = []

    def answer(body):
        if turns(body):
            asked.append(body["max_tokens"])
            return refused(FULL)
        return said({"content": call(body)})

    rows, printed = played(faulty, prepared_folder, tmp_path / "x", answer, "sampling.max_turn_tokens=512")
    assert [(row["ended_by"], row["sql"]) for row in rows] == [("token_budget", "SELECT 1")] * 2
    assert asked == [512, 256, 128, SMALLEST_TURN] * 2, "fewer tokens are asked for before the episode is given up"
    assert "2 episodes ended as token_budget because the server's context was full" in printed


def test_where_fewer_tokens_fit_the_episode_goes_on(faulty, demo_split, prepared_folder: Path, tmp_path: Path):
    def answer(body):
        return refused(FULL) if body["max_tokens"] > 100 else said({"content": call(body)})

    rows, printed = played(faulty, prepared_folder, tmp_path / "x", answer, "sampling.max_turn_tokens=400")
    assert [row["ended_by"] for row in rows] == ["submit_sql"] * 2 and "context was full" not in printed


def test_a_context_that_the_server_lists_is_said_and_part_of_the_identity(
    faulty, demo_split, prepared_folder: Path, tmp_path: Path
):
    faulty.listed = {"max_model_len": 1_000}
    budget = "sampling.max_episode_tokens=4096"
    _, printed = played(faulty, prepared_folder, tmp_path / "x", lambda body: said({"content": call(body)}), budget)
    assert "the server holds 1,000 tokens, an episode has 4,096 (sampling.max_episode_tokens)" in printed
    assert json.loads((tmp_path / "x" / "identity.json").read_text())["context_tokens"] == 1_000


def test_an_answer_that_comes_as_thinking_alone_is_read(faulty, demo_split, prepared_folder: Path, tmp_path: Path):
    def answer(body):
        return said({"reasoning": call(body), "content": None})

    rows, printed = played(faulty, prepared_folder, tmp_path / "x", answer)
    assert [[each["tool"] for turn in row["turns"] for each in turn["calls"]] for row in rows] == [
        ["run_query", "submit_sql"]
    ] * 2
    assert "4 of 4 answers came as thinking alone" in printed


def test_thinking_that_was_cut_off_is_no_swallowed_answer(faulty, demo_split, prepared_folder: Path, tmp_path: Path):
    def answer(body):
        return said({"content": call(body)}) if turns(body) else said({"reasoning": "Let me", "content": ""}, "length")

    _, printed = played(faulty, prepared_folder, tmp_path / "x", answer)
    assert "thinking alone" not in printed


def test_of_two_parameters_that_exclude_each_other_the_temperature_stays(
    faulty, demo_split, prepared_folder: Path, tmp_path: Path
):
    def answer(body):
        if "temperature" in body and "top_p" in body:
            return refused("`temperature` and `top_p` cannot both be specified for this model. Please use only one.")
        return said({"content": call(body)})

    _, printed = played(faulty, prepared_folder, tmp_path / "x", answer, "sampling.temperature=0.6")
    last = faulty.seen[-1][1]
    assert last["temperature"] == 0.6 and "top_p" not in last
    assert "the server does not take top_p: its own values stand" in printed


def test_an_error_inside_an_answer_of_200_is_tried_again(faulty):
    waits: list[float] = []
    faulty.faults = [{"error": {"message": "Provider returned error", "code": 429}}]
    assert client(faulty, waits).post("/chat/completions", {}, "x") == CHAT_ANSWER and len(waits) == 1
    faulty.faults = [{"error": {"message": "Provider returned error", "code": 429}}] * 2
    with pytest.raises(ServerError, match="status 429: Provider returned error"):
        client(faulty, waits, retries=1).post("/chat/completions", {}, "x")


def test_a_server_that_takes_no_system_message_is_one_sentence(faulty, tmp_path):
    def answer(body):
        has_one = any(message["role"] == "system" for message in body["messages"])
        return refused("System role not supported") if has_one else said({"content": call(body)})

    faulty.answer = answer
    with pytest.raises(ConfigError, match="takes no system message, with which every episode begins"):
        open_server(config(url(faulty), tmp_path, "server.api=chat"))


def test_an_address_without_v1_is_told_what_it_lacks(faulty, tmp_path):
    faulty.answer = lambda body: (404, {"detail": "Not Found"})
    address = url(faulty).removesuffix("/v1")
    with pytest.raises(ConfigError, match="such addresses end in /v1: see server.url"):
        open_server(config(address, tmp_path))


def test_this_machine_is_asked_past_a_proxy(faulty, monkeypatch):
    """Port 9 answers nobody; a proxy of a kind that is not installed is none for this machine either."""
    for proxy in ("http://127.0.0.1:9", "socks5://127.0.0.1:9"):
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy)
        assert client(faulty, []).post("/chat/completions", {}, "x") == CHAT_ANSWER


def test_a_proxy_in_the_way_is_named_without_its_password(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://me:secret@127.0.0.1:9")
    with pytest.raises(ConfigError, match="through the proxy http://127.0.0.1:9 .*NO_PROXY") as error:
        client_of(ServerConfig(url="http://models.invalid/v1")).models()
    assert "secret" not in str(error.value)
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "nonsense://127.0.0.1:9")
    with pytest.raises(ConfigError, match="proxy of this environment cannot be used .*NO_PROXY=models.invalid"):
        client_of(ServerConfig(url="http://models.invalid/v1"))


def test_what_is_wrong_with_a_server_is_told_before_any_question_is_read(tmp_path: Path, capsys):
    given = [str(ROOT / "configs" / "eval" / "demo.yaml"), f"corpus.prepared={tmp_path}", f"output={tmp_path / 'out'}"]
    assert program("evaluate")([*given, "backend=openai", "model=x", "server.url=http://127.0.0.1:9/v1"]) == 2
    assert "no server answers at http://127.0.0.1:9/v1" in capsys.readouterr().err
    assert not (tmp_path / "out").exists(), "nothing was prepared or begun"
    with pytest.raises(ConfigError, match="no server answers"):
        check_server(config("http://127.0.0.1:9/v1", tmp_path))


@pytest.mark.parametrize(
    ("gold", "kept"),
    [
        ("SELECT a FROM t; -- all of them", "SELECT a FROM t"),
        ("SELECT a FROM t /* all */ ;\n-- done\n", "SELECT a FROM t"),
        ("SELECT a FROM t;;", "SELECT a FROM t"),
        ("SELECT ';' FROM t -- it's", "SELECT ';' FROM t"),
        ("SELECT a FROM t /* open", "SELECT a FROM t"),
        ("VALUES (1), (2)", "VALUES (1), (2)"),
    ],
)
def test_what_stands_behind_a_statement_goes_into_no_bracket(gold, kept):
    assert without_end(gold) == kept
