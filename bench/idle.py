"""Benchmark of an idle broker: CPU and memory."""

from time import perf_counter, sleep  # noqa: TID251  (the benchmark measures an idle process)

from bench.connections import parked_connections
from bench.figures import Row, Settings
from bench.machine import ServerProcess, broker_process
from bench.raw import RawConnection

_CONNECTIONS = 1000
_GOAL_PERCENT = 1.0
_SETTLE_SECONDS = 1


def _idle_percent(server: ServerProcess, seconds: float) -> float:
    sleep(_SETTLE_SECONDS)
    cpu_before = server.cpu_seconds
    began = perf_counter()
    sleep(seconds)
    return (server.cpu_seconds - cpu_before) / (perf_counter() - began) * 100


def run(settings: Settings) -> list[Row]:
    """Measure a broker without connections, and with connections that have parked long polls."""
    seconds = settings.choose(20, 3)
    with broker_process(settings.directory / "data") as server:
        connection = RawConnection(server.address)
        topic_id = connection.create_topic("idle")
        connection.close()
        alone = _idle_percent(server, seconds)
        with parked_connections(server.address, topic_id, _CONNECTIONS):
            crowded = _idle_percent(server, seconds)
            resident_bytes = server.resident_bytes
    return [
        _row("no connection", alone),
        _row(f"{_CONNECTIONS:,} connections, each with a parked long poll", crowded),
        Row(
            "idle: resident memory with these connections", f"{resident_bytes / (1 << 20):.0f} MiB"
        ),
    ]


def _row(what: str, percent: float) -> Row:
    return Row(
        f"idle: CPU of a broker, {what}",
        f"{percent:.2f} %",
        f"< {_GOAL_PERCENT:.0f} %",
        percent < _GOAL_PERCENT,
    )
