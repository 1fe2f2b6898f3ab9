"""Modules that are imported at their first use, so that commands start quickly."""

from importlib import import_module
from typing import final


@final
class LazyModule:
    """Stands for a module, and imports it when one of its names is used.

    `tidelog.surface` imports all modules of the client: in a program, no call waits for an import.
    """

    def __init__(self, name: str) -> None:
        """Stand for the module of this name."""
        self._name = name

    def __getattr__(self, name: str) -> object:
        """Import the module and return its attribute; the next access does not come here."""
        value = getattr(import_module(self._name), name)
        setattr(self, name, value)
        return value
