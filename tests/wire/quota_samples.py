"""Samples of messages about quotas."""

from tidelog.wire.messages.quotas import (
    AlterQuotasReply,
    AlterQuotasRequest,
    ListQuotasReply,
    ListQuotasRequest,
    PrincipalShare,
    PrincipalUse,
    QuotaDescription,
)

USE = PrincipalUse(
    principal="user:alice",
    rates=[10_000_000, 2_000, 500, 120],
    demands=[20_000_000, 2_500, 625, 150],
    throttled_ms=400,
    connections=12,
    storage_bytes=3_000_000_000,
)
SHARE = PrincipalShare(
    principal="user:alice", rates=[4_000_000, 0, 250, 0], storage_bytes=9_000_000_000
)
ALTER = (
    AlterQuotasRequest(
        principal="user:alice",
        set_values={"produce_bytes_per_s": 10_485_760, "over_quota": 1},
        remove_names=["queues_max"],
    ),
    AlterQuotasReply(values={"produce_bytes_per_s": 10_485_760, "over_quota": 1}),
)
LIST = (
    ListQuotasRequest(principals=["user:alice", "default"]),
    ListQuotasReply(
        quotas=[
            QuotaDescription(
                principal="user:alice",
                values={"produce_bytes_per_s": 10_485_760},
                is_own=True,
                use={"produce_bytes_per_s": 10_400_000, "partitions_max": 7},
                throttled_ms=400,
            )
        ]
    ),
)
