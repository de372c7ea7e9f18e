"""What an episode is worth: the comparison of results, the tiers, and the official verdicts beside ours."""

from sqale_grpo.reward.ablation import RewardParts, ablated
from sqale_grpo.reward.compare import Comparison, compare
from sqale_grpo.reward.copies import Copies
from sqale_grpo.reward.gold import GoldError
from sqale_grpo.reward.joins import join_share
from sqale_grpo.reward.official import bird_match, bird_verdict, ehrsql_match, ehrsql_verdict
from sqale_grpo.reward.score import Outcome, regardless_of_copies, score_candidate, score_group, with_agreement

__all__ = [
    "Comparison",
    "Copies",
    "GoldError",
    "Outcome",
    "RewardParts",
    "ablated",
    "bird_match",
    "bird_verdict",
    "compare",
    "ehrsql_match",
    "ehrsql_verdict",
    "join_share",
    "regardless_of_copies",
    "score_candidate",
    "score_group",
    "with_agreement",
]
