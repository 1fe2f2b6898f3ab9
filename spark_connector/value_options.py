"""Options for the decoding of values.

Pure: no clock, no I/O, no pyspark, no pyarrow.
"""

from dataclasses import dataclass
from typing import Final, Literal, Self, final

from tidelog.spark_connector.options import GivenOptions
from tidelog.wire.errors import ConfigError

FORMAT: Final = "value.format"
SCHEMA: Final = "value.schema"
BAD_ROWS: Final = "value.badRows"
DEAD_LETTER_TOPIC: Final = "value.deadLetterTopic"
SKIP_BYTES: Final = "value.skipBytes"
VALUE_NAMES: Final = (FORMAT, SCHEMA, BAD_ROWS, DEAD_LETTER_TOPIC, SKIP_BYTES)
"""Options of sources that decode values."""

ValueFormat = Literal["raw", "json", "msgpack", "avro"]
BadRows = Literal["fail", "column", "deadLetter"]
_FORMATS: Final[tuple[ValueFormat, ...]] = ("raw", "json", "msgpack", "avro")
_BAD_ROWS: Final[tuple[BadRows, ...]] = ("fail", "column", "deadLetter")


@final
@dataclass(frozen=True, slots=True)
class ValueOptions:
    """Format and schema of values, and the treatment of values that do not match them."""

    format: ValueFormat = "raw"
    """With `raw` the column `value` is binary, as in the record."""
    schema: str | None = None
    """DDL of Spark, a JSON Schema, the JSON of a `StructType`, or an Avro schema; `None`: that of
    `.schema(...)`."""
    bad_rows: BadRows = "fail"
    dead_letter_topic: str | None = None
    """Topic of the records with bad values; set if and only if `bad_rows` is `deadLetter`."""
    skip_bytes: int = 0
    """Bytes before the encoded value; 5 for the prefix of Confluent's schema registry."""

    @classmethod
    def parse(cls, given: GivenOptions) -> Self:
        """Parse the options in `VALUE_NAMES`.

        Raises:
            ConfigError: A value is invalid, or options contradict each other.
        """
        found = cls(
            given.choice(FORMAT, _FORMATS, default="raw"),
            given.text(SCHEMA),
            given.choice(BAD_ROWS, _BAD_ROWS, default="fail"),
            given.text(DEAD_LETTER_TOPIC),
            given.number(SKIP_BYTES, at_least=0) or 0,
        )
        others = given.given(VALUE_NAMES[1:])
        if found.format == "raw" and others:
            raise ConfigError(
                f"{others[0]} needs a {FORMAT} other than raw: {' or '.join(_FORMATS[1:])}"
            )
        if (found.bad_rows == "deadLetter") != (found.dead_letter_topic is not None):
            raise ConfigError(f"{BAD_ROWS} deadLetter and {DEAD_LETTER_TOPIC} go together")
        return found
