"""The configuration of each broker that `tidelog serve --workers` starts.

Reads directories and starts no process.
"""

import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tidelog.broker.config.broker_config import BrokerConfig, format_address, parse_address
from tidelog.wire.errors import ConfigError, DataDirectoryError

WORKERS_MAX: Final = 64
"""Workers at most, as many as a cluster has nodes at most."""

_PORT_MAX: Final = 0xFFFF
_OF_A_BROKER: Final = ("node", "metadata", "topics")
"""Files and directories that mark the data directory of a broker."""
_EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104  (compared, not listened on)


def worker_plans(base: BrokerConfig, worker_count: int) -> list[BrokerConfig]:
    """Return the configuration of each worker, from worker 1 on.

    Node ids and ports count up from those of `base`. The workers are one rack, and peers of each
    other unless `base` names peers.

    Raises:
        ConfigError: The settings contradict each other; one line.
        DataDirectoryError: The data directory belongs to one broker, or to more workers.
    """
    addresses = [_counted_up("listen", base.listen, count) for count in range(worker_count)]
    advertised = [""] * worker_count
    if base.advertised:
        advertised = [
            _counted_up("advertised", base.advertised, count) for count in range(worker_count)
        ]
    elif not base.peers and parse_address(base.listen)[0] in _EVERYWHERE:
        raise ConfigError(
            f"workers cannot connect to each other at the wildcard address {base.listen}; set"
            " advertised (TIDELOG_ADVERTISED=HOST:PORT), or listen on one address"
        )
    http = [""] * worker_count
    if base.http_listen:
        http = [
            _counted_up("http_listen", base.http_listen, count) for count in range(worker_count)
        ]
    sqs = [""] * worker_count
    if base.sqs_listen:
        sqs = [_counted_up("sqs_listen", base.sqs_listen, count) for count in range(worker_count)]
    _check_directories(Path(base.data_dir), worker_count)
    reached_at = advertised if base.advertised else addresses
    peers = base.peers or ",".join(
        f"{base.node_id + count}={address}" for count, address in enumerate(reached_at)
    )
    return [
        replace(
            base,
            data_dir=str(Path(base.data_dir) / str(count + 1)),
            listen=addresses[count],
            advertised=advertised[count],
            http_listen=http[count],
            sqs_listen=sqs[count],
            node_id=base.node_id + count,
            peers=peers,
            broker_rack=base.broker_rack or socket.gethostname(),
        )
        for count in range(worker_count)
    ]


def check_no_workers(data_dir: str) -> None:
    """Raise if a data directory belongs to workers: a single broker would start empty in it.

    Raises:
        DataDirectoryError: The directory belongs to workers.
    """
    numbers = _worker_numbers(Path(data_dir))
    if numbers and not _is_of_a_broker(Path(data_dir)):
        if numbers[-1] == 1:
            raise DataDirectoryError(
                f"{data_dir} holds the data of worker 1; start it with --data-dir"
                f" {Path(data_dir) / '1'} alone, or with --workers 2 among others"
            )
        raise DataDirectoryError(
            f"{data_dir} holds the data of {numbers[-1]} workers; start them with"
            f" --workers {numbers[-1]}, or choose another --data-dir"
        )


def _check_directories(directory: Path, worker_count: int) -> None:
    if _is_of_a_broker(directory):
        raise DataDirectoryError(
            f"{directory} holds the data of a single broker; to use it as worker 1, move its"
            f" contents to {directory / '1'}, or choose another --data-dir"
        )
    numbers = _worker_numbers(directory)
    if numbers and numbers[-1] > worker_count:
        raise DataDirectoryError(
            f"{directory} holds the data of {numbers[-1]} workers, not of {worker_count}; start"
            f" --workers {numbers[-1]}, because the cluster needs all its nodes"
        )


def _is_of_a_broker(directory: Path) -> bool:
    return any((directory / name).exists() for name in _OF_A_BROKER)


def _worker_numbers(directory: Path) -> Sequence[int]:
    """Return the numbers of the workers with data here, ascending."""
    return [
        number for number in range(1, WORKERS_MAX + 1) if _is_of_a_broker(directory / str(number))
    ]


def _counted_up(name: str, address: str, count: int) -> str:
    host, port = parse_address(address)
    if not port and name in {"http_listen", "sqs_listen"}:
        return address
    if not port:
        raise ConfigError(f"{name} has port 0, but workers need fixed ports; choose a port")
    if port + count > _PORT_MAX:
        raise ConfigError(
            f"{name} is {address}: port {port + count} does not exist; choose a lower port"
        )
    return format_address(host, port + count)
