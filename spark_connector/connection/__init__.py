"""Blocking connections to brokers, for Spark's processes without trio."""
