"""The export's command line: ``sqale-grpo export``, also started beside a run by ``train.push``."""

import argparse
from pathlib import Path

from sqale_grpo.env.files import check_place
from sqale_grpo.env.text import harmless
from sqale_grpo.export.gguf import CONVERTER, TYPES, find_converter, write_gguf
from sqale_grpo.settings.check import ConfigError


def main(arguments: list[str] | None = None) -> int:
    """Export a run, push it where asked. Raises ConfigError."""
    options = _parser().parse_args(arguments)
    try:
        _run(options)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return 0


def _run(options: argparse.Namespace) -> None:
    if options.push is None and (options.dry_run or options.public):
        raise ConfigError("--dry-run and --public belong to --push REPO")
    if options.converter is not None and options.gguf is None:
        raise ConfigError("--converter belongs to --gguf")
    check_place(options.out, "--out", ConfigError)
    # Late, so that --help and a wrong argument come without torch.
    from sqale_grpo.export.folder import export_run, is_export
    from sqale_grpo.export.push import push_folder

    converter = find_converter(options.converter)
    if (options.push is not None or options.gguf is not None) and is_export(options.out, options.run):
        report(f"{options.out} holds an export already: it is taken as it is")
    else:
        export_run(options.run, options.out, report, options.dtype, not options.no_verify)
        report(f"exported to {options.out}; to ask it:")
        ask = f"--model {options.out} --db FILE --question TEXT --backend transformers"
        report(f"python {options.out}/sqale_agent.py {ask}")
    if options.gguf is not None:
        write_gguf(options.out, options.gguf, converter, report)
    if options.push is not None:
        push_folder(options.out, options.push, report, not options.public, options.dry_run, options.message)


def report(text: str) -> None:
    """One line of progress."""
    print(harmless(text), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sqale-grpo export",
        description="Write a trained checkpoint as a folder that transformers and vLLM load, with its agent and card.",
        epilog="example: sqale-grpo export runs/NAME --out exports/NAME --push OWNER/NAME --dry-run",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's folder (its newest checkpoint) or a checkpoint")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    parser.add_argument(
        "--dtype", choices=("bfloat16", "float32"), help="of the trained tensors (default: as in the initial policy)"
    )
    parser.add_argument("--no-verify", action="store_true", help="do not load the export and play an episode")
    parser.add_argument(
        "--gguf",
        nargs="?",
        const="f16",
        choices=TYPES,
        help="also write a GGUF file with llama.cpp's converter (f16), or say how; an --out that is there is taken",
    )
    parser.add_argument("--converter", type=Path, metavar="FILE", help=f"llama.cpp's {CONVERTER} (on the PATH)")
    parser.add_argument(
        "--push", metavar="REPO", help="upload to this Hub repository; an --out that is there is resumed"
    )
    parser.add_argument("--public", action="store_true", help="make a new repository public instead of private")
    parser.add_argument("--dry-run", action="store_true", help="with --push: say what would be uploaded, send nothing")
    parser.add_argument("--message", default="Export of a trained checkpoint", help="of the Hub's commit")
    return parser
