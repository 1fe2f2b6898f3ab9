"""Staged batches for programs without trio, against a real broker over real sockets."""

from pathlib import Path

from tests.tidelog.brokers import broker_in_a_thread
from tidelog import blocking
from tidelog.client.producer.producer_record import ProducerRecord


def test_a_batch_is_staged_committed_and_never_undone(tmp_path: Path) -> None:
    with broker_in_a_thread(tmp_path) as address, blocking.connect(address) as client:
        client.admin.create_topic("orders", 1)
        transaction = client.transaction("job", 0)
        with transaction.task() as task:
            assert not task.is_committed
            task.send_many("orders", [b"a"], keys=[b"k"])
            task.send_records("orders", [ProducerRecord("", b"b", partition=0)])

        transaction.commit([task.result])
        transaction.commit([task.result])

        assert transaction.abort()
        with client.consumer("orders", auto_offset_reset="earliest") as consumer:
            until = consumer.end_offsets()
            assert [record.value for record in consumer.records(until)] == [b"a", b"b"]
        assert not client.transaction("job", 1).abort()
