"""The warning of a broker that serves other machines without TLS and authentication.

Shell: waits for the clock.
"""

from collections.abc import Mapping
from typing import Final, final

import trio

from tidelog.wire.env.env import Env

INTERVAL_S: Final = 3600.0
"""Time between two warnings, in seconds."""


@final
class InsecureListenWarning:
    """Warns at the start of a broker and each hour, so that an open port is not forgotten."""

    def __init__(self, env: Env, addresses: Mapping[str, str]) -> None:
        """Warn of `addresses`, by the name of their setting; there is at least one."""
        self._env = env
        self._addresses = addresses

    async def run(self) -> None:
        """Warn until cancelled."""
        while True:
            self._env.probe(
                "insecure_listen",
                severity="warning",
                **self._addresses,
                reason="every machine that reaches the address may read, write and delete"
                " everything: there is no TLS and no authentication",
            )
            await trio.sleep(INTERVAL_S)
