"""The command `tidelog serve`, which runs one or several brokers until a signal."""

import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, cast

import click
import trio

from tidelog.broker.config.broker_config import (
    DEFAULT,
    DEFAULT_HTTP_LISTEN,
    BrokerConfig,
    ResolvedConfig,
    resolve_config,
)
from tidelog.broker.config.exposure import check_exposure
from tidelog.broker.server import Broker
from tidelog.cli.options import examples, json_option, server_options
from tidelog.cli.output.log_format import configure_logging
from tidelog.cli.output.tables import print_json, print_table
from tidelog.cli.serve.sqs_front import fitting, front_config, serve_sqs
from tidelog.cli.serve.worker_plan import WORKERS_MAX, check_no_workers, worker_plans
from tidelog.cli.serve.workers import run_workers
from tidelog.cli.signals import on_signal
from tidelog.cluster_secret import cluster_secret_path, read_cluster_secret
from tidelog.embedded import open_configured_broker
from tidelog.wire.env.real.real_env import real_env

if TYPE_CHECKING:
    from tidelog.gateway.sqs.server import FrontConfig

_log = logging.getLogger("tidelog.serve")

_START_THRESHOLD = 200_000
"""Objects that a start makes before it looks for garbage among them; usually 700."""
_SWITCH_INTERVAL_S = 0.0005
"""Seconds after which a thread that compacts or scrubs yields to the threads that serve clients.

During the compaction of another topic, the 99th percentile of produce latency is 6.1 ms; with the
default of Python, 5 ms, it was 8.1 ms.
"""
_OTHER_FILES = 64
"""Descriptors that are neither connections nor segment files."""
_OPEN_FILES_MIN = 16


@click.command(
    epilog=examples(
        "tidelog serve --data-dir /var/lib/tidelog --listen 127.0.0.1:9000",
        "TIDELOG_LISTEN=127.0.0.1:9000 tidelog serve --config tidelog.toml",
        "tidelog serve --workers 4 --data-dir /var/lib/tidelog",
        "tidelog serve --config tidelog.toml --print-config",
    )
)
@server_options
@click.option(
    "--print-config",
    "prints_config",
    is_flag=True,
    help="Print all settings with sources and exit.",
)
@json_option
@click.option(
    "--workers",
    "worker_count",
    type=click.IntRange(1, WORKERS_MAX),
    default=1,
    metavar="N",
    help="Run N brokers of one rack, with data in DIR/1 to DIR/N.  [1]",
)
@click.option("--default-http-listen", default=DEFAULT_HTTP_LISTEN, hidden=True)  # of a worker
def serve(
    config_file: str | None,
    default_http_listen: str,
    worker_count: int,
    *,
    prints_config: bool,
    as_json: bool,
    **flags: object,
) -> int:
    """Run a broker.

    No configuration is needed. Settings are resolved in this order: a flag, the environment
    (TIDELOG_DATA_DIR sets data_dir, and so on), the file of --config, the default. --print-config
    prints the result instead of running a broker.

    --sqs-listen serves the API of Amazon SQS as well, like `tidelog sqs`.

    Without TLS and authentication, only this machine is served: --listen with another address
    needs --insecure-listen.

    The data directory is created if missing. --peers includes this node. With --workers, node ids
    and ports count up from --node-id, --listen and --http-listen.

    SIGTERM and Ctrl-C stop the broker in order: it finishes requests and syncs its logs. A second
    signal stops it at once. That loses no acknowledged record, but the next start must recover the
    ends of the logs.
    """
    resolved = resolve_config(
        file=config_file,
        environment=os.environ,
        flags=flags,
        defaults={"http_listen": default_http_listen},
    )
    config = resolved.config
    if prints_config:
        _print_config(resolved, as_json=as_json)
        return 0
    if as_json:
        raise click.UsageError("--json needs --print-config: use --log-format json for JSON logs")
    check_exposure(config)
    sqs = front_config(config)
    if worker_count > 1:
        plans = worker_plans(config, worker_count)
        configure_logging(config.log_format, config.log_level)
        return trio.run(
            partial(
                run_workers,
                plans,
                config_file=config_file,
                is_http_default=resolved.sources["http_listen"] == DEFAULT,
            )
        )
    check_no_workers(config.data_dir)
    configure_logging(config.log_format, config.log_level)
    resolved = _with_open_files(resolved)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    secret = read_cluster_secret(cluster_secret_path(config.cluster_secret_file), real_env().random)
    if sqs is not None:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit != resource.RLIM_INFINITY:
            sqs = fitting(sqs, resolved.config, open_files=limit)
    trio.run(_serve, resolved, secret, sqs)
    return 0


async def _serve(resolved: ResolvedConfig, secret: bytes, sqs: "FrontConfig | None") -> None:
    starting = trio.CancelScope()
    ending = trio.Event()
    is_started = False

    def end() -> None:
        _log.info("stopping in order; a second signal stops at once")
        ending.set()
        if not is_started:  # Recovery may take long; its cancellation loses nothing.
            starting.cancel()

    async with on_signal(end):
        with starting, _hangups(resolved.config) as hangups, ExitStack() as start:
            start.enter_context(_few_collections())
            async with open_configured_broker(resolved, secret=secret) as broker:
                is_started = True
                start.close()
                # The objects of the start stay alive; each garbage collection of them would block
                # the loop for some 30 ms.
                gc.freeze()
                _log.info(
                    "tidelog %s listening on %s, data in %s",
                    version("tidelog"),
                    broker.address,
                    resolved.config.data_dir,
                )
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_reload_on, hangups, broker)
                    if sqs is None:
                        await ending.wait()
                    else:
                        await serve_sqs(sqs, broker.address, ending)
                    nursery.cancel_scope.cancel()


@contextmanager
def _few_collections() -> Generator[None]:
    """Collect garbage rarely in the block: nearly all objects of a start stay alive.

    With 10,000 queues the collections took a third of a start.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(_START_THRESHOLD, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


@contextmanager
def _hangups(config: BrokerConfig) -> Generator[AsyncIterator[int] | None]:
    """Receive SIGHUP in the block; without TLS, it ends the process as usual."""
    if config.tls == "off":
        yield None
        return
    with trio.open_signal_receiver(signal.SIGHUP) as signals:
        yield signals


async def _reload_on(hangups: AsyncIterator[int] | None, broker: Broker) -> None:
    """Have the broker look for a new certificate at each signal."""
    if hangups is not None:
        async for _ in hangups:
            broker.reload_certificate()


def _with_open_files(resolved: ResolvedConfig) -> ResolvedConfig:
    """Raise the limit of open files to the hard limit; return settings that it allows.

    Below what the settings need, connections and segment files share the limit: without that,
    connections would take every descriptor, and the broker could neither accept nor open a file.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        _log.warning("open_files_limit_not_raised", extra={"fields": {"reason": str(error)}})
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    config = resolved.config
    wanted = config.max_connections + config.max_open_files + _OTHER_FILES
    if limit == resource.RLIM_INFINITY or limit >= wanted:
        return resolved
    share = max((limit - _OTHER_FILES) // 2, _OPEN_FILES_MIN)
    fitting = replace(
        config,
        max_connections=min(config.max_connections, share),
        max_open_files=min(config.max_open_files, share),
    )
    allowed = {
        name: getattr(fitting, name)
        for name in ("max_connections", "max_open_files")
        if getattr(fitting, name) != getattr(config, name)
    }
    _log.warning(
        "open_files_limit_is_low", extra={"fields": {"limit": limit, "wanted": wanted, **allowed}}
    )
    sources = {**resolved.sources, **dict.fromkeys(allowed, "limit of open files")}
    return ResolvedConfig(fitting, sources)


def _print_config(resolved: ResolvedConfig, *, as_json: bool) -> None:
    """Print the settings in force, and the source of each."""
    names = [item.name for item in fields(resolved.config)]
    values = {name: getattr(resolved.config, name) for name in names}
    if as_json:
        print_json(
            {
                name: {"value": value, "source": resolved.sources[name]}
                for name, value in values.items()
            }
        )
        return
    rows = [(name, _as_in_file(value), resolved.sources[name]) for name, value in values.items()]
    print_table(["SETTING", "VALUE", "SOURCE"], rows)


def _as_in_file(value: object) -> str:
    """Return a value as in the configuration file."""
    if isinstance(value, dict):
        table = cast("dict[str, str]", value)
        return ", ".join(f'{name} = "{item}"' for name, item in table.items()) or "{}"
    return f'"{value}"' if isinstance(value, str) else str(value)
