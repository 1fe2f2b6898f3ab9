"""Traces of OpenTelemetry: the interface that producers and queues call, and its implementation."""
