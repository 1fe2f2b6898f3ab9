"""Test of the last part of the demo, with a Spark of its own."""

from functools import partial

import trio

from tests.system.spark.world import World
from tidelog.demo.spark_story import SparkReport, replay_with_spark


def test_spark_replays_a_topic_and_reads_what_its_queue_deleted(world: World) -> None:
    values = [b"%d,flight" % number for number in range(500)]
    world.client.admin.create_queue(world.topic, partitions=1)
    world.write(values)
    for message in world.client.queue(world.topic).receive(max_messages=100, wait=5):
        message.delete()

    report = trio.run(
        partial(replay_with_spark, world.address, world.topic, world.topic, values=values)
    )

    assert isinstance(report, SparkReport), report
    assert (report.rows, report.deleted) == (500, 100)
    assert report.start_seconds > 0
