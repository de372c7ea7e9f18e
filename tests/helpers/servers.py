"""Real servers for the tests of sources: Postgres and MariaDB of this machine, each in a folder of its own."""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SECONDS = 60.0


def _binary(name: str) -> str | None:
    """A program on the PATH, else where Debian puts Postgres' own."""
    found = shutil.which(name)
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    return found or (str(places[0]) if places else None)


def _needed(*names: str) -> list[str]:
    found = [_binary(name) for name in names]
    for name, path in zip(names, found, strict=True):
        if path is None:
            pytest.skip(f"there is no {name} here: `make servers` installs what these tests need")
    return [path for path in found if path]


def _as_user(name: str, folder: Path) -> list[str]:
    """What runs a command as another user: neither server runs as root."""
    if os.geteuid() != 0:
        return []
    try:
        owner = pwd.getpwnam(name)
    except KeyError:
        pytest.skip(f"there is no user {name} here, and servers do not run as root")
    os.chown(folder, owner.pw_uid, owner.pw_gid)
    return ["runuser", "-u", name, "--"]


@contextmanager
def _folder() -> Iterator[Path]:
    """A short path, which a socket's name fits into, that another user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="srv", dir="/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def postgres() -> Iterator[str]:
    """The address of an empty database ``shop`` of a new Postgres."""
    initdb, server, createdb = _needed("initdb", "postgres", "createdb")
    with _folder() as folder:
        prefix = _as_user("postgres", folder)
        data = folder / "data"
        run = dict(check=True, capture_output=True, cwd=folder)
        subprocess.run([*prefix, initdb, "-D", data, "-U", "owner", "--auth=trust", "-E", "UTF8", "--no-sync"], **run)
        settings = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={folder}", "-c", "fsync=off"]
        with open(folder / "log", "wb") as log:
            process = subprocess.Popen([*prefix, server, "-D", data, *settings], stdout=log, stderr=log, cwd=folder)
        try:
            _wait(process, lambda: (folder / ".s.PGSQL.5432").exists(), folder / "log")
            _again(lambda: subprocess.run([createdb, "-h", folder, "-U", "owner", "shop"], **run))
            yield f"postgresql://owner@localhost/shop?host={folder}"
        finally:
            _end(process)


@contextmanager
def mariadb() -> Iterator[str]:
    """The address of an empty database ``shop`` of a new MariaDB."""
    install, server, client = _needed("mariadb-install-db", "mariadbd", "mariadb")
    with _folder() as folder:
        prefix = _as_user("mysql", folder)
        data, socket = folder / "data", folder / "s"
        run = dict(check=True, capture_output=True, cwd=folder)
        user = ["--user=mysql"] if prefix else []
        subprocess.run(
            [install, "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal", *user], **run
        )
        command = [server, "--no-defaults", f"--datadir={data}", f"--socket={socket}", "--skip-networking", *user]
        with open(folder / "log", "wb") as log:
            process = subprocess.Popen([*command, f"--pid-file={folder}/pid"], stdout=log, stderr=log, cwd=folder)
        try:
            _wait(process, socket.exists, folder / "log")
            script = "CREATE DATABASE shop; CREATE USER 'owner'@'localhost'; GRANT ALL ON shop.* TO 'owner'@'localhost'"
            _again(lambda: subprocess.run([client, "-u", "root", "-S", socket, "-e", script], **run))
            yield f"mysql://owner@localhost/shop?socket={socket}"
        finally:
            _end(process)


def _wait(process: subprocess.Popen, ready, log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"the server did not start: {log.read_text(errors='replace')[-600:]}")
        time.sleep(0.05)


def _again(action) -> None:
    """A server's socket is there a moment before it answers."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            action()
        except subprocess.CalledProcessError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def _end(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
