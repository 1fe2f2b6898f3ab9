"""Settings of the SQS front.

Pure: declarations.
"""

from typing import Final, NamedTuple

DEFAULT_ACCOUNT: Final = "000000000000"
DEFAULT_REGION: Final = "us-east-1"

DELIVERY_S: Final = 25.0
"""Seconds after which the client of a front makes no further attempt to send a message: SDKs send
it again after 60 s, and both would be in the queue when its broker is back."""
REQUEST_S: Final = 15.0
"""Seconds for which the client of a front repeats other requests, and waits for a late answer: with
the 20 s of a long poll, or with `DELIVERY_S`, less than SDKs wait."""


class FrontSettings(NamedTuple):
    """Settings that the actions know."""

    account: str = DEFAULT_ACCOUNT
    """Account whose queues have no prefix in tidelog."""
    region: str = DEFAULT_REGION
    """Region whose queues have no prefix in tidelog."""
    public_url: str = ""
    """Scheme and authority in the URLs of queues, such as `https://sqs.example.com`; empty means
    what each request names in its header `Host`."""
    is_strict: bool = False
    """Whether to imitate limits of the cloud that tidelog does not need (`--strict-sqs`)."""
    partitions: int = 1
    """Partitions of the queues that `CreateQueue` makes: standard ones, and FIFO ones with high
    throughput. Each is served by one broker; FIFO queues compare deduplication ids in one."""
