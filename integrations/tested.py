"""Frameworks move: which version of each an adapter was tested with."""

import warnings
from importlib.metadata import PackageNotFoundError, version

OPEN = 10**9  # an update so late that its submit gate is open


def check_version(package: str, tested: str, extra: str) -> None:
    """Warn where an installed framework is of another release than the one that the adapter was tested with.

    ``tested``: the beginning of its version, as ``1.16``. ``extra``: ours that installs it. Raises ImportError where it
    is not installed.
    """
    try:
        found = version(package)
    except PackageNotFoundError as error:
        raise ImportError(f"this adapter needs {package}; install it: pip install 'sqale-grpo[{extra}]'") from error
    if found != tested and not found.startswith(f"{tested}."):
        warnings.warn(
            f"{package} {found} is installed, and this adapter is tested with {tested}: where something fails, "
            f"pip install '{package}=={tested}.*'",
            stacklevel=3,
        )
