"""Options of jobs that were written for Spark's Kafka source and sink.

Pure: no clock, no I/O, no pyspark. Each setting of Kafka's clients has an equivalent here, or tunes
those clients only, or asks for something that tidelog does by another option or not at all.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

_PREFIX: Final = "kafka."
_PLAIN: Final = "plaintext"
_PROTOCOL: Final = "kafka.security.protocol"
_LIKELY: Final = 0.8
"""Similarity from which on one name is most likely a misspelling of another."""

EQUIVALENTS: Final = {
    "kafka.bootstrap.servers": "bootstrap.servers",
    "kafka.client.id": "client.id",
    "kafka.request.timeout.ms": "client.request.timeout.ms",
    "kafka.socket.connection.setup.timeout.ms": "client.connect.timeout.ms",
    "kafka.group.id": "groupId",
    "kafka.isolation.level": "isolation",
    "kafkaconsumer.polltimeoutms": "fetch.timeout.ms",
    "kafka.compression.type": "compression",
    "kafka.delivery.timeout.ms": "stage.timeout.ms",
}
"""Option names of Kafka jobs in lower case, with their equivalents here."""

_ALWAYS: Final = "tidelog always writes so"
_ADVICE: Final = {
    "kafka.auto.offset.reset": "say startingOffsets",
    "kafka.enable.auto.commit": "leave it out: groupId makes a stream commit its position",
    "kafka.key.deserializer": "leave it out: the columns are binary, cast them",
    "kafka.value.deserializer": "leave it out: the columns are binary, cast them",
    "kafka.key.serializer": "leave it out: cast the columns to string or binary",
    "kafka.value.serializer": "leave it out: cast the columns to string or binary",
    "kafka.interceptor.classes": "leave it out: tidelog has no interceptors",
    "kafka.partitioner.class": "leave it out: the column partition names the partition of a row",
    "kafka.transactional.id": "say transactionalId, which names exactly-once writes",
    _PROTOCOL: "say client.tls.ca for TLS, and client.user and client.password for SASL",
}
_ADVICE_BY_PREFIX: Final = {
    "kafka.sasl.": "say client.user and client.password, or client.token",
    "kafka.ssl.": "say client.tls.ca, client.tls.certificate and client.tls.key, files in PEM",
}
_TUNING: Final = "it tunes Kafka's client"
_IGNORED: Final = {
    "kafka.acks": _ALWAYS,
    "kafka.enable.idempotence": _ALWAYS,
    **dict.fromkeys(
        (
            "kafka.allow.auto.create.topics", "kafka.batch.size", "kafka.buffer.memory",
            "kafka.check.crcs", "kafka.client.dns.lookup", "kafka.client.rack",
            "kafka.compression.gzip.level", "kafka.compression.lz4.level",
            "kafka.compression.zstd.level", "kafka.connections.max.idle.ms",
            "kafka.default.api.timeout.ms", "kafka.enable.metrics.push",
            "kafka.exclude.internal.topics", "kafka.fetch.max.bytes", "kafka.fetch.max.wait.ms",
            "kafka.fetch.min.bytes", "kafka.group.instance.id", "kafka.group.protocol",
            "kafka.heartbeat.interval.ms", "kafka.linger.ms", "kafka.max.block.ms",
            "kafka.max.in.flight.requests.per.connection", "kafka.max.partition.fetch.bytes",
            "kafka.max.poll.interval.ms", "kafka.max.poll.records", "kafka.max.request.size",
            "kafka.metadata.max.age.ms", "kafka.metadata.max.idle.ms",
            "kafka.metadata.recovery.rebootstrap.trigger.ms", "kafka.metadata.recovery.strategy",
            "kafka.metric.reporters", "kafka.metrics.num.samples",
            "kafka.metrics.recording.level", "kafka.metrics.sample.window.ms",
            "kafka.partition.assignment.strategy", "kafka.receive.buffer.bytes",
            "kafka.reconnect.backoff.max.ms", "kafka.reconnect.backoff.ms", "kafka.retries",
            "kafka.retry.backoff.max.ms", "kafka.retry.backoff.ms", "kafka.send.buffer.bytes",
            "kafka.session.timeout.ms", "kafka.socket.connection.setup.timeout.max.ms",
            "kafka.transaction.timeout.ms", "kafkaconsumer.cache.capacity",
            "kafkaconsumer.cache.evictorthreadruninterval", "kafkaconsumer.cache.jmx.enable",
            "kafkaconsumer.cache.timeout",
        ),
        _TUNING,
    ),
}  # fmt: skip


def reason_to_ignore(lower: str, value: str, known: Mapping[str, str]) -> str | None:
    """Return why a setting of Kafka's clients has no effect here, `None` if it is none of these.

    Args:
        lower: Its name in lower case.
        value: Its value.
        known: The options of this source or sink, by name in lower case. An equivalent that is not
            among them serves the other direction, so that reads and writes can share options.
    """
    equivalent = EQUIVALENTS.get(lower)
    if equivalent is not None and equivalent.lower() not in known:
        return f"{equivalent} does not apply here"
    if lower == _PROTOCOL and value.strip().lower() == _PLAIN:
        return "connections are plain without client.tls.ca"
    return _IGNORED.get(lower)


def advice(lower: str) -> str | None:
    """Return what to do about an unknown option of Kafka's clients, `None` for other names."""
    if not lower.startswith(_PREFIX):
        return None
    for prefix, found in _ADVICE_BY_PREFIX.items():
        if lower.startswith(prefix):
            return found
    if lower in _ADVICE:
        return _ADVICE[lower]
    nearest = get_close_matches(lower, [*EQUIVALENTS, *_ADVICE, *_IGNORED], n=1, cutoff=_LIKELY)
    return f"did you mean {nearest[0]}?" if nearest else "tidelog has no equivalent; leave it out"
