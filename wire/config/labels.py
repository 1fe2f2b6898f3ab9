"""Labels of topics and queues: free names and values (SQS: tags).

Pure: no clock, no I/O.
"""

from collections.abc import Mapping

from tidelog.wire.errors import InvalidConfigError
from tidelog.wire.messages.field_types import LABELS_BYTES_MAX


def check_labels(labels: Mapping[str, str]) -> None:
    """Check that a topic or queue may have these labels.

    Raises:
        InvalidConfigError: A name is empty, or the labels are too large.
    """
    if "" in labels:
        raise InvalidConfigError("a label has an empty name, it must have 1 character or more")
    size_bytes = sum(len(name.encode()) + len(value.encode()) for name, value in labels.items())
    if size_bytes > LABELS_BYTES_MAX:
        raise InvalidConfigError(
            f"the labels have {size_bytes} bytes of names and values, they must have at most"
            f" {LABELS_BYTES_MAX}; shorten or remove some"
        )


def first_different_label(wanted: Mapping[str, str], there: Mapping[str, str]) -> str | None:
    """Return the first label that differs, by name, as a sentence; `None` if all are equal."""
    for name in sorted(wanted.keys() | there.keys()):
        if name not in there:
            return f"it has no label {name!r}"
        if name not in wanted:
            return f"it has a label {name!r}"
        if wanted[name] != there[name]:
            return f"its label {name!r} has another value"
    return None
