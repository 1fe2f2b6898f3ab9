"""What every error of tidelog is, and what an error of a broker is on the wire.

Pure: no clock, no I/O. `wire.errors` has the errors themselves, and is where to import them from.
"""

from typing import ClassVar

import msgspec

from wire.error_code import ErrorCode


class ErrorDetail(msgspec.Struct, frozen=True, array_like=True):
    """An error as it travels: in an error reply, or beside one partition's result."""

    code: int
    """An `ErrorCode`; a number this side does not know is read as an unexpected server error."""
    message: str
    """One line for people: what is wrong and what would be right."""
    details: dict[str, int] = {}
    """The attributes of the exception, such as `log_start_offset`."""


class TidelogError(Exception):
    """The root of everything tidelog raises on purpose."""


class BrokerError(TidelogError):
    """A broker refused or failed a request.

    Numbers that a program may want are attributes of the subclasses, `None` when the broker did
    not say them; they travel in `ErrorDetail.details` under the names listed in `detail_names`.
    """

    code: ClassVar[ErrorCode]
    is_retriable: ClassVar[bool] = False
    detail_names: ClassVar[tuple[str, ...]] = ()
    at: tuple[str, int] | None = None
    """Topic and partition that a consumer could not read, `None` where no consumer raised it."""

    def __init__(self, message: str, **details: int) -> None:
        assert details.keys() <= set(self.detail_names), f"{type(self).__name__} takes {details}"
        super().__init__(message)
        self._details = details
        for name in self.detail_names:
            setattr(self, name, details.get(name))

    def detail(self, name: str) -> int | None:
        """Return one number that came with the error, `None` when the broker did not say it."""
        return self._details.get(name)

    def to_wire(self) -> ErrorDetail:
        """Return what travels; `from_wire` is the inverse."""
        # A file name that is not UTF-8 must not make its own error impossible to send.
        message = str(self).encode("utf-8", "backslashreplace").decode("utf-8")
        return ErrorDetail(int(self.code), message, self._details)


class RetriableError(BrokerError):
    """The same request may succeed later, unchanged."""

    is_retriable: ClassVar[bool] = True
