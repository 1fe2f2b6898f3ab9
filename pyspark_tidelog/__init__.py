"""How Spark will find `format("tidelog")` without registration: it imports packages of this name.

Nothing is here yet; a few guarded lines will register `spark_connector`.
"""
