"""The PySpark data source `tidelog`.

Pure cores decide (`options`, `read_options`, `offset_ranges`, `columns`, `stream_progress`), shells
do I/O and wait (`connection`, `fetcher`, `stream_source`), and `source` implements Spark's API.
Programs import `tidelog.spark`, not this package.
"""
