"""The command `tidelog sqs`, which serves the HTTP API of Amazon SQS."""

import gc
import logging
import re
import resource
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, TypedDict, Unpack, final

import click
import trio

from tidelog.cli.connected import ConnectedCommand, broker_address, given_profile, tls_settings
from tidelog.cli.options import Seconds, examples
from tidelog.cli.output.log_format import configure_logging
from tidelog.cli.signals import on_signal
from tidelog.client.client import connect
from tidelog.client.config import ClientConfig
from tidelog.client.security.settings import connection_settings
from tidelog.wire.env.real.real_env import real_env
from tidelog.wire.env.real.user_files import UserFiles
from tidelog.wire.errors import ConfigError, ConnectionLostError, RetriableError
from tidelog.wire.messages.field_types import PARTITION_COUNT_MAX

if TYPE_CHECKING:
    # The module needs httptools, which only an extra installs.
    from tidelog.gateway.sqs.http.front_server import FrontServer
    from tidelog.gateway.sqs.server import FrontConfig

_log = logging.getLogger("tidelog.sqs")

_CLIENT_NAME: Final = "tidelog-sqs"
_GARBAGE_THRESHOLD: Final = 100_000
"""Objects that a front makes before it looks for garbage among them; usually 700."""
_OTHER_FILES: Final = 64
"""Descriptors that are no connections of clients."""
_CONNECTIONS_MIN: Final = 4_096
"""Number of connections below which a limit of open files is worth a warning."""
_ACCOUNT: Final = re.compile(r"\d{12}")
_REGION: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")
_URL: Final = re.compile(r"https?://[^/\s?#]+")


@final
class _Matching(click.ParamType[str]):
    """The parameter type of texts that match a pattern."""

    name = "text"

    def __init__(self, pattern: re.Pattern[str], example: str) -> None:
        self._pattern = pattern
        self._example = example

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Return the text."""
        text = str(value)
        if text and not self._pattern.fullmatch(text):
            self.fail(f"{text!r} is not of the form {self._example}", param, ctx)
        return text


class _Options(TypedDict):
    listen: str
    no_auth: bool
    account: str
    region: str
    public_url: str
    strict_sqs: bool
    partitions: int
    max_connections: int | None
    drain_s: float
    log_format: str
    log_level: str


@click.command(
    cls=ConnectedCommand,
    epilog=examples(
        "tidelog sqs --no-auth",
        "tidelog sqs -b broker:8433 --listen 0.0.0.0:9324 --public-url https://sqs.example.com",
    ),
)
@click.option(
    "--listen",
    default="127.0.0.1:9324",
    show_default=True,
    metavar="HOST:PORT",
    help="Listen on this address.",
)
@click.option(
    "--no-auth", is_flag=True, help="Check no signatures: serve every program of this machine."
)
@click.option(
    "--account",
    type=_Matching(_ACCOUNT, "111122223333"),
    default="000000000000",
    show_default=True,
    metavar="DIGITS",
    help="Set the account whose queues have no prefix.",
)
@click.option(
    "--region",
    type=_Matching(_REGION, "eu-central-1"),
    default="us-east-1",
    show_default=True,
    metavar="NAME",
    help="Set the region whose queues have no prefix.",
)
@click.option(
    "--public-url",
    type=_Matching(_URL, "https://sqs.example.com"),
    default="",
    metavar="URL",
    help="Begin the URLs of queues so.  [as the request names the front]",
)
@click.option(
    "--strict-sqs", is_flag=True, help="Imitate limits of the cloud that tidelog does not need."
)
@click.option(
    "--partitions",
    type=click.IntRange(1, PARTITION_COUNT_MAX),
    default=1,
    show_default=True,
    metavar="N",
    help="Create queues with so many partitions, except FIFO queues without high throughput.",
)
@click.option(
    "--max-connections",
    type=click.IntRange(1, 1_000_000),
    metavar="N",
    help="Serve at most so many connections.  [20,000, or as many as files can be open]",
)
@click.option(
    "--drain",
    "drain_s",
    type=Seconds(longest=3600),
    default="25s",
    show_default=True,
    help="Wait so long for requests under way at a stop.",
)
@click.option(
    "--log-format",
    type=click.Choice(("console", "json")),
    default="console",
    show_default=True,
    help="Set the format of log lines.",
)
@click.option(
    "--log-level",
    type=click.Choice(("debug", "info", "warning", "error")),
    default="info",
    show_default=True,
    help="Set the minimum level of log lines.",
)
def sqs(**options: Unpack[_Options]) -> None:
    """Serve Amazon SQS over the queues of a cluster.

    Programs use it with the AWS SDKs: set AWS_ENDPOINT_URL_SQS=http://127.0.0.1:9324. Requests are
    signed by access keys of users (`tidelog access-key create`), unless --no-auth. Any number of
    these processes may serve a cluster: they keep nothing but connections.

    GET /health, /ready and /metrics answer probes and scrapes. SIGTERM and Ctrl-C end the process
    in order: receives that wait are answered without messages, and other requests finish. A second
    signal ends it at once, which loses replies alone.
    """
    # Not at the top: the modules need httptools, which only an extra installs.
    try:
        from tidelog.gateway.sqs.http.front_server import FrontLimits
        from tidelog.gateway.sqs.listen_address import parse_listen
        from tidelog.gateway.sqs.server import FrontConfig, check_listen
        from tidelog.gateway.sqs.settings import FrontSettings
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"SQS cannot be served: {error.name} is missing; run: pip install 'tidelog[sqs]'"
        ) from error

    settings = FrontSettings(
        options["account"],
        options["region"],
        options["public_url"],
        is_strict=options["strict_sqs"],
        partitions=options["partitions"],
    )
    config = FrontConfig(
        parse_listen(options["listen"]),
        checks_signatures=not options["no_auth"],
        settings=settings,
    )
    check_listen(config)
    configure_logging(options["log_format"], options["log_level"])
    connections = _allowed(config.limits.connections, given=options["max_connections"])
    limits = FrontLimits(connections, drain_s=options["drain_s"])
    config = config._replace(limits=limits)
    trio.run(_serve, broker_address(), config)


def _allowed(default: int, *, given: int | None) -> int:
    """Raise the limit of open files; return as many connections as are given and it allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        _log.warning("open_files_limit_not_raised", extra={"fields": {"reason": str(error)}})
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = default if given is None else given
    if limit == resource.RLIM_INFINITY or limit >= wanted + _OTHER_FILES:
        return wanted
    allowed = max(limit - _OTHER_FILES, 1)
    if given is not None or allowed < _CONNECTIONS_MIN:
        fields = {"limit": limit, "wanted": wanted + _OTHER_FILES, "max_connections": allowed}
        _log.warning("open_files_limit_is_low", extra={"fields": fields})
    return allowed


async def _serve(broker: str, config: "FrontConfig") -> None:
    from tidelog.gateway.sqs.front_runner import FrontRunner
    from tidelog.gateway.sqs.listen_address import ListenAddress
    from tidelog.gateway.sqs.settings import DELIVERY_S, REQUEST_S

    ending = trio.Event()

    def end() -> None:
        _log.info("stopping in order; a second signal stops at once")
        ending.set()

    def started(front: "FrontServer") -> None:
        _log.info(
            "tidelog %s serves SQS on http://%s for %s",
            version("tidelog"),
            ListenAddress(*front.address),
            broker,
        )
        if config.checks_signatures:
            _log.info("requests need an access key: tidelog access-key create user:NAME")
        _collect_rarely()

    given = ClientConfig(
        client_id=_CLIENT_NAME,
        queue_delivery_timeout=DELIVERY_S,
        request_timeout=REQUEST_S,
        **tls_settings(),
    )
    client_config = connection_settings(given, UserFiles(), profile=given_profile()).config
    env = real_env()
    runner = FrontRunner(
        lambda: connect(broker, config=client_config, env=env),
        config,
        waits_for=(ConnectionLostError, RetriableError),
        on_start=started,
        env=env,
    )
    async with on_signal(end):
        await runner.run_until(ending)


def _collect_rarely() -> None:
    """Collect garbage rarely: nearly all objects of a front live as long as a connection.

    With 10,000 waiting receives, full collections took a fifth of the CPU time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GARBAGE_THRESHOLD, 20, 50)
