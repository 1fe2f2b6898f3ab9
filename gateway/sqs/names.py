"""Names, URLs and ARNs of queues: accounts and regions are prefixes of names in tidelog.

Pure: no clock, no I/O. The queue `orders` of the default account and region is `orders`; of another
region `eu-west-1.orders`; of another account `111122223333.orders`; of both
`111122223333.eu-west-1.orders`.

A name of SQS has no `.` but that of `.fifo`, so a tidelog name has one reading at most. The name
`fifo` would be the exception: `eu-west-1.fifo` is a FIFO queue of the default region. So no queue
behind a prefix is called `fifo`.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from tidelog.gateway.sqs.protocol.errors import (
    INVALID_ADDRESS,
    SqsError,
    missing_parameter,
    queue_does_not_exist,
)

FIFO_SUFFIX: Final = ".fifo"
NAME_LENGTH_MAX: Final = 80
_STEM: Final = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_ACCOUNT: Final = re.compile(r"[0-9]{12}", re.ASCII)
_URL: Final = re.compile(r"[^?#]*/([0-9]{12})/([^/?#]+)/?", re.ASCII)
_ARN: Final = re.compile(r"arn:aws[a-z-]*:sqs:([a-z0-9-]+):([0-9]{12}):([^:/]+)", re.ASCII)
_ADDRESSES: Final = 10_000
"""URLs whose parts are remembered."""


class QueuePlace(NamedTuple):
    """Account, region and name of a queue, as SQS has them."""

    account: str
    region: str
    name: str

    @property
    def arn(self) -> str:
        """The ARN of the queue."""
        return f"arn:aws:sqs:{self.region}:{self.account}:{self.name}"


class QueueScope(NamedTuple):
    """Account and region of a request, and the address under which its client reaches the front."""

    account: str
    region: str
    default_account: str
    default_region: str
    base_url: str
    """Scheme and authority, without a slash at the end, such as `http://127.0.0.1:9324`."""

    def queue_named(self, name: str, account: str | None = None) -> str:
        """Return the tidelog name of a queue of this region, by default of this account.

        Raises:
            SqsError: No queue has this name behind the prefix of its account or region.
        """
        prefix = self.prefix(account)
        if prefix and name == FIFO_SUFFIX[1:]:
            raise queue_does_not_exist()
        return prefix + name

    def prefix(self, account: str | None = None) -> str:
        """Return what precedes the names of an account in this region; by default of this one."""
        owner = account or self.account
        region = "" if self.region == self.default_region else f"{self.region}."
        return region if owner == self.default_account else f"{owner}.{region}"

    def queue_at(self, url: str | None) -> str:
        """Return the tidelog name of the queue that a `QueueUrl` names.

        The last two parts of the path count; scheme, host and what precedes them do not, since
        balancers and container networks change them. A name alone is one of the caller's account,
        as in the cloud.

        Raises:
            SqsError: The parameter is missing, is no URL of a queue, or no queue can have its name.
        """
        if not url:
            raise missing_parameter("QueueUrl")
        account, name = (None, url) if "/" not in url and is_legal(url) else address_parts(url)
        return self.queue_named(name, account)

    def place_of(self, queue: str) -> QueuePlace | None:
        """Return account, region and SQS name of a tidelog queue; `None` if SQS cannot name it."""
        suffix = FIFO_SUFFIX if queue.endswith(FIFO_SUFFIX) else ""
        *prefixes, stem = queue.removesuffix(suffix).split(".")
        account, region = self.default_account, self.default_region
        if prefixes and _ACCOUNT.fullmatch(prefixes[0]):
            account = prefixes.pop(0)
        if prefixes:
            region = prefixes.pop(0)
        name = stem + suffix
        place = QueuePlace(account, region, name)
        has_name = not prefixes and is_legal(name)
        # A prefix that repeats a default, such as that of the default region, is no prefix.
        return place if has_name and self._queue_at_place(place) == queue else None

    def _queue_at_place(self, place: QueuePlace) -> str:
        return self._replace(region=place.region).prefix(place.account) + place.name

    def url_of(self, name: str, account: str | None = None) -> str:
        """Return the URL of a queue by its SQS name."""
        return f"{self.base_url}/{account or self.account}/{name}"

    def arn_of(self, name: str, account: str | None = None) -> str:
        """Return the ARN of a queue by its SQS name."""
        return QueuePlace(account or self.account, self.region, name).arn

    def arn_of_queue(self, queue: str) -> str:
        """Return the ARN of a tidelog queue."""
        place = self.place_of(queue)
        return self.arn_of(queue) if place is None else place.arn

    def queue_of_arn(self, arn: str) -> str | None:
        """Return the tidelog name of the queue of an ARN; `None` if no queue can have the ARN."""
        found = _ARN.fullmatch(arn)
        if found is None or not is_legal(found[3]):
            return None
        region, account, name = found.groups()
        return self._replace(region=region).queue_named(name, account)


@lru_cache(maxsize=_ADDRESSES)
def address_parts(url: str) -> tuple[str, str]:
    """Return account and name of the queue of a URL.

    Raises:
        SqsError: It is no URL of a queue, or no queue can have its name.
    """
    found = _URL.fullmatch(url)
    if found is None:
        raise SqsError(INVALID_ADDRESS, f"The address {url} is not valid for this endpoint.")
    if not is_legal(found[2]):
        raise queue_does_not_exist()
    return found[1], found[2]


def is_legal(name: str) -> bool:
    """Return whether a queue may have this name in SQS, FIFO or not."""
    stem = name.removesuffix(FIFO_SUFFIX)
    return len(name) <= NAME_LENGTH_MAX and _STEM.fullmatch(stem) is not None


def is_account(text: str) -> bool:
    """Return whether a text is the id of an account: 12 digits."""
    return _ACCOUNT.fullmatch(text) is not None
