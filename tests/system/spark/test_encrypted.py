"""A topic that is encrypted at rest, read and written by Spark."""

from pathlib import Path

from tests.system.spark.world import World
from tests.tidelog.brokers import broker_in_a_thread
from tidelog import blocking
from tidelog.broker.encryption.master_keys import master_key_line

SECRET = b"a record that no disk may show"


def test_spark_reads_and_writes_an_encrypted_topic_and_skips_shredded_records(
    world: World, tmp_path: Path
) -> None:
    key_file, data = tmp_path / "master.key", tmp_path / "data"
    key_file.touch(mode=0o600)
    key_file.write_text(master_key_line(bytes(range(32))), encoding="ascii")
    with (
        broker_in_a_thread(data, master_key_file=str(key_file)) as address,
        blocking.connect(address) as client,
    ):
        there = World(world.spark, address, client, data, world.topic)
        client.admin.create_topic(there.topic, 2, config={"encryption": "on"})
        there.write([SECRET, b"a"])
        there.write([b"b"] * 100, partition=1)
        table = world.spark.sql("SELECT X'" + SECRET.hex() + "' AS value, 0 AS partition")
        writer = table.write.format("tidelog").option("bootstrap.servers", address)
        writer.option("topic", there.topic).mode("append").save()
        assert there.values() == [SECRET, b"a", SECRET, *[b"b"] * 100]

        client.security.shred_data_keys(there.topic)
        there.write([b"later"])

        assert there.values() == [b"later"]
    files = [each.read_bytes() for each in data.rglob("*") if each.is_file()]
    assert not any(SECRET in each for each in files)
