"""Settings of the SQS front.

Pure: declarations.
"""

from typing import Final, NamedTuple

DEFAULT_ACCOUNT: Final = "000000000000"
DEFAULT_REGION: Final = "us-east-1"


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
