"""Conversion of records to Arrow columns."""
