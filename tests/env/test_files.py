"""Files: whole after a kill, a full disk and two writers; folders held by one process; lines read after a cut."""

import errno
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sqale_grpo.env.errors import UserError
from sqale_grpo.env.files import (
    LOCK,
    check_place,
    hold_folder,
    open_to_others,
    partial_path,
    read_json_lines,
    whole_file,
    whole_folder,
    write_whole,
)
from tests.conftest import ROOT

WAIT = 60.0  # seconds after which another process is taken for stuck


class Taken(UserError):
    """A program's own error."""


@contextmanager
def process(*lines: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Python program of these lines, once it has printed its first one; killed at the end."""
    program = "\n".join(["from sqale_grpo.env.files import *", "import os, sys, time", *lines])
    started = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert started.stdout is not None and started.stdin is not None
    try:
        assert started.stdout.readline() == b"ready\n"
        yield started
    finally:
        started.kill()
        started.wait()
        started.stdin.close()
        started.stdout.close()


@pytest.mark.parametrize("data", ["Größe 名前\n", b"\x00\xff", ""])
def test_a_file_is_written_whole(tmp_path: Path, data: str | bytes) -> None:
    path = tmp_path / "a.json"
    path.write_text("before")
    write_whole(path, data)
    assert path.read_bytes() == (data.encode() if isinstance(data, str) else data)
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    ("umask", "mode", "wanted"), [(0o022, 0o666, 0o644), (0o077, 0o666, 0o600), (0o002, 0o777, 0o775)]
)
def test_its_permissions_are_the_umasks(tmp_path: Path, umask: int, mode: int, wanted: int) -> None:
    before = os.umask(umask)
    try:
        write_whole(tmp_path / "a", "x", mode)
        partial_path(tmp_path / "a").touch(0o600)  # what a killed process left with others
        write_whole(tmp_path / "a", "x", mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == wanted


def test_an_error_in_the_middle_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_whole(path, "before")
    with pytest.raises(KeyboardInterrupt), whole_file(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert path.read_text() == "before" and [each.name for each in tmp_path.iterdir()] == ["a"]


def test_a_kill_in_the_middle_leaves_what_was_there_and_the_next_write_cleans_up(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_whole(path, "before")
    with process(
        f"with whole_file({str(path)!r}) as file:",
        "    file.write(b'half' * 10_000); file.flush(); print('ready', flush=True); time.sleep(600)",
    ) as other:
        assert partial_path(path).stat().st_size == 40_000
        other.kill()
        other.wait()
    assert path.read_text() == "before"
    write_whole(path, "after")
    assert path.read_text() == "after" and [each.name for each in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("size", [2_000_000, 5_000])  # the buffer's end: an error at the flush, and at the write
def test_a_full_disk_leaves_nothing_half_and_names_the_file(tmp_path: Path, size: int) -> None:
    path = tmp_path / "a"
    write_whole(path, "before")
    with process(
        "import resource, signal, pathlib",
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)",
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, 4_096))",
        "print('ready', flush=True)",
        "try:",
        f"    write_whole({str(path)!r}, 'x' * {size})",
        "except OSError as error:",
        "    print(error.errno, error.filename, flush=True)",
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline().decode() == f"{errno.EFBIG} {path}\n"
    assert path.read_text() == "before" and [each.name for each in tmp_path.iterdir()] == ["a"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as error:
        write_whole(tmp_path / "nowhere" / "a", "x")
    assert error.value.filename == str(tmp_path / "nowhere" / "a")


def test_two_writers_of_one_path_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with process(
        f"with whole_file({str(path)!r}) as file:",
        "    file.write(b'first' * 1_000); file.flush(); print('ready', flush=True); sys.stdin.readline()",
        "print('done', flush=True); sys.stdin.readline()",
    ) as other:
        assert other.stdin is not None and other.stdout is not None
        thread = threading.Thread(target=write_whole, args=(path, "second"), daemon=True)
        thread.start()
        assert not path.exists(), "neither is whole yet"
        other.stdin.write(b"\n")
        other.stdin.flush()
        assert other.stdout.readline() == b"done\n"
        thread.join(WAIT)
        assert not thread.is_alive() and path.read_text() == "second"
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_many_writers_never_show_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    texts = {letter * 50_000 for letter in "abcd"}
    write_whole(path, "a" * 50_000)
    threads = [threading.Thread(target=lambda t=t: [write_whole(path, t) for _ in range(20)]) for t in texts]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert path.read_text() in texts
    for thread in threads:
        thread.join()
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_a_folder_gets_its_name_when_it_is_whole(tmp_path: Path) -> None:
    out = tmp_path / "in" / "out"
    stale = partial_path(out)
    stale.mkdir(parents=True)
    (stale / "left by a kill").touch()
    with whole_folder(out) as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "a").write_text("x")
        assert not out.exists()
    assert [path.relative_to(out).as_posix() for path in sorted(out.rglob("*"))] == ["sub", "sub/a"]
    for error in (ValueError, KeyboardInterrupt):  # Ctrl-C in an export leaves no half one
        with pytest.raises(error), whole_folder(tmp_path / "other") as folder:
            (folder / "a").touch()
            raise error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def holding(folder: Path) -> tuple[str, ...]:
    return (f"held = hold_folder({str(folder)!r})", "print('ready', flush=True)", "sys.stdin.readline()")


def test_one_process_holds_a_folder_and_the_other_is_told_who_does(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with process(*holding(folder)) as other:
        with pytest.raises(Taken) as error:
            hold_folder(folder, error=Taken, instead="set another name=...")
        said = str(error.value)
        assert said.startswith(f"another process ({other.pid} on ") and "\n" not in said
        assert said.endswith(f") holds {folder}; wait for it or end it, or set another name=...")
        other.kill()
        other.wait()
        with hold_folder(folder):  # a kill gives it back
            assert (folder / LOCK).read_text().startswith(f"{os.getpid()} on ")
    hold_folder(folder).close()


def test_who_waits_gets_the_folder_when_the_other_is_done(tmp_path: Path) -> None:
    got = threading.Event()

    def wait() -> None:
        with hold_folder(tmp_path, wait=True):
            got.set()

    with process(*holding(tmp_path)) as other:
        assert other.stdin is not None
        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        assert not got.wait(0.3)
        other.stdin.write(b"\n")
        other.stdin.flush()
        assert got.wait(WAIT)
        thread.join(WAIT)


def test_a_forked_child_does_not_keep_what_its_dead_parent_held(tmp_path: Path) -> None:
    with process(
        f"held = hold_folder({str(tmp_path)!r})",
        "if not os.fork():",
        "    print('ready', flush=True); os.read(0, 1); os._exit(0)",  # it has let go before it runs on
        "time.sleep(600)",
    ) as other:
        with pytest.raises(UserError, match="another process"):
            hold_folder(tmp_path)
        other.kill()
        other.wait()
        hold_folder(tmp_path).close()


def test_a_full_disk_does_not_keep_a_folder_from_being_held(tmp_path: Path) -> None:
    with (
        process(
            "import resource, signal",
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)",
            "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))",
            f"held = hold_folder({str(tmp_path)!r})",
            "print('ready', flush=True); time.sleep(600)",
        ),
        pytest.raises(UserError, match=rf"another process holds {tmp_path}; wait for it or end it$"),
    ):
        hold_folder(tmp_path)


def test_lines_are_read_after_a_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    assert read_json_lines(path) == ([], [])
    path.write_bytes(b'{"a": 1, "b\xe2\x80\xa8c": 2}\n\n{"a": 2, "los\n[1]\n\x00\x00\n{"a": 3}\n{"a": 4}')
    found, damaged = read_json_lines(path)
    assert [line["a"] for line in found] == [1, 3, 4] and damaged == [3, 4, 5]
    assert read_json_lines(path, lambda line: line["a"] != 3)[1] == [3, 4, 5, 6]
    path.write_bytes(b'{"a": 1}\n{"a": "\xe2\x80')
    assert read_json_lines(path) == ([{"a": 1}], [2])


def test_a_file_of_its_owner_alone_is_opened_to_others(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.touch(0o600)
    before = os.umask(0o027)
    try:
        open_to_others(path)
    finally:
        assert os.umask(before) == 0o027
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("inside", ["", "new", "new/deeper"])
def test_a_place_that_can_be_written_is_left_as_it_was(tmp_path: Path, inside: str) -> None:
    check_place(tmp_path / inside, "output=")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_can_be_written_is_a_place(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text")
    check_place(page, "--page", folder=False)
    assert page.read_text() == "text"
    with pytest.raises(UserError, match="a part of this path is a file"):
        check_place(page, "output=")
    (tmp_path / "link").symlink_to(tmp_path / "gone" / "page.md")
    with pytest.raises(UserError, match="no such file or directory"):
        check_place(tmp_path / "link", "--page", folder=False)
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize(
    ("inside", "reason"),
    [
        ("file/run", "not a directory: a part of this path is a file: choose another place"),
        ("n" * 300 + "/run", "file name too long: choose a shorter name"),
    ],
)
def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path, inside: str, reason: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError) as error:
        check_place(tmp_path / inside, "output=")
    assert str(error.value) == f"output= cannot be written: {tmp_path / inside}: {reason}"


def test_a_place_in_a_file_system_that_takes_nothing() -> None:
    with pytest.raises(UserError, match="^--page cannot be written: /proc/x/page.md: .*: look at the path$"):
        check_place("/proc/x/page.md", "--page", folder=False)
