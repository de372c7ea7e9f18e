"""The seal of a checkpoint: every way in which a file can be damaged is told by its name."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sqale_grpo.rollout.policy_path import resolve_policy
from sqale_grpo.settings.run_folder import CONFIG, check_whole, latest_checkpoint
from sqale_grpo.settings.seal import COMPLETE, MANIFEST, DamagedCheckpoint, check_seal, is_whole, seal


def sealed(run: Path, number: int) -> Path:
    """A checkpoint of a few files, one of them in a folder, as a trainer leaves them."""
    path = run / f"checkpoint-{number}"
    (path / "global_step1").mkdir(parents=True)
    for name in ("model.safetensors", "optimizer.pt", "config.json", "global_step1/states.pt"):
        (path / name).write_bytes(os.urandom(5_000) if not name.endswith(".json") else b"{}")
        (path / name).chmod(0o600)
    (run / CONFIG).write_text("name: run\n")
    seal(path)
    return path


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[2_500] ^= 1
    path.write_bytes(bytes(data))


def test_a_checkpoint_that_nobody_touched_is_whole(tmp_path: Path) -> None:
    path = sealed(tmp_path, 3)
    assert (path / COMPLETE).exists()
    assert set(json.loads((path / MANIFEST).read_text())["files"]) == {
        *("config.json", "global_step1/states.pt", "model.safetensors", "optimizer.pt")
    }
    check_seal(path, needed=True)
    check_whole(path)


def test_others_may_read_what_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        path = sealed(tmp_path, 3)
    finally:
        os.umask(before)
    assert {(file.stat().st_mode & 0o777) for file in path.rglob("*") if file.is_file()} == {0o640}


@pytest.mark.parametrize(
    ("name", "damage", "says"),
    [
        ("optimizer.pt", Path.unlink, "optimizer.pt is missing"),
        ("global_step1/states.pt", cut, r"global_step1/states.pt has 100 bytes instead of 5,000"),
        ("model.safetensors", flip, "model.safetensors holds other bytes than were written"),
        (MANIFEST, Path.unlink, "holds no manifest.json"),
        (MANIFEST, cut, "its manifest.json cannot be read"),
        (MANIFEST, lambda path: path.write_text("[1]"), "its manifest.json cannot be read"),
        (MANIFEST, lambda path: path.write_text('{"files": {"a": 1}}'), "its manifest.json cannot be read"),
    ],
)
def test_a_damaged_one_is_named_and_the_one_before_offered(
    tmp_path: Path, name: str, damage: Callable[[Path], None], says: str
) -> None:
    sealed(tmp_path, 10)
    sealed(tmp_path, 20)
    newest = sealed(tmp_path, 30)
    damage(newest / name)
    with pytest.raises(DamagedCheckpoint, match=f"checkpoint-30 (is damaged: )?{says}") as error:
        check_whole(newest)
    assert f"checkpoint-20 before it is whole: remove {newest}, and --resume goes on" in str(error.value)
    assert "\n" not in str(error.value)
    flip(tmp_path / "checkpoint-20" / "optimizer.pt")
    with pytest.raises(DamagedCheckpoint, match="checkpoint-10 before it is whole"):
        check_whole(newest)
    cut(tmp_path / "checkpoint-10" / "optimizer.pt")
    with pytest.raises(DamagedCheckpoint, match="no other checkpoint of the run is whole"):
        check_whole(newest)


def test_a_policy_is_not_read_from_damaged_weights(tmp_path: Path) -> None:
    path = sealed(tmp_path, 30)
    assert resolve_policy(tmp_path) == resolve_policy(path) == path
    other = sealed(tmp_path / "other", 30)
    flip(other / "model.safetensors")
    for asked in (other, other.parent):
        with pytest.raises(DamagedCheckpoint, match="model.safetensors holds other bytes"):
            resolve_policy(asked)
    # What a policy does not need may be gone: the optimizer's state is two thirds of a checkpoint.
    (path / "optimizer.pt").unlink()
    (path / "reference.safetensors").write_bytes(b"of no use for it")
    assert resolve_policy(tmp_path) == path


def test_a_checkpoint_whose_mark_alone_is_missing_is_whole(tmp_path: Path) -> None:
    """A kill between list and mark, or a copy that leaves empty files out: nothing of it is missing."""
    older, newest = sealed(tmp_path, 10), sealed(tmp_path, 20)
    (newest / COMPLETE).unlink()
    assert is_whole(newest) and latest_checkpoint(tmp_path) == newest
    assert resolve_policy(tmp_path) == resolve_policy(newest) == newest
    cut(newest / "optimizer.pt")
    assert not is_whole(newest) and latest_checkpoint(tmp_path) == older


def test_the_digest_of_weights_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sealed(tmp_path, 30)
    asked: list[str] = []
    monkeypatch.setattr("sqale_grpo.settings.seal.check_seal", lambda folder, patterns: asked.append(folder.name))
    for _ in range(3):
        resolve_policy(path)
    assert asked == ["checkpoint-30"]
