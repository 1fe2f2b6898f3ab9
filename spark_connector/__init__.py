"""The PySpark data source `tidelog`: batch and streaming reads, batch and exactly-once writes.

Nothing is here yet.
"""
