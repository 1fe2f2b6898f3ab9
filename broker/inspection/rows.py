"""Lines with named fields, for the contents of files.

Pure: no clock, no I/O. Field names are those of the pages in `docs/formats/`. Bytes of clients stay
bytes; bytes that identify something (topics, disks, transactions) are hexadecimal text.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Final, NamedTuple, cast

import msgspec

Row = dict[str, object]
"""One item of a file: `file`, `type`, and the fields of that type."""

BAD: Final = "bad"
"""Type of a line for a range that is torn, damaged or not understood, with the reason."""
_SECRETS: Final = frozenset({"receipt_key", "nonce"})
OFFSET_END: Final = 1 << 62
"""Above all offsets."""


class OffsetFilter(NamedTuple):
    """The offsets to show."""

    start: int = 0
    end: int = OFFSET_END
    """Exclusive."""

    def touches(self, start: int, end: int) -> bool:
        """Return whether some of the offsets from `start` to `end`, exclusive, are to be shown."""
        return start < self.end and end > self.start


def bad(file: str, reason: str, **where: object) -> Row:
    """Return the line for a bad range, with the reason and the place."""
    return {"file": file, "type": BAD, **where, "reason": reason}


def named(value: object) -> object:  # noqa: PLR0911 - one for each kind of value
    """Return a declared message as names and values, all the way down.

    A tagged message has its name; secrets are left out.
    """
    if isinstance(value, msgspec.Struct):
        return named_fields(value)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value)
        return {_key(key): named(item) for key, item in entries.items()}
    if isinstance(value, AbstractSet):
        return [named(item) for item in sorted(cast("AbstractSet[str]", value))]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [named(item) for item in cast("Sequence[object]", value)]
    return value


def named_fields(value: msgspec.Struct) -> Row:
    """Return the fields of a declared message by their names, as `named` does."""
    fields: Row = {}
    tag = value.__struct_config__.tag
    if tag is not None:
        fields["record"] = type(value).__name__
    for name in value.__struct_fields__:
        fields[name] = "(secret)" if name in _SECRETS else named(getattr(value, name))
    return fields


def _key(key: object) -> str:
    return str(named(key))
