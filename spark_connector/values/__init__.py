"""Values decoded to columns: JSON, MessagePack and Avro with a schema."""
