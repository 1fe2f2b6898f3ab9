"""Name of the audit topic.

Pure: declarations.
"""

from typing import Final

AUDIT_TOPIC: Final = "audit@cluster"
"""The topic of audit records: clients with access read it, and only brokers create and write it."""
