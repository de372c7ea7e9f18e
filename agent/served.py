"""What writes the policy's turns behind an OpenAI-compatible server: vLLM, llama.cpp, Ollama, a hosted model.

The code is that of the evaluation's backend (``rollout.served``). It needs the standard library alone, unless the
model's tokenizer is to be loaded here.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from sqale_grpo.agent.backends import AgentError, need
from sqale_grpo.agent.settings import SETTINGS
from sqale_grpo.env.episode import Episode
from sqale_grpo.env.errors import first_line
from sqale_grpo.rollout.chat import ChatFrame, chat_frame
from sqale_grpo.rollout.concurrent import in_threads
from sqale_grpo.rollout.http import HttpClient
from sqale_grpo.rollout.served import Server, SettingNames
from sqale_grpo.rollout.served_play import Usage
from sqale_grpo.rollout.text_frame import TextFrame
from sqale_grpo.rollout.tokens import EpisodeTokens
from sqale_grpo.settings.sampling import Sampling

URL, KEY_VARIABLE = "http://127.0.0.1:8000/v1", "OPENAI_API_KEY"
APIS = ("auto", "completions", "chat")
CONNECTIONS = 8  # episodes that a server is asked for at once
SECONDS, RETRIES = 600.0, 3  # to wait for a turn, and tries after the first: some 4 s, for somebody waits
NAMES = SettingNames("--url", "--api ", "--model ", "--tokenizer", "--max-episode-tokens")
AGAIN = "see whether the server is up, then ask again"
LONGER = "llama.cpp: -c, vLLM: --max-model-len, Ollama: num_ctx"


class ServedGenerate:
    """Plays episodes with a server, each in a thread of its own: what ``openai_generate`` returns."""

    def __init__(self, server: Server) -> None:
        self.server = server

    @property
    def api(self) -> str:
        """How the server is asked: completions with token ids, completions with text, or chat."""
        return self.server.api

    def remarks(self) -> list[str]:
        """What a reader of the answers must know of how they came about."""
        return self.server.remarks()

    def __call__(
        self, episodes: Sequence[Episode], keys: Sequence[int], sampling: Sampling, pool: ThreadPoolExecutor
    ) -> list[EpisodeTokens]:
        """Play all episodes; their token ids where they are known here. Raises AgentError for too short a context."""
        self.server.sampling = sampling  # an agent has one for all of its questions
        played = in_threads(
            lambda each: self.server.play(*each, pool), list(zip(episodes, keys, strict=True)), CONNECTIONS
        )
        if self.server.full and any(not episode.turns for episode in episodes):
            raise AgentError(
                f"the context of {self.server.client.url} is too short for an episode's first turn; start the server "
                f"with a longer one ({LONGER})"
            )
        return [EpisodeTokens([]) if isinstance(each, Usage) else each for each in played]


def openai_generate(
    url: str,
    model: str,
    api: str = "auto",
    tokenizer: str | Path | None = None,
    frame: TextFrame | None = SETTINGS.frame,
    key_variable: str = KEY_VARIABLE,
    sampling: Sampling = SETTINGS.sampling,
    enable_thinking: bool = SETTINGS.enable_thinking,
) -> tuple[ServedGenerate, ChatFrame | None]:
    """The server at ``url`` (with its /v1) and its ``model``: what ``SQaLeAgent`` takes.

    ``api``: completions (the raw prompt), chat, or auto, the first that works. The raw prompt needs the model's
    ``tokenizer`` (folder or Hub name, with transformers) or its ``frame``, which an export has. The key is read from
    the environment variable ``key_variable``; unset, none is sent. Raises AgentError or another UserError where no
    server answers, the key is refused, or the model cannot be asked.
    """
    client = HttpClient(url, SECONDS, RETRIES, key_variable, setting=NAMES.url, again=AGAIN)
    chosen: ChatFrame | TextFrame | None = frame
    if tokenizer is not None and api != "chat":
        chosen = _chat_frame(tokenizer, enable_thinking)
    server = Server(client, model, sampling, chosen, api, enable_thinking, NAMES)
    return ServedGenerate(server), chosen if isinstance(chosen, ChatFrame) else None


def _chat_frame(tokenizer: str | Path, enable_thinking: bool) -> ChatFrame:
    need("transformers")
    with suppress(ImportError):
        from transformers.utils import logging

        logging.set_verbosity_error()  # e.g. that there is no torch
    from transformers import AutoTokenizer

    try:
        return chat_frame(AutoTokenizer.from_pretrained(tokenizer), enable_thinking)
    except Exception as error:  # a file that is damaged makes its parser raise whatever it likes
        raise AgentError(f"the tokenizer {tokenizer} cannot be loaded: {first_line(error)}") from error
