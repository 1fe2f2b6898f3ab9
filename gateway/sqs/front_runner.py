"""Runner of the SQS front in a process: it waits for brokers at the start, and stops in order.

Shell.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, final

import trio

from tidelog.client.client import Client
from tidelog.gateway.sqs.callers import WaitingCallers
from tidelog.gateway.sqs.http.front_server import FrontServer
from tidelog.gateway.sqs.server import FrontConfig, FrontProcess, check_client, open_process
from tidelog.wire.env.env import Env
from tidelog.wire.errors import ConfigError, TidelogError

_RETRY_S: Final = 2.0


@final
class FrontRunner:
    """Runs one front.

    A front may start before the brokers, as `docker compose` and systemd start both: it listens at
    once, and requests wait for the brokers.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[Client]],
        config: FrontConfig,
        *,
        waits_for: tuple[type[TidelogError], ...],
        on_start: Callable[[FrontServer], None],
        env: Env,
    ) -> None:
        """Run a front over a client.

        Args:
            connect: Connects the client of the front.
            config: Settings of the front.
            waits_for: Failures of a start after which the front tries again.
            on_start: Called when the front serves.
            env: Clock, network and entropy.
        """
        self._connect = connect
        self._config = config
        self._waits_for = waits_for
        self._on_start = on_start
        self._env = env
        self._starting: trio.CancelScope | None = None
        """Scope of the start under way."""

    async def run_until(self, ending: trio.Event) -> None:
        """Serve until `ending`; then finish the requests under way.

        Raises:
            ConfigError: The front cannot listen on its address.
            TidelogError: The client cannot connect, or must not act for users, for a reason that
                no wait removes.
        """
        failure: TidelogError | None = None
        async with (
            open_process(self._config, env=self._env) as process,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(self._give_up_at, ending)
            while not ending.is_set():
                failure = await self._serve(process, ending)
                if failure is not None and not self._waits(failure, process.waiting):
                    break
                with trio.move_on_after(_RETRY_S):
                    await ending.wait()
            nursery.cancel_scope.cancel()
        if failure is not None and not ending.is_set():
            raise failure

    def _waits(self, failure: TidelogError, waiting: WaitingCallers) -> bool:
        """Return whether the front tries again after a failure; report it once if so."""
        before, waiting.reason = waiting.reason, str(failure)
        if isinstance(failure, ConfigError) or not isinstance(failure, self._waits_for):
            return False
        if waiting.reason != before:
            self._env.probe("sqs_front_waits", severity="warning", reason=waiting.reason)
        return True

    async def _give_up_at(self, ending: trio.Event) -> None:
        """End a start that is not complete at `ending`."""
        await ending.wait()
        if self._starting is not None:
            self._starting.cancel()

    async def _serve(self, process: FrontProcess, ending: trio.Event) -> TidelogError | None:
        """Serve until `ending`; return the failure of a start."""
        try:
            with trio.CancelScope() as starting:
                self._starting = starting
                async with self._connect() as client:
                    await check_client(client, self._config)
                    async with process.serving(client):
                        self._starting = None
                        self._on_start(process.server)
                        await ending.wait()
        except TidelogError as error:
            return error
        return None
