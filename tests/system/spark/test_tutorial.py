"""The Spark program of the tutorial prints what the tutorial shows."""

import pytest

from tests.paths import ROOT
from tests.system.docs.blocks import blocks_of, commands_of, is_like
from tests.system.spark.world import World

ORDERS = (
    (b"ann", b"1,book,12"),
    (b"bob", b"2,lamp,30"),
    (b"ann", b"3,card,free"),
    (b"cleo", b"4,desk,150"),
    (b"bob", b"5,chair,80"),
    (b"ann", b"3,card,free"),
)


def test_the_deleted_orders_of_the_tutorial_are_replayed(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = blocks_of((ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8"))
    place = next(n for n, block in enumerate(blocks) if block.file == "replay.py")
    program, output = blocks[place : place + 2]
    world.create()
    with world.client.producer() as producer:
        for key, value in ORDERS:
            producer.send(world.topic, value, key=key)

    text = program.text.replace("127.0.0.1:8433", world.address).replace('"orders"', '"TOPIC"')
    exec(compile(text.replace("TOPIC", world.topic), program.file, "exec"), {})

    (shown,) = commands_of(output.text)
    assert is_like(shown.output, capsys.readouterr().out)
