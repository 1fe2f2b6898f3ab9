"""The blocking client, for programs without trio.

Needs a broker: `tidelog serve`. An address may be given as an argument.
"""

import sys

import tidelog.blocking

TOPIC = "example-payments"


def main(address: str) -> None:
    """Produce some records and consume the topic to its end."""
    with tidelog.blocking.connect(address) as client:
        if TOPIC not in client.admin.list_topics():
            client.admin.create_topic(TOPIC)

        with client.producer(compression_type="lz4") as producer:
            receipts = producer.send_many(TOPIC, [b"payment %d" % n for n in range(1000)])
            print(f"{sum(len(receipt.indexes) for receipt in receipts)} records are on disk")

        with client.consumer(TOPIC, auto_offset_reset="earliest") as consumer:
            # By batch, column by column: several times faster than record by record.
            total = sum(len(batch.values) for batch in consumer.batches(consumer.end_offsets()))
            print(f"read {total} records")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8433")
