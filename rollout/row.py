"""One episode on its way through a decoder: its tokens, its masks and its budgets, the same for every backend."""

from collections import deque
from concurrent.futures import Executor, Future

from sqale_grpo.env.episode import Episode, Finished
from sqale_grpo.rollout.chat import ChatFrame
from sqale_grpo.rollout.tokens import EpisodeTokens, check_probability
from sqale_grpo.settings.sampling import Sampling


class EpisodeRow:
    """What the policy writes goes in by ``take_sample``; what stands between two turns comes out of ``queue``.

    A driver alternates: while ``writing`` it hands over tokens, then it takes the queued ones (``take_queued``) and,
    with an empty queue, the tools' answer (``resolve``), until the row is ``done``.
    """

    def __init__(self, episode: Episode, frame: ChatFrame, sampling: Sampling) -> None:
        self.episode = episode
        self.tokens = EpisodeTokens(frame.prompt_ids(episode.prompt()))
        self.frame = frame
        self.sampling = sampling
        self.turn: list[int] = []
        self.queue: deque[int] = deque()  # tokens to feed that the policy did not write
        self.pending: Future | None = None  # the turn's tools, running
        self.done = False
        if len(self.tokens) + 1 >= sampling.max_episode_tokens:
            # One long question must not end a run: its episodes end before their first turn, and the record says so.
            episode.stop("token_budget")
            self.tokens.append(frame.stop_id)
            self.done = True

    @property
    def writing(self) -> bool:
        """Whether the next token is the policy's."""
        return not self.done and self.pending is None and not self.queue

    @property
    def room(self) -> int:
        """Tokens that the policy may still write in this turn: the rest of the turn's or of the episode's budget."""
        left = self.sampling.max_episode_tokens - 1 - len(self.tokens)  # 1: the token that ends the episode
        return min(self.sampling.max_turn_tokens - len(self.turn), left)

    def take_sample(self, token: int, logprob: float, pool: Executor) -> int:
        """Record a sampled token; at the turn's end start its tools. Returns the token to feed next.

        Raises NoProbability for a token whose log-probability is no number.
        """
        check_probability(token, logprob, len(self.tokens))
        self.tokens.append(token, logprob, 1)
        self.turn.append(token)
        if token in self.frame.stop_ids or len(self.turn) >= self.sampling.max_turn_tokens:
            self.end_turn(pool)
        elif self.room <= 0:
            self.stop()
        return token

    def end_turn(self, pool: Executor) -> None:
        """Start the turn's tools and queue what stands before their answer."""
        if not self.turn or self.turn[-1] != self.frame.stop_id:
            self.queue.append(self.frame.stop_id)
        self.queue.extend(self.frame.before_user_ids)
        self.pending = pool.submit(self.episode.step, self.frame.decode(self.turn))
        self.turn = []

    def take_queued(self) -> int:
        """The next token of the tool text."""
        token = self.queue.popleft()
        self.tokens.append(token)
        return token

    def resolve(self) -> None:
        """Wait for the turn's tools and queue their text; ends the row where the episode ended or its budget would."""
        assert self.pending is not None
        answer = self.pending.result()
        self.pending = None
        if isinstance(answer, Finished):
            self.drop_frame()
            return
        ids = self.frame.rest_of_user_turn_ids(answer.text)
        # One token for the policy's own next turn and one to end it must fit too.
        if len(self.tokens) + len(ids) + 2 > self.sampling.max_episode_tokens:
            self.drop_frame()
            self.episode.stop("token_budget")
            return
        self.queue.extend(ids)

    def drop_frame(self) -> None:
        """The episode is over: the frame's tokens that were fed ahead are not part of it."""
        ahead = len(self.frame.before_user_ids)
        tokens = self.tokens
        for kept in (tokens.completion_ids, tokens.logprobs, tokens.env_mask):
            del kept[len(kept) - ahead :]
        self.done = True

    def stop(self) -> None:
        """The token budget is used up in the middle of a turn."""
        self.episode.stop("token_budget", self.frame.decode(self.turn))
        self.tokens.append(self.frame.stop_id)
        self.done = True
