"""Frameworks move: which version of each an adapter was tested with."""

import warnings
from importlib.metadata import version


def check_version(package: str, tested: str) -> None:
    """Warn where an installed framework is of another release than the one that the adapter was tested with.

    ``tested``: the beginning of its version, as ``1.16``. Raises PackageNotFoundError where it is not installed.
    """
    found = version(package)
    if found != tested and not found.startswith(f"{tested}."):
        warnings.warn(
            f"{package} {found} is installed, and this adapter is tested with {tested}: where something fails, "
            f"pip install '{package}=={tested}.*'",
            stacklevel=3,
        )
