"""Pools as seen from outside, for the command line, the service and metrics. Reads with plain commands.

worker_pool.py is the entry (snowredis.WorkerPool). snapshot.py, pool_reader.py: the current state; events and
history: the past; forecast.py: an estimate; health/: checks; metrics/: for Prometheus.
"""
