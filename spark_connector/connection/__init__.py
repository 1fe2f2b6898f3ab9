"""Blocking connections to brokers, for Spark processes without trio."""
