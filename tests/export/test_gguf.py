"""GGUF through a converter: what it is called with, what is said where it is not there or fails."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sqale_grpo.export.gguf import CONVERTER, find_converter, gguf_file, write_gguf
from sqale_grpo.settings.check import ConfigError
from tests.helpers.programs import program

# As llama.cpp's is called: the model's folder, --outfile, --outtype.
PROGRAM = f"""\
#!{sys.executable}
import argparse, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("model", type=pathlib.Path)
parser.add_argument("--outfile", type=pathlib.Path)
parser.add_argument("--outtype", choices=["f16", "q8_0"])
options = parser.parse_args()
options.outfile.write_bytes(b"GGUF" + options.outtype.encode())
if not (options.model / "config.json").exists():
    raise NotImplementedError("Architecture is not supported")
"""


@pytest.fixture
def converter(tmp_path: Path) -> Path:
    path = tmp_path / "bin" / CONVERTER
    path.parent.mkdir()
    path.write_text(PROGRAM)
    path.chmod(0o755)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An export's folder, as far as a converter reads it; its name needs quotes."""
    made = tmp_path / "my export"
    made.mkdir()
    (made / "config.json").write_text("{}")
    return made


def test_the_file_lies_in_the_export_under_its_name_and_format(folder, converter):
    said: list[str] = []
    write_gguf(folder, "q8_0", converter, said.append)
    assert (folder / "my export-q8_0.gguf").read_bytes() == b"GGUFq8_0"
    assert said == [f"GGUF: {folder / 'my export-q8_0.gguf'}, 0.0 MB"]
    write_gguf(folder, "q8_0", converter, said.append)
    assert said[-1].endswith("is there already")


def test_the_printed_command_writes_the_same_file(folder, converter):
    said: list[str] = []
    write_gguf(folder, "f16", None, said.append)
    assert "--converter FILE names it" in said[0] and not gguf_file(folder, "f16").exists()
    words = shlex.split(said[1])
    assert words[:2] == ["python", f"llama.cpp/{CONVERTER}"]
    subprocess.run([sys.executable, str(converter), *words[2:]], check=True)
    assert gguf_file(folder, "f16").read_bytes() == b"GGUFf16"


def test_what_a_converter_refuses_is_shown_and_leaves_nothing(folder, converter):
    (folder / "config.json").unlink()
    with pytest.raises(ConfigError, match="Architecture is not supported; the export itself is whole"):
        write_gguf(folder, "f16", converter, print)
    assert list(folder.iterdir()) == []


def test_the_converter_is_the_named_one_else_that_on_the_path(converter, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_converter(None) is None and find_converter(converter) == converter
    monkeypatch.setenv("PATH", str(converter.parent))
    assert find_converter(None) == converter
    main = program("export")
    assert main(["run", "--out", "x", "--gguf", "--converter", str(tmp_path / "gone.py")]) == 2
    assert "there is no file" in capsys.readouterr().err
    assert main(["run", "--out", "x", "--converter", str(converter)]) == 2
    assert "--converter belongs to --gguf" in capsys.readouterr().err
