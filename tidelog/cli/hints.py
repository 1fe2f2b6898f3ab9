"""The spelling of tidelog for commands and options of Kafka, kcat, SQS and RabbitMQ.

Pure: data and a lookup. `main` prints the hint in place of "No such option".
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, final

CONSUMER, PRODUCER = "kafka-console-consumer", "kafka-console-producer"
TOPICS, GROUPS, CONFIGS = "kafka-topics", "kafka-consumer-groups", "kafka-configs"
KCAT, SQS, RABBIT = "kcat", "aws sqs", "rabbitmqadmin"
OTHERS = "other programs"


@final
class Hint(NamedTuple):
    """A foreign word after a command of tidelog, and the line that does the same here."""

    command: str
    """The words of the command of tidelog, such as `topic create`; empty for `tidelog` itself."""
    word: str
    """The foreign option or command."""
    tool: str
    """The program that has it."""
    line: str
    """The line to write, an example."""


_TABLE: Final[Mapping[tuple[str, str], Mapping[str, str]]] = {
    (CONSUMER, "consume"): {
        "--command-config": "tidelog consume orders --broker localhost:8433",
        "--consumer-property": "tidelog consume orders --group billing",
        "--consumer.config": "tidelog consume orders --broker localhost:8433",
        "--formatter": "tidelog consume orders --json",
        "--formatter-config": "tidelog consume orders --json",
        "--formatter-property": "tidelog consume orders --key-separator :",
        "--include": "tidelog topic list --prefix orders",
        "--isolation-level": "tidelog consume orders",
        "--key-deserializer": "tidelog consume orders --json",
        "--property": "tidelog consume orders --key-separator :",
        "--timeout-ms": "tidelog consume orders --from beginning --until-end",
        "--value-deserializer": "tidelog consume orders --json",
        "--whitelist": "tidelog topic list --prefix orders",
        "--zookeeper": "tidelog consume orders --broker localhost:8433",
    },
    (PRODUCER, "produce"): {
        "--broker-list": "tidelog produce orders --broker localhost:8433",
        "--command-config": "tidelog produce orders --broker localhost:8433",
        "--compression-codec": "tidelog produce orders --compression lz4",
        "--line-reader": "tidelog produce orders --key-separator :",
        "--message-send-max-retries": "tidelog produce orders --delivery-timeout 30s",
        "--producer-property": "tidelog produce orders --compression lz4",
        "--producer.config": "tidelog produce orders --compression lz4",
        "--property": "tidelog produce orders --key-separator :",
        "--reader-config": "tidelog produce orders --key-separator :",
        "--reader-property": "tidelog produce orders --key-separator :",
        "--request-required-acks": "tidelog produce orders --acks all",
        "--request-timeout-ms": "tidelog produce orders --delivery-timeout 30s",
    },
    (KCAT, "consume"): {
        "-C": "tidelog consume orders",
        "-G": "tidelog consume orders --group billing",
        "-X": "tidelog consume orders --read-from followers",
        "-t": "tidelog consume orders",
    },
    (KCAT, "produce"): {
        "-P": "tidelog produce orders",
        "-X": "tidelog produce orders --compression lz4",
        "-l": "tidelog produce orders --file lines.txt",
        "-t": "tidelog produce orders",
    },
    (KCAT, ""): {
        "-C": "tidelog consume orders",
        "-G": "tidelog consume orders --group billing",
        "-L": "tidelog topic list",
        "-P": "tidelog produce orders",
        "-t": "tidelog consume orders",
    },
    (TOPICS, "topic"): {
        "--alter": "tidelog topic alter orders --set retention_ms=1d",
        "--config": "tidelog topic create orders --config retention_ms=1d",
        "--create": "tidelog topic create orders --partitions 6",
        "--delete": "tidelog topic delete orders",
        "--describe": "tidelog topic describe orders",
        "--exclude-internal": "tidelog topic list",
        "--list": "tidelog topic list",
        "--partitions": "tidelog topic create orders --partitions 6",
        "--replication-factor": "tidelog topic create orders --replication-factor 3",
        "--topic": "tidelog topic describe orders",
        "--topics-with-overrides": "tidelog topic list --json",
        "--unavailable-partitions": "tidelog cluster status --partitions",
        "--under-min-isr-partitions": "tidelog cluster status --partitions",
        "--under-replicated-partitions": "tidelog cluster status --partitions",
        "--zookeeper": "tidelog topic --broker localhost:8433 list",
    },
    (TOPICS, "topic create"): {
        "--if-not-exists": "tidelog topic create orders",
        "--replica-assignment": "tidelog cluster reassign --topic orders --partition 0 --to 1,2,3",
    },
    (TOPICS, "topic describe"): {
        "--unavailable-partitions": "tidelog cluster status --partitions",
        "--under-min-isr-partitions": "tidelog cluster status --partitions",
        "--under-replicated-partitions": "tidelog cluster status --partitions",
    },
    (TOPICS, "topic delete"): {"--if-exists": "tidelog topic delete orders"},
    (TOPICS, "topic alter"): {
        "--config": "tidelog topic alter orders --set retention_ms=1d",
        "--partitions": "tidelog topic add-partitions orders --to 12",
    },
    (CONFIGS, "topic alter"): {
        "--add-config": "tidelog topic alter orders --set retention_ms=1d",
        "--delete-config": "tidelog topic alter orders --reset retention_ms",
        "--entity-name": "tidelog topic alter orders --set retention_ms=1d",
    },
    (CONFIGS, "cluster alter"): {
        "--add-config": "tidelog cluster alter --set min_insync_replicas=2",
        "--delete-config": "tidelog cluster alter --reset min_insync_replicas",
    },
    (GROUPS, "group"): {
        "--all-groups": "tidelog group list",
        "--delete": "tidelog group delete billing",
        "--describe": "tidelog group describe billing",
        "--group": "tidelog group describe billing",
        "--list": "tidelog group list",
        "--reset-offsets": "tidelog group reset-offsets billing --topic orders --from beginning",
        "reset": "tidelog group reset-offsets billing --topic orders --from beginning",
    },
    (GROUPS, "group describe"): {
        "--all-groups": "tidelog group list",
        "--members": "tidelog group describe billing",
        "--offsets": "tidelog group describe billing",
        "--state": "tidelog group describe billing",
        "--verbose": "tidelog group describe billing --json",
    },
    (GROUPS, "group reset-offsets"): {
        "--all-topics": "tidelog group reset-offsets billing --topic orders --from beginning",
        "--by-duration": "tidelog group reset-offsets billing --topic orders --from 1h",
        "--execute": "tidelog group reset-offsets billing --topic orders --from beginning",
        "--shift-by": "tidelog group reset-offsets billing --topic orders --shift -10",
        "--to-datetime": "tidelog group reset-offsets billing --topic orders --from 2026-01-31",
    },
    (SQS, "queue"): {
        "change-message-visibility": "tidelog queue change-visibility jobs HANDLE --seconds 30",
        "create-queue": "tidelog queue create jobs",
        "delete-message-batch": "tidelog queue delete-message jobs HANDLE",
        "delete-queue": "tidelog queue delete jobs",
        "get-queue-attributes": "tidelog queue describe jobs",
        "get-queue-url": "tidelog queue describe jobs",
        "list-dead-letter-source-queues": "tidelog queue describe jobs",
        "list-queues": "tidelog queue list",
        "purge-queue": "tidelog queue purge jobs",
        "receive-message": "tidelog queue receive jobs --max 1",
        "send-message": "tidelog queue send jobs 'order 17'",
        "send-message-batch": "tidelog queue send jobs 'order 17' 'order 18'",
        "set-queue-attributes": "tidelog queue alter jobs --set visibility_timeout_ms=30s",
        "start-message-move-task": "tidelog queue redrive jobs-dead",
        "tag-queue": "tidelog queue alter jobs --label team=billing",
    },
    (SQS, "queue create"): {
        "--attributes": "tidelog queue create jobs --config visibility_timeout_ms=30s",
        "--delay-seconds": "tidelog queue create jobs --config delivery_delay_ms=30s",
        "--queue-name": "tidelog queue create jobs",
        "--tags": "tidelog queue create jobs --label team=billing",
        "--visibility-timeout": "tidelog queue create jobs --config visibility_timeout_ms=30s",
    },
    (SQS, "queue alter"): {
        "--attributes": "tidelog queue alter jobs --set visibility_timeout_ms=30s",
        "--queue-url": "tidelog queue alter jobs --set visibility_timeout_ms=30s",
    },
    (SQS, "queue describe"): {
        "--attribute-names": "tidelog queue describe jobs",
        "--queue-url": "tidelog queue describe jobs",
    },
    (SQS, "queue delete"): {"--queue-url": "tidelog queue delete jobs"},
    (SQS, "queue purge"): {"--queue-url": "tidelog queue purge jobs"},
    (SQS, "queue list"): {"--queue-name-prefix": "tidelog queue list --prefix jobs"},
    (SQS, "queue send"): {
        "--delay-seconds": "tidelog queue send jobs 'order 17' --delay 30s",
        "--entries": "tidelog queue send jobs 'order 17' 'order 18'",
        "--message-attributes": "tidelog queue send jobs 'order 17' --headers name=value",
        "--message-body": "tidelog queue send jobs 'order 17'",
        "--message-deduplication-id": "tidelog queue send jobs 'order 17' --deduplication-id t-1",
        "--message-group-id": "tidelog queue send jobs 'order 17' --group account-7",
        "--queue-url": "tidelog queue send jobs 'order 17'",
    },
    (SQS, "queue receive"): {
        "--attribute-names": "tidelog queue receive jobs --json",
        "--max-number-of-messages": "tidelog queue receive jobs --max 10",
        "--message-attribute-names": "tidelog queue receive jobs --json",
        "--queue-url": "tidelog queue receive jobs",
        "--receive-request-attempt-id": "tidelog queue receive jobs --attempt-id a-1",
        "--wait-time-seconds": "tidelog queue receive jobs --wait 20s",
    },
    (SQS, "queue delete-message"): {
        "--queue-url": "tidelog queue delete-message jobs HANDLE",
        "--receipt-handle": "tidelog queue delete-message jobs HANDLE",
    },
    (SQS, "queue change-visibility"): {
        "--queue-url": "tidelog queue change-visibility jobs HANDLE --seconds 30",
        "--receipt-handle": "tidelog queue change-visibility jobs HANDLE --seconds 30",
        "--visibility-timeout": "tidelog queue change-visibility jobs HANDLE --seconds 30",
    },
    (SQS, "queue redrive"): {
        "--destination-arn": "tidelog queue redrive jobs-dead --to-topic orders",
        "--max-number-of-messages-per-second": "tidelog queue redrive jobs-dead --rate 100",
        "--source-arn": "tidelog queue redrive jobs-dead",
    },
    (SQS, "sqs"): {"--endpoint-url": "tidelog sqs --listen 127.0.0.1:9324"},
    (SQS, ""): {
        "create-queue": "tidelog queue create jobs",
        "delete-message": "tidelog queue delete-message jobs HANDLE",
        "list-queues": "tidelog queue list",
        "purge-queue": "tidelog queue purge jobs",
        "receive-message": "tidelog queue receive jobs --max 1",
        "send-message": "tidelog queue send jobs 'order 17'",
    },
    (RABBIT, ""): {
        "declare": "tidelog queue create jobs",
        "delete_queue": "tidelog queue delete jobs",
        "get": "tidelog queue receive jobs --max 1",
        "list": "tidelog queue list",
        "list_queues": "tidelog queue list",
        "publish": "tidelog queue send jobs 'order 17'",
        "purge": "tidelog queue purge jobs",
        "purge_queue": "tidelog queue purge jobs",
    },
    (RABBIT, "queue"): {
        "declare": "tidelog queue create jobs",
        "get": "tidelog queue receive jobs --max 1",
        "publish": "tidelog queue send jobs 'order 17'",
    },
    (TOPICS, ""): {
        "kafka-topics": "tidelog topic list",
        "kafka-topics.sh": "tidelog topic list",
        "topics": "tidelog topic list",
    },
    (CONSUMER, ""): {
        "kafka-console-consumer": "tidelog consume orders --from-beginning",
        "kafka-console-consumer.sh": "tidelog consume orders --from-beginning",
    },
    (PRODUCER, ""): {
        "kafka-console-producer": "tidelog produce orders",
        "kafka-console-producer.sh": "tidelog produce orders",
    },
    (GROUPS, ""): {
        "consumer-groups": "tidelog group list",
        "groups": "tidelog group list",
        "kafka-consumer-groups": "tidelog group list",
        "kafka-consumer-groups.sh": "tidelog group list",
    },
    (OTHERS, ""): {
        "help": "tidelog --help",
        "status": "tidelog cluster status",
        "version": "tidelog --version",
    },
    (OTHERS, "queue"): {
        "info": "tidelog queue describe jobs",
        "stats": "tidelog queue describe jobs",
        "status": "tidelog queue describe jobs",
    },
    (OTHERS, "serve"): {
        "--bind": "tidelog serve --listen 127.0.0.1:9000",
        "--host": "tidelog serve --listen 127.0.0.1:9000",
        "--port": "tidelog serve --listen 127.0.0.1:9000",
    },
    (OTHERS, "sqs"): {
        "--bind": "tidelog sqs --listen 127.0.0.1:9324",
        "--host": "tidelog sqs --listen 127.0.0.1:9324",
        "--port": "tidelog sqs --listen 127.0.0.1:9324",
        "-H": "tidelog sqs --listen 127.0.0.1:9324",
        "-p": "tidelog sqs --listen 127.0.0.1:9324",
    },
    (OTHERS, "topic"): {
        "info": "tidelog topic describe orders",
        "stats": "tidelog topic usage",
        "status": "tidelog topic describe orders",
    },
    (CONFIGS, ""): {
        "configs": "tidelog topic alter orders --set retention_ms=1d",
        "kafka-configs": "tidelog topic alter orders --set retention_ms=1d",
        "kafka-configs.sh": "tidelog topic alter orders --set retention_ms=1d",
    },
}
"""The lines by the tool and the command of tidelog, and then by the foreign word."""


def all_hints() -> Iterator[Hint]:
    """Yield every hint."""
    for (tool, command), lines in _TABLE.items():
        for word, line in lines.items():
            yield Hint(command, word, tool, line)


def hint_for(command: str, word: str) -> str | None:
    """Return the hint for a foreign word; `None` if the word is not known.

    Args:
        command: The words of the command that got it, without `tidelog`.
        word: The option or command.
    """
    found = next((each for each in all_hints() if each[:2] == (command, word)), None)
    if found is None:
        return None
    return f"{found.word} belongs to {found.tool}; the same with tidelog: `{found.line}`"
