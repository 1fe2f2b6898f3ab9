"""A broker inside this process, for tests and small programs."""

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from tidelog.administrator_file import read_administrator
from tidelog.broker.config.broker_config import ResolvedConfig, resolve_config
from tidelog.broker.security.operator_inputs import OperatorInputs
from tidelog.broker.server import Broker
from tidelog.broker.server import open_broker as open_broker_in
from tidelog.cluster_secret import (
    cluster_secret_path,
    draw_cluster_secret,
    read_cluster_secret,
)
from tidelog.jwks_source import jwks_source
from tidelog.logstore.disk.os_disk import OsDisk
from tidelog.master_source import master_source_of
from tidelog.wire.env.env import Env
from tidelog.wire.env.real.real_env import real_env


@asynccontextmanager
async def open_broker(
    data_dir: str | os.PathLike[str], *, listen: str = "127.0.0.1:0", **settings: object
) -> AsyncGenerator[Broker, None]:
    """Run a broker on `data_dir` while the block runs; then stop it cleanly.

    Clients connect to `broker.address`; by default, a free port of this machine.
    `settings` are fields of the broker's configuration, such as `log_flush_interval_ms=1000`.
    If cancelled, the broker stops as in a crash: acknowledged records are safe.

    Raises:
        DataDirectoryError: The data directory is in use, belongs to another node, or is damaged.
        ConfigError: A setting is not valid, or the broker cannot listen on the address.
    """
    async with open_broker_with(real_env(), data_dir, {"listen": listen, **settings}) as broker:
        yield broker


@asynccontextmanager
async def open_broker_with(
    env: Env, data_dir: str | os.PathLike[str], settings: Mapping[str, object]
) -> AsyncGenerator[Broker, None]:
    """Run a broker on the clock, network, entropy and threads of `env`; see `open_broker`."""
    resolved = resolve_config(
        file=None, environment={}, flags={**settings, "data_dir": os.fspath(data_dir)}
    )
    config = resolved.config
    is_alone = not (config.peers or config.cluster_secret_file)
    # No other node needs the secret, and nothing is written elsewhere.
    random = env.random
    secret = (
        draw_cluster_secret(random)
        if is_alone
        else read_cluster_secret(cluster_secret_path(config.cluster_secret_file), random)
    )
    async with open_configured_broker(resolved, secret=secret, env=env) as broker:
        yield broker


@asynccontextmanager
async def open_configured_broker(
    resolved: ResolvedConfig, *, secret: bytes, env: Env | None = None
) -> AsyncGenerator[Broker, None]:
    """Run a broker on the real disk, and on the real clock and network by default."""
    config, sources = resolved.config, resolved.sources
    inputs = OperatorInputs(
        read_administrator(config.bootstrap_admin) if config.bootstrap_admin else None,
        jwks_source(config.jwt_keys) if config.jwt_keys else None,
    )
    disk = OsDisk(config.data_dir)
    env = env or real_env()
    source = master_source_of(
        env,
        master_key_file=config.master_key_file,
        master_key_command=config.master_key_command,
    )
    if config.tls != "off":
        # Not at the top: most embedded brokers have no TLS.
        from tidelog.node_tls import with_tls

        env = with_tls(env, config)
    async with open_broker_in(
        config,
        env,
        disk,
        secret=secret,
        sources=sources,
        master_source=source,
        inputs=inputs,
    ) as broker:
        yield broker
