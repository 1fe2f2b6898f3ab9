"""Bulk repair of dead letters: Spark reads them, repairs them and writes them to their topic.

    python examples/spark_dead_letters.py [BROKER]

Cancelled flights have no delay, so a worker rejects them. Spark reads them with their origins and
reasons, and writes the repaired messages to their source topic, all of them or none.
Needs a broker (`tidelog serve`), `pip install 'tidelog[spark]'` and Java.
"""

import sys
from collections import Counter

from pyspark.sql import DataFrame, SparkSession

import tidelog.spark
from tidelog import blocking
from tidelog.demo.flights import load_flights

DEAD = "spark-dead"
FLIGHT_COUNT = 2000


def work(queue_name: str, address: str) -> int:
    """Send flights to a queue, and reject cancelled flights; return their count."""
    flights = load_flights()
    delay = flights.columns.index("dep_delay")
    rejected = 0
    with blocking.connect(address) as client:
        client.admin.create_queue(DEAD, partitions=1)
        client.admin.create_queue(queue_name, partitions=1, dead_letter_queue=DEAD)
        queue = client.queue(queue_name)
        queue.send_batch(flights.values[:FLIGHT_COUNT])
        left = FLIGHT_COUNT
        while left:
            for message in queue.receive(max_messages=500, wait=5):
                left -= 1
                if (message.value or b"").split(b",")[delay] in (b"NA", b""):
                    message.reject("no delay")
                    rejected += 1
                else:
                    message.delete()
        with client.consumer(DEAD, auto_offset_reset="earliest") as consumer:
            for _ in zip(range(rejected), consumer, strict=False):
                pass  # The broker has moved a dead letter.
    return rejected


def dead_letters(spark: SparkSession, queue_name: str, address: str) -> DataFrame:
    """Return the dead letters of a queue as a table."""
    return (
        spark.read.format("tidelog")
        .option("bootstrap.servers", address)
        .option("queueDeadLetters", queue_name)
        .load()
    )


def repair(letters: DataFrame) -> DataFrame:
    """Return the repaired messages, with a delay of 0, as rows to write."""
    delay = load_flights().columns.index("dep_delay")
    fields = "split(CAST(value AS STRING), ',')"
    fixed = (
        f"array_join(transform({fields}, (field, place) ->"
        f" IF(place = {delay}, '0', field)), ',') AS value"
    )
    header = "array(struct('repaired' AS key, CAST(reason AS BINARY) AS value)) AS headers"
    return letters.where("reason = 'no delay'").selectExpr(
        "key", fixed, "originTopic AS topic", "originPartition AS partition", header
    )


def write_back(repaired: DataFrame, address: str) -> Counter[str]:
    """Send repaired messages to their source topics; return the count by topic.

    All of them are there when this returns, or none if it fails: it can be run again.
    """
    repaired = repaired.cache()
    found = repaired.groupBy("topic").count().collect()
    counts = Counter({row["topic"]: row["count"] for row in found})
    writer = repaired.write.format("tidelog").option("bootstrap.servers", address)
    writer.mode("append").save()
    repaired.unpersist()
    return counts


def main() -> None:
    """Run the example."""
    address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8433"
    queue = "spark-flights-queue"
    print(f"{work(queue, address)} of {FLIGHT_COUNT} flights were rejected")
    builder = SparkSession.builder.master("local[2]").appName("dead letters")
    spark = tidelog.spark.session(builder)
    letters = dead_letters(spark, queue, address)
    letters.groupBy("originQueue", "reason").count().show()
    for topic, count in write_back(repair(letters), address).items():
        print(f"{count} repaired messages were sent to {topic}")
    spark.stop()


if __name__ == "__main__":
    main()
