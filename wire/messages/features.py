"""Messages about the feature level of a cluster (Kafka: UpdateFeatures, KIP-584).

Pure: declarations, and the feature levels of this version.
"""

from typing import Annotated, Final

import msgspec

from tidelog.wire.messages.field_types import NodeId

FeatureLevel = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]
"""The feature level of a cluster; 0 is that of all versions without feature levels."""


class SupportedLevels(msgspec.Struct, frozen=True, array_like=True):
    """The feature levels that a version supports."""

    min_level: FeatureLevel
    """Lowest supported level (inclusive)."""
    max_level: FeatureLevel
    """Highest supported level (inclusive)."""


OWN_LEVELS: Final = SupportedLevels(0, 7)
"""The feature levels that this version supports."""


class UpdateFeaturesRequest(msgspec.Struct, frozen=True, array_like=True):
    """Change the feature level of the cluster, or describe it. The request is idempotent."""

    level: FeatureLevel | None
    """The new level; `None` changes nothing."""


class NodeFeatures(msgspec.Struct, frozen=True, array_like=True):
    """The feature levels of one node, as it registered."""

    node_id: NodeId
    supported: SupportedLevels | None
    """`None` if the node runs a version without feature levels, or has not registered."""


class UpdateFeaturesReply(msgspec.Struct, frozen=True, array_like=True):
    """The feature level of a cluster, and those of its nodes."""

    level: FeatureLevel
    """The level in force."""
    newest_level: FeatureLevel
    """Highest level that the controller supports."""
    nodes: list[NodeFeatures]
    """All members and registered brokers, by node id."""
    obstacles: list[str]
    """Why the level cannot rise to `newest_level`, a line for each node; empty if it can."""
