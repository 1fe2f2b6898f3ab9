"""The record batch: columns, compression, sparse batches, large messages."""
