"""The broker process: connections, request handlers, replication, queues and maintenance.

connections, request handlers, replication, queues and maintenance in trio tasks.
"""
