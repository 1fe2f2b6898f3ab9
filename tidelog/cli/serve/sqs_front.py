"""The SQS front in the process of `tidelog serve --sqs-listen`, for one machine."""

import logging
from typing import TYPE_CHECKING, Final, final

import trio

from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.client.client import connect
from tidelog.wire.errors import ConfigError, TidelogError

if TYPE_CHECKING:
    # The module needs httptools, which only an extra installs.
    from tidelog.gateway.sqs.server import FrontConfig

_log = logging.getLogger("tidelog.serve")

_CLIENT_NAME: Final = "tidelog-sqs"
_RETRY_S: Final = 2.0


def front_config(config: BrokerConfig) -> "FrontConfig | None":
    """Return the settings of the front; `None` if the broker has none.

    Raises:
        ConfigError: A package is missing, or the front must not serve the address.
    """
    if not config.sqs_listen:
        return None
    try:
        from tidelog.gateway.sqs.listen_address import parse_listen
        from tidelog.gateway.sqs.server import FrontConfig, check_listen
        from tidelog.gateway.sqs.settings import FrontSettings
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"SQS cannot be served: {error.name} is missing; run: pip install 'tidelog[sqs]'"
        ) from error

    found = FrontConfig(
        parse_listen(config.sqs_listen),
        checks_signatures=config.sqs_authentication == "required",
        settings=FrontSettings(is_strict=config.sqs_strict == "on"),
    )
    check_listen(found)
    return found


@final
class SqsFront:
    """Serves SQS over the broker of this process, as a client of it."""

    def __init__(self, config: "FrontConfig", broker: str) -> None:
        """Serve over the broker at an address, which may not be ready yet."""
        self._config = config
        self._broker = broker
        self._starting: trio.CancelScope | None = None
        """Scope of the start under way."""
        self._reason = ""
        """Reason of the last start that failed."""

    async def run_until(self, ending: trio.Event) -> None:
        """Serve until `ending`; then finish the requests under way.

        Raises:
            ConfigError: The front cannot listen on its address.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._give_up_at, ending)
            while not ending.is_set():
                await self._serve(ending)
                with trio.move_on_after(_RETRY_S):
                    await ending.wait()
            nursery.cancel_scope.cancel()

    async def _give_up_at(self, ending: trio.Event) -> None:
        """End a start that is not complete at `ending`."""
        await ending.wait()
        if self._starting is not None:
            self._starting.cancel()

    async def _serve(self, ending: trio.Event) -> None:
        """Serve until `ending`, or until the broker refuses the start.

        Raises:
            ConfigError: The front cannot listen on its address.
        """
        from tidelog.gateway.sqs.server import open_front

        try:
            with trio.CancelScope() as starting:
                self._starting = starting
                async with (
                    connect(self._broker, client_id=_CLIENT_NAME) as client,
                    open_front(client, self._config) as front,
                ):
                    self._starting = None
                    _log.info("serving SQS on http://%s:%d", *front.address)
                    await ending.wait()
        except ConfigError:
            raise
        except TidelogError as error:
            if self._starting is None:
                raise
            if self._reason != str(error):
                self._reason = str(error)
                _log.warning("sqs_front_waits", extra={"fields": {"reason": self._reason}})
