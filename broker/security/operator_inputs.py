"""Inputs of a broker from files and services of its operator, besides its settings.

Pure: declarations. Modules outside of the broker read them, see `tidelog.embedded`.
"""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from tidelog.wire.security.administrator_file import NewAdministrator

FetchKeys = Callable[[], Awaitable[bytes]]
"""Returns the key set of an identity provider; raises `OSError` with the reason."""


class OperatorInputs(NamedTuple):
    """Inputs of one broker."""

    administrator: NewAdministrator | None = None
    """The first user of a cluster that has none."""
    fetch_jwt_keys: FetchKeys | None = None
    """Reads `jwt_keys`; `None` without that setting."""


NO_INPUTS: Final = OperatorInputs()
