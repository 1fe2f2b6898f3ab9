"""The SQS front in the process of `tidelog serve --sqs-listen`, for one machine."""

import logging
from typing import TYPE_CHECKING, Final

import trio

from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.client.client import connect
from tidelog.wire.env.real.real_env import real_env
from tidelog.wire.errors import ConfigError, TidelogError

if TYPE_CHECKING:
    # The modules need httptools, which only an extra installs.
    from tidelog.gateway.sqs.http.front_server import FrontServer
    from tidelog.gateway.sqs.server import FrontConfig

_log = logging.getLogger("tidelog.serve")

_CLIENT_NAME: Final = "tidelog-sqs"
_OTHER_FILES: Final = 64
"""Descriptors that are neither connections nor segment files."""
_CONNECTIONS_MIN: Final = 64


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


def fitting(front: "FrontConfig", config: BrokerConfig, *, open_files: int) -> "FrontConfig":
    """Return the settings with as many connections as files can be open beside the broker.

    Otherwise the connections of the front could keep the broker from opening a segment.
    """
    room = open_files - config.max_connections - config.max_open_files - _OTHER_FILES
    connections = max(min(front.limits.connections, room), _CONNECTIONS_MIN)
    return front._replace(limits=front.limits._replace(connections=connections))


async def serve_sqs(config: "FrontConfig", broker: str, ending: trio.Event) -> None:
    """Serve SQS over the broker of this process until `ending`.

    The front is a client of the broker: it waits until the broker serves it, also for a user that
    an administrator has yet to create.

    Raises:
        ConfigError: The front cannot listen on its address.
    """
    from tidelog.gateway.sqs.front_runner import FrontRunner
    from tidelog.gateway.sqs.listen_address import ListenAddress
    from tidelog.gateway.sqs.settings import DELIVERY_S, REQUEST_S

    def started(front: "FrontServer") -> None:
        _log.info("serving SQS on http://%s", ListenAddress(*front.address))

    runner = FrontRunner(
        lambda: connect(
            broker,
            client_id=_CLIENT_NAME,
            queue_delivery_timeout=DELIVERY_S,
            request_timeout=REQUEST_S,
        ),
        config,
        waits_for=(TidelogError,),
        on_start=started,
        env=real_env(),
    )
    await runner.run_until(ending)
