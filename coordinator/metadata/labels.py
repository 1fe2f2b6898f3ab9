"""Changes of the labels of topics and queues.

Pure: no clock, no I/O.
"""

from collections.abc import Collection, Mapping

from tidelog.coordinator.metadata.catalog import TopicLabelsSet
from tidelog.wire.config.labels import check_labels
from tidelog.wire.errors import InvalidConfigError


def change_labels(
    topic_id: bytes,
    labels: Mapping[str, str],
    *,
    set_labels: Mapping[str, str],
    remove_labels: Collection[str] = (),
) -> list[TopicLabelsSet]:
    """Return the record that changes the labels of a topic or journal; none without a change.

    Raises:
        InvalidConfigError: A label is set and removed, has no name, or the labels are too large.
    """
    for name in remove_labels:
        if name in set_labels:
            raise InvalidConfigError(f"label {name!r} cannot be set and removed at the same time")
    kept = {name: value for name, value in labels.items() if name not in remove_labels}
    changed = {**kept, **set_labels}
    check_labels(changed)
    return [] if changed == labels else [TopicLabelsSet(topic_id, changed)]
