"""A policy small enough for vLLM on a CPU that has learned a few questions by heart: it calls tools and submits.

Its layers have the shapes that vLLM's CPU build takes, which those of the demo policy have not.
"""

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from transformers import AutoTokenizer

from sqale_grpo.env.episode import Episode, EpisodeLimits
from sqale_grpo.env.prompts import load_prompts
from sqale_grpo.env.sandbox import Sandbox
from sqale_grpo.rollout.chat import ChatFrame, chat_frame
from sqale_grpo.rollout.policy import load_policy
from sqale_grpo.rollout.requests import Completion, play_requests
from sqale_grpo.rollout.tokens import EpisodeTokens
from sqale_grpo.settings.keys import ModelConfig
from sqale_grpo.settings.sampling import Sampling
from tests.conftest import ROOT
from tests.helpers.checkpoints import tiny_text_only

PROMPTS = ROOT / "configs" / "prompts" / "demo.json"
QUESTIONS = {
    "How many shops?": "SELECT count(*) FROM shops",
    "Which cities?": "SELECT DISTINCT city FROM shops",
    "How many sales?": "SELECT count(*) FROM sales",
}


def shop_database(path: Path) -> None:
    """Two joined tables."""
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "CREATE TABLE shops (id INTEGER PRIMARY KEY, city TEXT);"
            "CREATE TABLE sales (id INTEGER PRIMARY KEY, shop_id INTEGER REFERENCES shops(id), amount REAL);"
            "INSERT INTO shops VALUES (1, 'oslo'), (2, 'rome'), (3, 'oslo');"
            "INSERT INTO sales VALUES (1, 1, 2.5), (2, 1, 4.0), (3, 2, 1.0);"
        )
    connection.close()


def turns(sql: str) -> list[str]:
    """What is learned by heart: run the query, then submit it."""
    calls = [{"tool": "run_query", "args": {"sql": sql}}, {"tool": "submit_sql", "args": {"sql": sql}}]
    return [f"</think>\n{json.dumps(call)}" for call in calls]


class ByHeart:
    """An engine that writes the taught turns."""

    def __init__(self, frame: ChatFrame, sql: str) -> None:
        self.frame, self.left, self.waiting = frame, turns(sql), []

    def submit(self, request: int, token_ids: list[int], max_tokens: int) -> None:
        self.waiting.append(request)

    def collect(self) -> list[Completion]:
        ids = [*self.frame.tokenizer(self.left.pop(0))["input_ids"], self.frame.stop_id]
        return [Completion(self.waiting.pop(), ids, [0.0] * len(ids))]


def episodes(database: Path, count: int, sandbox: Sandbox) -> list[Episode]:
    """``count`` episodes, the questions in turn."""
    names = list(QUESTIONS)
    prompts = load_prompts(PROMPTS)
    return [Episode(names[i % len(names)], sandbox, EpisodeLimits(), prompts=prompts) for i in range(count)]


def taught_policy(folder: Path, database: Path, until: float = 0.05, steps: int = 400) -> Path:
    """``folder`` with a checkpoint whose loss on the taught turns (a token, in nats) is under ``until``."""
    tiny_text_only(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    frame = chat_frame(tokenizer)
    with Sandbox(database) as sandbox, ThreadPoolExecutor(1) as pool:
        traces = [
            play_requests(ByHeart(frame, sql), frame, [episode], [0], Sampling(), pool)[0]
            for episode, sql in zip(episodes(database, len(QUESTIONS), sandbox), QUESTIONS.values(), strict=True)
        ]
    torch.manual_seed(0)
    model = load_policy(ModelConfig(weights_dtype="float32"), folder).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.0)
    for _ in range(steps):
        losses = [_loss(model, trace) for trace in traces]
        loss = torch.stack(losses).mean()
        if loss.item() < until:
            break
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    assert loss.item() < until, f"the loss is {loss.item():.3f} after {steps} steps"
    model.to(torch.bfloat16).save_pretrained(folder)
    return folder


def _loss(model: torch.nn.Module, trace: EpisodeTokens) -> torch.Tensor:
    logprobs = logprobs_of(model, trace)
    return -logprobs[torch.tensor(trace.env_mask) > 0].mean()


def logprobs_of(model: torch.nn.Module, tokens: EpisodeTokens) -> torch.Tensor:
    """Log-probabilities (completion tokens,) of a plain forward pass."""
    ids = torch.tensor([tokens.prompt_ids + tokens.completion_ids])
    logits = model(input_ids=ids).logits[0, len(tokens.prompt_ids) - 1 : -1].float()
    return torch.log_softmax(logits, -1).gather(-1, ids[0, len(tokens.prompt_ids) :, None])[:, 0]


def apart(model: torch.nn.Module, played: list[EpisodeTokens]) -> float:
    """Mean absolute difference between the sampler's log-probabilities and ``model``'s, a written token, in nats."""
    with torch.no_grad():
        rows = [(logprobs_of(model, t) - torch.tensor(t.logprobs))[torch.tensor(t.env_mask) > 0] for t in played]
    return torch.cat(rows).abs().mean().item()
