"""Names, URLs and ARNs of queues: accounts and regions are prefixes of names in tidelog.

Pure: no clock, no I/O. The queue `orders` of the default account and region is `orders`; of another
region `eu-west-1.orders`; of another account `111122223333.orders`; of both
`111122223333.eu-west-1.orders`.
"""

from typing import NamedTuple


class QueueScope(NamedTuple):
    """Account and region of a request, and the address under which its client reaches the front."""

    account: str
    region: str
    default_account: str
    default_region: str
    base_url: str
    """Scheme and authority, without a slash at the end, such as `http://127.0.0.1:9324`."""

    def queue_named(self, name: str, account: str | None = None) -> str:
        """Return the tidelog name of a queue of this region, by default of this account."""
        owner = account or self.account
        region = "" if self.region == self.default_region else f"{self.region}."
        prefix = "" if owner == self.default_account else f"{owner}."
        return f"{prefix}{region}{name}"

    def url_of(self, name: str, account: str | None = None) -> str:
        """Return the URL of a queue by its SQS name."""
        return f"{self.base_url}/{account or self.account}/{name}"

    def arn_of(self, name: str, account: str | None = None) -> str:
        """Return the ARN of a queue by its SQS name."""
        return f"arn:aws:sqs:{self.region}:{account or self.account}:{name}"
