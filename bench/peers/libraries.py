"""Client libraries of peers, untyped because only the extra `peers` installs them."""

from importlib import import_module
from typing import Any


def library(name: str) -> Any:  # noqa: ANN401  (the library may be missing)
    """Return a module of a client library."""
    return import_module(name)
