"""An export as one GGUF file, for llama.cpp, Ollama and LM Studio: through llama.cpp's own converter."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from sqale_grpo.settings.check import ConfigError

CONVERTER = "convert_hf_to_gguf.py"
TYPES = ("f32", "f16", "bf16", "q8_0", "auto")  # what the converter can write


def find_converter(named: Path | None) -> Path | None:
    """The converter that is named, else the one on the PATH; None where there is none. ConfigError for a wrong name."""
    if named is not None:
        if not named.is_file():
            raise ConfigError(f"there is no file {named}; --converter takes the path of llama.cpp's {CONVERTER}")
        return named
    found = shutil.which(CONVERTER)
    return Path(found) if found else None


def gguf_file(folder: Path, kind: str) -> Path:
    """Where the file of an export lies."""
    return folder / f"{folder.resolve().name}-{kind}.gguf"


def write_gguf(folder: Path, kind: str, converter: Path | None, report: Callable[[str], None]) -> None:
    """Convert the export in ``folder``; without a converter say what to run. ConfigError where the converter fails."""
    file = gguf_file(folder, kind)
    if converter is None:
        report(
            f"no GGUF file yet: {CONVERTER} of llama.cpp is not on the PATH (--converter FILE names it). To write it:"
        )
        report(shlex.join(["python", f"llama.cpp/{CONVERTER}", *_arguments(folder, file, kind)]))
        return
    if file.exists():
        report(f"{file} is there already")
        return
    partial = file.with_suffix(".gguf.partial")
    # One that is a program has an environment of its own, with what it needs.
    program = [str(converter.resolve())] if os.access(converter, os.X_OK) else [sys.executable, str(converter)]
    command = [*program, *_arguments(folder, partial, kind)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode or not partial.is_file():
        partial.unlink(missing_ok=True)
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        raise ConfigError(
            f"{converter} did not convert {folder}: {said}; the export itself is whole. To see all that it says: "
            f"{shlex.join([*program, *_arguments(folder, file, kind)])}"
        )
    partial.rename(file)
    report(f"GGUF: {file}, {file.stat().st_size / 1e6:,.1f} MB")


def _arguments(folder: Path, file: Path, kind: str) -> list[str]:
    return [str(folder), "--outfile", str(file), "--outtype", kind]
