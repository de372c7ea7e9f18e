"""Pushing an export to the Hub: says what it would do, sends what is not there yet, can be repeated after a break."""

from collections.abc import Callable
from pathlib import Path

from sqale_grpo.env.errors import first_line
from sqale_grpo.settings.check import ConfigError


def push_folder(
    folder: Path,
    repo: str,
    report: Callable[[str], None],
    private: bool = True,
    dry_run: bool = False,
    message: str = "Export of a trained checkpoint",
) -> str:
    """Upload ``folder`` to the model repository ``repo`` (OWNER/NAME), made where there is none; returns its address.

    A repository that is there keeps its visibility. After a break the same call goes on: what was committed is left
    out and uploaded data is not sent twice. ``dry_run``: nothing is sent. ConfigError where the Hub refuses.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise ConfigError(f"{repo} cannot be a repository's name: {error}") from error
    if "/" not in repo:  # the Hub would make OWNER/NAME of it and upload to another
        raise ConfigError(f"--push {repo} names no owner: write OWNER/{repo}")
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    size = sum(file.stat().st_size for file in files)
    visibility = "private" if private else "public"
    what = f"{len(files)} files, {size / 1e6:,.1f} MB, to the {visibility} repository {repo}"
    if dry_run:
        report(f"would upload {what} (a repository that is there keeps its visibility):")
        for file in files:
            report(f"  {file.stat().st_size:>14,}  {file.relative_to(folder)}")
        return repo
    report(f"uploading {what}")
    api = HfApi()
    try:
        api.create_repo(repo, private=private, exist_ok=True)
        api.upload_folder(repo_id=repo, folder_path=folder, commit_message=message)
    except Exception as error:  # a connection that fails raises the HTTP library's own errors, which are no OSError
        reason = first_line(error.__cause__ or error)
        raise ConfigError(
            f"{repo} was not pushed: {reason}; the export lies in {folder}, and the same command with --push goes on "
            "where it stopped (`hf auth login` gives this machine a token)"
        ) from error
    report(f"pushed to {repo}")
    return repo
