"""The agent's command line: one question, a file of questions, or a conversation, over one loaded model."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

from sqale_grpo.agent.agent import SURE, AgentQuestion, AgentTurn, SQaLeAgent
from sqale_grpo.agent.answer import open_database, turn_record
from sqale_grpo.agent.backends import AgentError, Generate, transformers_generate, vllm_generate
from sqale_grpo.agent.questions import read_questions
from sqale_grpo.agent.served import APIS, KEY_VARIABLE, URL, ServedGenerate, openai_generate
from sqale_grpo.agent.settings import SETTINGS
from sqale_grpo.agent.show import Printer, to_csv, to_json, use_utf8
from sqale_grpo.env.errors import UserError
from sqale_grpo.env.limits import LARGEST
from sqale_grpo.env.program import run_program
from sqale_grpo.env.prompts import load_prompts
from sqale_grpo.env.text import harmless
from sqale_grpo.rollout.chat import ChatFrame
from sqale_grpo.rollout.served import MESSAGES
from sqale_grpo.settings.sampling import Sampling

CALIBRATION = "calibration.json"  # of `sqale-grpo evaluate` with several candidates
ROWS = 20  # of an answer on a terminal
BACKENDS = ("vllm", "transformers", "openai")
EXAMPLES = """\
examples:
  sqale_agent.py --model MODEL --db shop.sqlite --question "How many orders are late?" --trace
  sqale_agent.py --model MODEL --db shop.sqlite --questions questions.txt --json > answers.jsonl
  sqale_agent.py --model MODEL --db shop.sqlite --question TEXT --candidates 8 --csv > rows.csv
  sqale_agent.py --model MODEL --db shop.sqlite --interactive --backend transformers
  sqale_agent.py --model NAME --db shop.sqlite --question TEXT --backend openai --url http://127.0.0.1:8080/v1
"""


class NoAnswer(UserError):
    """There is nothing to give as rows."""

    exit_status = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer what the command line asks. Raises AgentError."""
    use_utf8()
    try:
        return _run(_parser().parse_args(arguments))
    except ValueError as error:
        raise AgentError(str(error)) from error


def _run(options: argparse.Namespace) -> int:
    for name, holds, text in (
        ("--temperature", 0 <= options.temperature < inf, "0 or more"),
        ("--top-p", 0 < options.top_p <= 1, "above 0 and at most 1"),
        ("--top-k", options.top_k >= 0, "0 or more"),
        ("--max-episode-tokens", options.max_episode_tokens > options.max_turn_tokens, "over --max-turn-tokens"),
        ("--sure", options.sure is None or 0 <= options.sure <= 1, "from 0 to 1: a share of the candidates"),
        ("--seconds", 0 < options.seconds <= LARGEST, f"above 0 and at most {LARGEST}"),
    ):
        if not holds:
            raise AgentError(f"{name} must be {text}")
    if options.candidates > 1 and options.temperature == 0:
        raise AgentError("--candidates at --temperature 0 would repeat one episode: raise the temperature")
    if options.sure is not None and options.candidates == 1:
        raise AgentError("--sure is a share of several candidates: add --candidates 8")
    if options.csv and options.question is None:
        raise AgentError("--csv is the rows of one answer: it goes with --question")
    questions = _questions(options)
    prompts = load_prompts(options.prompts)
    # Every database is opened once before minutes go into loading a model.
    for database in {Path(question.database) for question in questions} | ({options.db} if options.db else set()):
        open_database(database, SETTINGS.query).close()
    sampling = replace(
        SETTINGS.sampling,
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=options.top_k,
        max_turn_tokens=options.max_turn_tokens,
        max_episode_tokens=options.max_episode_tokens,
    )
    generate, frame = _load(options, sampling)
    agent = SQaLeAgent(
        generate,
        frame,
        prompts=prompts,
        episode_limits=replace(SETTINGS.episode, tool_turns=options.tool_turns),
        query_limits=replace(SETTINGS.query, seconds=options.seconds),
        sampling=sampling,
        seed=options.seed,
        rows=options.rows or (SETTINGS.query.rows if options.csv else ROWS),
    )
    printer = Printer(sys.stdout, _colour(options))
    if options.interactive:
        _converse(agent, options, printer)
    elif len(questions) == 1:
        _answer_live(agent, questions[0], options, printer)
    else:
        _answer_all(agent, questions, options, printer)
    if isinstance(generate, ServedGenerate):
        _note(generate.remarks())
    return 0


def _note(lines: Sequence[str]) -> None:
    """What is not the answer: on standard error, where no program reads it for one."""
    for line in lines:
        print(f"note: {harmless(line)}", file=sys.stderr, flush=True)


def _load(options: argparse.Namespace, sampling: Sampling) -> tuple[Generate, ChatFrame | None]:
    if options.backend == "openai":
        generate, frame = openai_generate(
            options.url, options.model, options.api, options.tokenizer, SETTINGS.frame, options.key_variable, sampling
        )
        template = "; earlier reasoning stays only where its chat template keeps it" if generate.api == MESSAGES else ""
        _note([f"the server is asked over {generate.api}{template}"])
        return generate, frame
    if options.backend == "transformers":
        return transformers_generate(options.model)
    return vllm_generate(options.model, max_episode_tokens=options.max_episode_tokens)


def _questions(options: argparse.Namespace) -> list[AgentQuestion]:
    """What is asked, checked; none for a conversation."""
    if options.questions is not None:
        return read_questions(options.questions, options.db, options.evidence)
    if options.db is None:
        raise AgentError("no database: pass --db FILE")
    if options.interactive:
        return []
    if not options.question.strip():
        raise AgentError("the question is empty")
    return [AgentQuestion(options.question, options.db, options.evidence)]


def _answer_live(agent: SQaLeAgent, question: AgentQuestion, options: argparse.Namespace, printer: Printer) -> None:
    """Answer one question; its turns are shown as they end."""

    def show(ended: AgentTurn) -> None:
        printer.turn(ended.number, turn_record(ended.turn), ended.candidate if options.candidates > 1 else None)

    live = options.trace and not (options.json or options.csv)
    if live:
        printer.question(question.text, question.evidence, str(question.database))
    (result,) = agent.run_many([question], show if live else None, options.candidates, _sure(options))
    if options.csv:
        _print_csv(result, options)
    elif options.json:
        print(to_json(result), flush=True)
    else:
        printer.answer(result)


def _print_csv(result: dict[str, Any], options: argparse.Namespace) -> None:
    """The rows alone. Raises NoAnswer where there are none to give."""
    if result["is_sure"] is False:
        agree = f"{result['agreement']:.0%} of {result['candidates']} candidates agree, {result['threshold']:.0%} must"
        raise NoAnswer(f"not sure: {agree}; without --csv the most frequent results are shown")
    if result["sql"] is None or result["error"]:
        raise NoAnswer(f"no answer: {result['error'] or 'the policy gave none'}; --trace instead of --csv shows why")
    text = to_csv(result)
    print(harmless(text) if sys.stdout.isatty() else text, end="", flush=True)
    if result["truncated"]:
        _note([f"these are the first {len(result['rows'])} rows; --rows N gives more"])


def _answer_all(
    agent: SQaLeAgent, questions: list[AgentQuestion], options: argparse.Namespace, printer: Printer
) -> None:
    """Answer questions together, in batches; each batch is shown when its last episode has ended."""
    size = max(1, agent.batch // options.candidates)
    for start in range(0, len(questions), size):
        batch = questions[start : start + size]
        results = agent.run_many(batch, None, options.candidates, _sure(options))
        for question, result in zip(batch, results, strict=True):
            if options.json:
                print(to_json(result), flush=True)
                continue
            printer.question(question.text, question.evidence, str(question.database))
            for number, turn in enumerate(result["trace"] if options.trace else (), 1):
                printer.turn(number, turn)
            printer.answer(result)
            print()


def _converse(agent: SQaLeAgent, options: argparse.Namespace, printer: Printer) -> None:
    """Answer what is typed until an empty line or Ctrl-D."""
    with suppress(ImportError):
        import readline  # noqa: F401 the arrow keys edit the line
    if sys.stdin.isatty():
        print("One question a line; an empty line ends.")
    while True:
        try:
            text = input("> " if sys.stdin.isatty() else "").strip()
        except EOFError:
            return
        if not text:
            return
        _answer_live(agent, AgentQuestion(text, options.db, options.evidence), options, printer)


def _sure(options: argparse.Namespace) -> float:
    """The share of candidates that must agree: what was asked for, else the calibrated one, else half."""
    if options.sure is not None:
        return options.sure
    calibrated = _calibrated(Path(options.model)) if options.candidates > 1 else None
    return next(each for each in (calibrated, SETTINGS.sure, SURE) if each is not None)


def _calibrated(model: Path) -> float | None:
    """The threshold that lies in an export's folder; None where there is none."""
    file = model / CALIBRATION
    try:
        return float(json.loads(file.read_text(encoding="utf-8"))["threshold"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise AgentError(f"{file} holds no calibrated threshold ({error!r}); remove it, or set --sure") from error


def _colour(options: argparse.Namespace) -> bool:
    if options.color == "auto":
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return options.color == "always"


def _parser() -> argparse.ArgumentParser:
    episode, query, sampling = SETTINGS.episode, SETTINGS.query, SETTINGS.sampling
    parser = argparse.ArgumentParser(
        prog="sqale_agent.py",
        description="Answer questions over a SQLite database, which is opened read-only.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--model", required=True, help="the checkpoint: a folder, a Hub name, or a server's name for it"
    )
    parser.add_argument("--db", type=Path, help="SQLite file")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--question", help="what is to be answered")
    what.add_argument(
        "--questions",
        type=Path,
        metavar="FILE",
        help='one question a line, plain or as JSON {"question": ..., "db": ..., "evidence": ...}',
    )
    what.add_argument("--interactive", action="store_true", help="read questions from the terminal")
    parser.add_argument("--evidence", default="", help="hint shown after the question")
    parser.add_argument("--candidates", type=_count, default=1, help="episodes a question, of which most decide (1)")
    calibrated = "half" if SETTINGS.sure is None else f"{SETTINGS.sure:g}, calibrated"
    parser.add_argument(
        "--sure",
        type=float,
        metavar="SHARE",
        help=f"share that must agree, else it is not sure ({calibrated})",
    )
    parser.add_argument("--trace", action="store_true", help="show every turn: reasoning, calls, results")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object a question, with the whole trace")
    form.add_argument("--csv", action="store_true", help="the rows of one question's answer, and nothing else")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="default: on a terminal")
    parser.add_argument("--backend", choices=BACKENDS, default="vllm", help="what runs the model (vllm)")
    server = parser.add_argument_group("a model behind an OpenAI-compatible server (--backend openai)")
    server.add_argument("--url", default=URL, help="its address, with its /v1 (%(default)s)")
    server.add_argument(
        "--key-variable",
        default=KEY_VARIABLE,
        metavar="NAME",
        help="environment variable that holds the key; unset sends none (%(default)s)",
    )
    server.add_argument(
        "--api", choices=APIS, default="auto", help="completions: the raw prompt; chat: messages; default: what works"
    )
    server.add_argument("--tokenizer", metavar="MODEL", help="folder or Hub name of the tokenizer, if it is here")
    parser.add_argument("--prompts", type=Path, metavar="FILE", help="JSON file of prompts other than the trained ones")
    parser.add_argument("--rows", type=_count, help=f"most rows of the answer ({ROWS}; with --csv all)")
    parser.add_argument("--seed", type=int, default=0, help="of the token sampling (0)")
    parser.add_argument("--temperature", type=float, default=sampling.temperature, help="0 is greedy (%(default)s)")
    parser.add_argument("--top-p", type=float, default=sampling.top_p, help="nucleus (%(default)s)")
    parser.add_argument("--top-k", type=int, default=sampling.top_k, help="likeliest tokens; 0: all (%(default)s)")
    for name, value, text in (
        ("--max-turn-tokens", sampling.max_turn_tokens, "tokens of one turn"),
        ("--max-episode-tokens", sampling.max_episode_tokens, "tokens of prompt and all turns"),
        ("--tool-turns", episode.tool_turns, "turns with calls before the final one"),
    ):
        parser.add_argument(name, type=_count, default=value, help=f"{text} (%(default)s)")
    parser.add_argument("--seconds", type=float, default=query.seconds, help="time limit of a query (%(default)s)")
    return parser


def _count(text: str) -> int:
    """A whole number above 0."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


if __name__ == "__main__":
    sys.exit(run_program(main))
