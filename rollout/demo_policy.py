"""The demo policy's files: ``demo/policy/`` in the package. Imports no torch.

The policy stands in for a pretrained checkpoint. It lies in the repository, so that every machine begins with the same
weights; ``SHA256SUMS`` beside it says what each file must be, in the layout of the ``sha256sum`` program.
"""

import datetime
import hashlib
from pathlib import Path

from sqale_grpo.env.files import write_whole
from sqale_grpo.settings.check import ConfigError

FOLDER = Path(__file__).resolve().parent.parent / "demo" / "policy"
SUMS, WEIGHTS = "SHA256SUMS", "model.safetensors"
CARD = "README.md"
AGAIN = "install the package again, or build the policy anew: sqale-grpo demo build-policy"


def demo_policy_folder(folder: Path = FOLDER) -> Path:
    """The folder of the demo policy, its files as they were published; ConfigError where one is not."""
    expected: dict[str, str] = {}
    try:
        for line in (folder / SUMS).read_text(encoding="utf-8").splitlines():
            digest, name = line.split()
            expected[name] = digest
    except (OSError, ValueError) as error:
        raise ConfigError(f"the demo policy in {folder} has no readable {SUMS}; {AGAIN}") from error
    if WEIGHTS not in expected:
        raise ConfigError(f"the demo policy's file {folder / SUMS} was cut off; {AGAIN}")
    for name, digest in expected.items():
        path = folder / name
        if not path.is_file():
            raise ConfigError(f"the demo policy's file {path} is missing; {AGAIN}")
        if _digest(path) != digest:
            raise ConfigError(f"the demo policy's file {path} was changed or cut off; {AGAIN}")
    return folder


def write_sums(folder: Path) -> str:
    """Write ``SHA256SUMS`` for all files that a model is loaded from; returns the weights' digest."""
    names = sorted(path.name for path in folder.iterdir() if path.is_file() and path.name not in (SUMS, CARD))
    digests = {name: _digest(folder / name) for name in names}
    text = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
    write_whole(folder / SUMS, text)
    return digests[WEIGHTS]


def write_card(folder: Path, command: str, rates: dict[str, float], questions: int, seconds: float) -> None:
    """Write the card beside the weights: what they are, the command that made them, the digest, the measured rates."""
    digest = _digest(folder / WEIGHTS)
    measured = "\n".join(f"| {name.replace('_', ' ')} | {rate:.1%} |" for name, rate in rates.items())
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    write_whole(
        folder / CARD,
        f"""# The demo's policy

A Qwen3.5 text model of 0.23 million parameters, weights in bfloat16, with a tokenizer of its own. It stands in for a
pretrained checkpoint in `sqale-grpo demo`, for nothing else: it writes tool calls over the generated demo corpus, and
leaves out about half of the look-ups that an answer needs. It was made from the corpus' train split alone, by a
supervised warm start on the traces of a scripted player ([demo](../../docs/demo.md)).

Made on {today} in {seconds:.0f} seconds on one core by

    {command}

`{WEIGHTS}`: sha256 `{digest}`. `{SUMS}` holds the digests of all files, and loading checks them. Another processor sums
in another order, so a build anew gives other weights with about the same rates; the file is one for all machines.

| over {questions} train questions | |
|---|---:|
{measured}

`equivalent` is sampled as in the evaluation (temperature 0.6, top-p 0.95, top-k 20), `equivalent at 1` as in training
(temperature 1).
""",
    )


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
