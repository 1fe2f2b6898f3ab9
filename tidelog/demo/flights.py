"""The flights that left New York City in January 2013.

Shell: reads a file of the package; `tidelog/data/README.md` says where it comes from.
"""

from dataclasses import dataclass
from importlib.resources import files

import zstandard

_FILE = "flights-2013-01.csv.zst"
_UNKNOWN = b"NA"


@dataclass(frozen=True, slots=True)
class Flights:
    """One record for each flight, in the order of the file."""

    columns: list[str]
    """Names of what the fields of a value are."""
    keys: list[bytes | None]
    """The tail number of the aircraft, `None` where it is not known."""
    values: list[bytes]
    """Comma-separated fields; no two flights have the same."""


def load_flights() -> Flights:
    """Return all flights; blocks for a moment."""
    packed = (files("tidelog") / "data" / _FILE).read_bytes()
    title, *lines = zstandard.ZstdDecompressor().decompress(packed).splitlines()
    columns = title.decode("ascii").split(",")
    place = columns.index("tailnum")
    tails = (line.split(b",", place + 1)[place] for line in lines)
    return Flights(columns, [None if tail == _UNKNOWN else tail for tail in tails], lines)
