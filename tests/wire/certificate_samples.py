"""Examples of the messages about certificates."""

from tidelog.wire.messages.certificates import ListCertificatesReply, ListCertificatesRequest

LIST = (
    ListCertificatesRequest(),
    ListCertificatesReply(
        node_id=1,
        tls="require",
        name="tidelog://blue/node/1",
        serial="15c80e48e6b53dc8",
        expires_at_ms=1_800_000_000_000,
        authority_expires_at_ms=2_000_000_000_000,
    ),
)
