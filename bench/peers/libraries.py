"""Client libraries of peers. Only the extra `peers` installs them, so their types are unknown."""

from importlib import import_module
from typing import Any


def library(name: str) -> Any:  # noqa: ANN401  (that is the point)
    """Return a module of a client library."""
    return import_module(name)
