"""`tidelog serve`: run a broker, or several of them, until a signal ends it."""

import gc
import logging
import os
import resource
import sys
from dataclasses import fields
from functools import partial
from importlib.metadata import version
from typing import cast

import click
import trio

from tidelog.broker.config.broker_config import BrokerConfig, ResolvedConfig, resolve_config
from tidelog.cli.options import examples, json_option, server_options
from tidelog.cli.output.log_format import configure_logging
from tidelog.cli.output.tables import print_json, print_table
from tidelog.cli.serve.worker_plan import WORKERS_MAX, check_no_workers, worker_plans
from tidelog.cli.serve.workers import run_workers
from tidelog.cli.signals import on_signal
from tidelog.embedded import open_configured_broker

_log = logging.getLogger("tidelog.serve")

_SWITCH_INTERVAL_S = 0.0005
"""After so long a thread that compacts, or looks for damage, lets those go on who wait for clients.
By default, 5 ms, 99 % of produced records took 8.1 ms while another topic was compacted; now 6.1.
"""
_OTHER_FILES = 64
"""Descriptors that are neither connections nor segment files."""


@click.command(
    epilog=examples(
        "tidelog serve --data-dir /var/lib/tidelog --listen 0.0.0.0:8433",
        "TIDELOG_LISTEN=127.0.0.1:9000 tidelog serve --config tidelog.toml",
        "tidelog serve --workers 4 --data-dir /var/lib/tidelog",
        "tidelog serve --config tidelog.toml --print-config",
    )
)
@server_options
@click.option(
    "--print-config", "prints_config", is_flag=True, help="Print the settings and their sources."
)
@json_option
@click.option(
    "--workers",
    "worker_count",
    type=click.IntRange(1, WORKERS_MAX),
    default=1,
    metavar="N",
    help="Run N brokers, as one rack: node ids and ports are counted up from --node-id"
    " and --listen, their data is in DIR/1 to DIR/N.  [1: in DIR itself]",
)
def serve(
    config_file: str | None,
    worker_count: int,
    prints_config: bool,
    *,
    as_json: bool,
    **flags: object,
) -> int:
    """Run a broker.

    No configuration is needed. A flag beats the environment (TIDELOG_DATA_DIR sets data_dir, and so
    on), which beats the file of --config, which beats the default; --print-config prints the result
    instead of running a broker. SIGTERM and Ctrl-C end it in order: what is under way is finished
    and everything is put on disk. A second signal ends it at once, which loses nothing that was
    acknowledged, but the next start has to look at what was not on disk yet.
    """
    resolved = resolve_config(file=config_file, environment=os.environ, flags=flags)
    config = resolved.config
    if prints_config:
        _print_config(resolved, as_json=as_json)
        return 0
    if as_json:
        raise click.UsageError("--json goes with --print-config; see --log-format json")
    if worker_count > 1:
        plans = worker_plans(config, worker_count)
        configure_logging(config.log_format, config.log_level)
        return trio.run(partial(run_workers, plans, config_file=config_file))
    check_no_workers(config.data_dir)
    configure_logging(config.log_format, config.log_level)
    _allow_many_files(config)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    trio.run(_serve, resolved)
    return 0


async def _serve(resolved: ResolvedConfig) -> None:
    starting = trio.CancelScope()
    ending = trio.Event()
    is_started = False

    def end() -> None:
        _log.info("stopping in order; a second signal stops at once")
        ending.set()
        if not is_started:  # It may be recovering for long; ending that loses nothing.
            starting.cancel()

    async with on_signal(end):
        with starting:
            async with open_configured_broker(resolved) as broker:
                is_started = True
                # What is there now stays; to look through it for garbage would hold up everything
                # for some 30 ms, again and again.
                gc.freeze()
                _log.info(
                    "tidelog %s listening on %s, data in %s",
                    version("tidelog"),
                    broker.address,
                    resolved.config.data_dir,
                )
                await ending.wait()


def _allow_many_files(config: BrokerConfig) -> None:
    """Raise the limit of open files as far as this process may; warn when it is too low."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        _log.warning("open_files_limit_not_raised", extra={"fields": {"reason": str(error)}})
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = config.max_connections + config.max_open_files + _OTHER_FILES
    if limit != resource.RLIM_INFINITY and limit < wanted:
        _log.warning(
            "open_files_limit_is_low", extra={"fields": {"limit": limit, "wanted": wanted}}
        )


def _print_config(resolved: ResolvedConfig, *, as_json: bool) -> None:
    """Print the settings in force, and where each comes from."""
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
    """Return a value as it would stand in the file."""
    if isinstance(value, dict):
        table = cast("dict[str, str]", value)
        return ", ".join(f'{name} = "{item}"' for name, item in table.items()) or "{}"
    return f'"{value}"' if isinstance(value, str) else str(value)
