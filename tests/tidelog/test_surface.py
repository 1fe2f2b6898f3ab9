"""The public names."""

from pathlib import Path

import tidelog
from tidelog import surface


def test_every_public_name_is_there() -> None:
    assert all(hasattr(surface, name) for name in surface.__all__)


def test_every_error_of_the_tree_is_public() -> None:
    errors = {name for name in dir(surface) if name.endswith("Error") and not name.startswith("_")}

    assert errors <= set(surface.__all__)


async def test_a_program_can_run_a_broker_and_talk_to_it(tmp_path: Path) -> None:
    async with (
        tidelog.open_broker(tmp_path) as broker,
        tidelog.connect(broker.address) as client,
    ):
        await client.admin.create_topic("orders")
        async with client.producer() as producer:
            receipt = await producer.send("orders", b"paid")

    assert (receipt.partition, receipt.offset) == (0, 0)
