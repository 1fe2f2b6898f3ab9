"""tidelog: a partitioned log, for programs.

`connect` leads to everything: `async with tidelog.connect("127.0.0.1:8433") as client`.
`tidelog.blocking` offers the same to programs without trio, `open_broker` a broker inside the
program. This package is the public surface; the packages behind it may be rearranged.

Nothing is loaded before it is used, so that `tidelog --help` does not wait for the client.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"
"""The version of tidelog, in the form of PEP 440."""

if TYPE_CHECKING:
    from tidelog import blocking as blocking  # as: it is public
    from tidelog.surface import *  # noqa: F403  (every name there is public)
else:

    def __getattr__(name: str) -> object:
        """Return a public name, and load what is behind it."""
        if name == "blocking":
            return import_module("tidelog.blocking")
        # Names with underscores are asked for by those who look at any module.
        if name == "__all__" or not name.startswith("__"):
            surface = import_module("tidelog.surface")
            if name == "__all__" or name in surface.__all__:
                value: object = getattr(surface, name)
                globals()[name] = value  # From now on it is found without coming here.
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        """Return the public names."""
        return sorted([*import_module("tidelog.surface").__all__, "blocking"])
