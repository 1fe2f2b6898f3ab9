"""Load roles for Kafka, through confluent-kafka."""

from time import perf_counter, sleep  # noqa: TID251  (messages are sent when due)
from typing import Any, Final

from bench.peers.kafka_asyncio import ROLES as ASYNCIO_ROLES
from bench.peers.libraries import library
from bench.peers.load import PACE_COUNT, Gate, Pace, Role, make_values
from bench.peers.orders import Order
from bench.peers.promises import Promise

_kafka = library("confluent_kafka")
_admin = library("confluent_kafka.admin")

_CONSUME_COUNT: Final = 10_000
_POLL_S: Final = 0.05
_PATIENCE_S: Final = 60.0


def _create(order: Order, gate: Gate) -> None:
    promise = Promise(order.promise)
    config = {"flush.messages": "1"} if promise.is_fsync else {}
    if promise.node_count > 1:
        config["min.insync.replicas"] = "2"
    config["max.message.bytes"] = str(8 << 20)
    config["file.delete.delay.ms"] = (
        "1000"  # The default would keep a minute of repetitions on disk.
    )
    topic = _admin.NewTopic(order.name, order.partitions, promise.node_count, config=config)
    admin = _admin.AdminClient({"bootstrap.servers": order.addresses, "log_level": 3})
    until = gate.open() + _PATIENCE_S
    while not _is_created(admin, topic):
        if perf_counter() > until:
            raise RuntimeError(f"there are no {promise.node_count} brokers")
        sleep(_POLL_S)
    gate.close()


def _is_created(admin: Any, topic: Any) -> bool:  # noqa: ANN401
    """Create a topic; return whether there were as many brokers as it has replicas."""
    for future in admin.create_topics([topic]).values():
        try:
            future.result()
        except _kafka.KafkaException as error:
            if error.args[0].code() != _kafka.KafkaError.INVALID_REPLICATION_FACTOR:
                raise
            return False
    return True


def _delete(order: Order, gate: Gate) -> None:
    admin = _admin.AdminClient({"bootstrap.servers": order.addresses, "log_level": 3})
    gate.open()
    for future in admin.delete_topics([order.name]).values():
        future.result()
    gate.close()


def _producer(order: Order, **more: Any) -> Any:  # noqa: ANN401
    producer = _kafka.Producer(
        {
            "bootstrap.servers": order.addresses,
            "log_level": 3,
            "acks": "all",
            "enable.idempotence": True,
            "queue.buffering.max.messages": 1_000_000,
            **more,
        }
    )
    producer.list_topics(order.name, timeout=_PATIENCE_S)  # Connects.
    return producer


def _flush(producer: Any) -> None:  # noqa: ANN401
    while producer.flush(_PATIENCE_S):
        pass


def _hand_over(producer: Any, topic: str, value: bytes) -> None:  # noqa: ANN401
    while True:
        try:
            producer.produce(topic, value)
        except BufferError:
            producer.poll(_POLL_S)
        else:
            return


def _produce(order: Order, gate: Gate) -> None:
    values = make_values(order)
    producer = _producer(order)
    before = sum(end for _, end in _ends(order))
    topic, produce = order.name, producer.produce
    gate.open()
    for value in values:
        try:
            produce(topic, value)
        except BufferError:
            producer.poll(_POLL_S)
            _hand_over(producer, topic, value)
    _flush(producer)
    gate.close()
    found = sum(end for _, end in _ends(order)) - before
    assert found == order.count, f"{found} records are there"


def _ends(order: Order) -> list[tuple[int, int]]:
    """Return the first offset and the end of each partition."""
    consumer = _kafka.Consumer({"bootstrap.servers": order.addresses, "group.id": "bench"})
    until = perf_counter() + _PATIENCE_S
    ends: list[tuple[int, int]] = []
    while len(ends) < order.partitions:
        place = _kafka.TopicPartition(order.name, len(ends))
        try:
            ends.append(consumer.get_watermark_offsets(place, _PATIENCE_S))
        except _kafka.KafkaException:
            # The metadata of many new partitions, and of their leaders, is incomplete at first.
            if perf_counter() > until:
                raise
            sleep(_POLL_S)
    consumer.close()
    return ends


def _consumer(order: Order, **more: Any) -> Any:  # noqa: ANN401
    consumer = _kafka.Consumer(
        {
            "bootstrap.servers": order.addresses,
            "log_level": 3,
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 1_000_000,
            "fetch.queue.backoff.ms": 1,
            **more,
        }
    )
    consumer.list_topics(order.name, timeout=_PATIENCE_S)  # Connects.
    return consumer


def _assign(consumer: Any, order: Order) -> None:  # noqa: ANN401
    consumer.assign(
        [_kafka.TopicPartition(order.name, number, 0) for number in range(order.partitions)]
    )


def _value(message: Any) -> bytes:  # noqa: ANN401
    error = message.error()
    if error is not None:
        raise RuntimeError(str(error))
    value: bytes = message.value()
    return value


def _consume(order: Order, gate: Gate) -> None:
    consumer = _consumer(order)
    left = order.count
    gate.open()
    _assign(consumer, order)
    if order.way == "records":
        poll = consumer.poll
        while left:
            message = poll(_PATIENCE_S)
            left -= len(_value(message)) == order.value_bytes
    while left:
        values = [_value(each) for each in consumer.consume(_CONSUME_COUNT, _POLL_S)]
        left -= len(values)
    gate.close()
    consumer.close()


def _pace(order: Order, gate: Gate) -> None:
    producer = _producer(order, **{"linger.ms": 0})
    pace = Pace(order, gate.open())
    while not pace.is_over:
        for value in pace.take(PACE_COUNT):
            _hand_over(producer, order.name, value)
        sleep(pace.delay())
    _flush(producer)
    gate.close()


def _tail(order: Order, gate: Gate) -> None:
    consumer = _consumer(order)
    _assign(consumer, order)
    consumer.poll(_POLL_S)
    left = order.count
    gate.open()
    while left:
        message = consumer.poll(_POLL_S)
        if message is None:
            continue
        # Consume the other available messages without waiting.
        for each in [message, *consumer.consume(_CONSUME_COUNT, 0)]:
            gate.saw(_value(each))
            left -= 1
    gate.close()
    consumer.close()


ROLES: Final[dict[str, Role]] = {
    "create": _create,
    "delete": _delete,
    "produce": _produce,
    "consume": _consume,
    "pace": _pace,
    "tail": _tail,
    **ASYNCIO_ROLES,
}
