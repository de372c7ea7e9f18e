"""Evaluating a policy that transformers holds in memory, on the questions of a configuration's ``evaluate`` section."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from corpus import PreparedCorpus
from evaluate.harness import choose_questions, evaluate
from train.config import Config
from train.experiment import TOOL_THREADS, episode_settings
from train.rollout.chat import chat_frame
from train.rollout.lockstep import play
from train.rollout.tokens import Sampling


def evaluate_policy(
    model: torch.nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    corpus: PreparedCorpus,
    config: Config,
    on_progress: Callable[[int], None] = lambda done: None,
    questions: Sequence[int] | None = None,
) -> list[dict[str, Any]]:
    """Records of ``config.evaluate.questions`` seeded questions of ``corpus`` (or of the given indices)."""
    section = config.evaluate
    sampling = Sampling(
        section.temperature, section.top_p, section.top_k, section.max_turn_tokens, section.max_episode_tokens
    )
    frame = chat_frame(tokenizer, config.model.enable_thinking)
    settings = episode_settings(config, section.tables, section.query_seconds)
    chosen = choose_questions(corpus, section.questions, config.seed) if questions is None else questions
    with ThreadPoolExecutor(TOOL_THREADS, thread_name_prefix="tools") as pool:
        return evaluate(
            corpus,
            chosen,
            settings,
            config.seed,
            lambda episodes, keys: play(model, frame, episodes, keys, sampling, pool),
            pool,
            on_progress,
        )
