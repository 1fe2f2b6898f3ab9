"""Benchmark of encryption at rest: produce and consume of an encrypted topic beside a plain one.

Both over plain TCP and over TLS, for which the goal is: that is how encrypted topics are used. The
processor time of the broker is shown as well, since other work on the machine disturbs it less.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Final

import trio

import tidelog
from bench.figures import Row, Settings, Spread, ratios
from bench.machine import ServerProcess, broker_process
from bench.tls import write_certificates
from tidelog.broker.encryption.master_keys import master_key_line

_VALUE: Final = bytes(range(200)) * 5
_GOAL: Final = 1.2
_KINDS: Final = ("off", "on")
_NETWORKS: Final = ("TCP", "TLS")
_MEASURES: Final = ("time", "broker CPU")
_Costs = dict[tuple[str, str], float]
"""Seconds by task and measure."""


@contextmanager
def _measured(found: _Costs, task: str, broker: ServerProcess) -> Generator[None]:
    began, cpu_began = perf_counter(), broker.cpu_seconds
    yield
    found[task, "time"] = perf_counter() - began
    found[task, "broker CPU"] = broker.cpu_seconds - cpu_began


async def _cost(client: tidelog.Client, kind: str, count: int, *, broker: ServerProcess) -> _Costs:
    topic = f"encryption-{kind}"
    await client.admin.create_topic(topic, config={"encryption": kind, "durability": "replicated"})
    found: _Costs = {}
    async with client.producer() as producer:
        await producer.send(topic, _VALUE)  # Connects; an encrypted topic has its key then.
        with _measured(found, "produce", broker):
            for _ in range(count):
                try:
                    producer.send_nowait(topic, _VALUE)
                except tidelog.BufferFullError:
                    await producer.wait_writable()
                    producer.send_nowait(topic, _VALUE)
            await producer.flush()
    async with client.consumer(topic, auto_offset_reset="earliest") as consumer:
        with _measured(found, "consume", broker):
            async for _ in consumer.records(await consumer.end_offsets()):
                pass
    await client.admin.delete_topic(topic)
    return found


def run(settings: Settings) -> list[Row]:
    """Measure both kinds of topics over both kinds of connections in turn, against one broker."""
    settings.directory.mkdir(parents=True, exist_ok=True)
    certificates, key_file = settings.directory / "certificates", settings.directory / "master.key"
    ca = write_certificates(certificates)
    key_file.touch(mode=0o600)
    key_file.write_text(f"{master_key_line(bytes(range(32)))}\n", encoding="ascii")
    count = settings.choose(200_000, 20_000)
    measured: dict[tuple[str, str], list[_Costs]] = {
        (network, kind): [] for network in _NETWORKS for kind in _KINDS
    }
    with broker_process(
        settings.directory / "data",
        master_key_file=str(key_file),
        tls="accept",
        tls_directory=str(certificates),
    ) as broker:
        host, port = broker.address

        async def main(network: str, kind: str) -> _Costs:
            tls_ca = ca if network == "TLS" else None
            async with tidelog.connect(f"{host}:{port}", tls_ca=tls_ca) as client:
                return await _cost(client, kind, count, broker=broker)

        for _ in range(settings.choose(5, 3) + 1):
            for place, costs in measured.items():
                costs.append(trio.run(main, *place))
    return [
        row
        for network in _NETWORKS
        for task in ("produce", "consume")
        for row in _rows(network, task, measured, count=count)
    ]


def _rows(
    network: str,
    task: str,
    measured: Mapping[tuple[str, str], Sequence[_Costs]],
    *,
    count: int,
) -> list[Row]:
    runs = {kind: measured[network, kind][1:] for kind in _KINDS}
    rates = [count * len(_VALUE) / each[task, "time"] / 1e6 for each in runs["off"]]
    rows = [
        Row(f"encryption: {task} over {network}, plain topic, MB/s", Spread.of(rates).text(",.0f"))
    ]
    for measure in _MEASURES:
        on, off = ([each[task, measure] for each in runs[kind]] for kind in ("on", "off"))
        ratio = ratios(on, off)
        has_goal = network == "TLS" and measure == "time"
        rows.append(
            Row(
                f"encryption: {task} over {network}: {measure} of an encrypted topic,"
                " to a plain one",
                ratio.text(".2f"),
                f"<= {_GOAL}" if has_goal else "",
                ratio.median <= _GOAL if has_goal else None,
            )
        )
    return rows
