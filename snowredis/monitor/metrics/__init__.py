"""Metrics of pools and of processes.

catalog.py declares every metric once; families.py is their values at one moment, and the text format of Prometheus.
pools.py reads pools from Redis, process.py the generators of this process.
"""
