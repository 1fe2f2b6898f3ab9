"""Actions on the tags of queues, which are labels in tidelog.

Shell: they ask brokers.
"""

from collections.abc import Mapping
from typing import Final

from tidelog.gateway.sqs.attributes import OWN_LABELS
from tidelog.gateway.sqs.protocol.errors import INVALID_PARAMETER_VALUE, SqsError

TAGS_MAX: Final = 50
KEY_LENGTH_MAX: Final = 128
VALUE_LENGTH_MAX: Final = 256


def check_tags(queue: str, tags: Mapping[str, str], others: int) -> None:
    """Check that a queue may have tags, beside a number of others.

    Raises:
        SqsError: They are too many or too long, or their names are reserved.
    """
    if len(tags) + others > TAGS_MAX:
        raise SqsError(INVALID_PARAMETER_VALUE, f"Too many tags added for queue {queue}.")
    for key, value in tags.items():
        if not 1 <= len(key) <= KEY_LENGTH_MAX:
            raise SqsError(
                INVALID_PARAMETER_VALUE, "Tag keys must be between 1 and 128 characters in length."
            )
        if len(value) > VALUE_LENGTH_MAX:
            raise SqsError(
                INVALID_PARAMETER_VALUE,
                "Tag values must be between 0 and 256 characters in length.",
            )
        if key.lower().startswith("aws:"):
            raise SqsError(
                INVALID_PARAMETER_VALUE,
                "Tag keys that begin with aws: are reserved for system use.",
            )
        if key.startswith(OWN_LABELS):
            raise SqsError(
                INVALID_PARAMETER_VALUE, f"Tag keys that begin with {OWN_LABELS} are reserved."
            )
