"""Merge shards, and change ids: read columns of ids, find those that clash, give new ones.

Needs the extra `merge`: DuckDB, SQLAlchemy, SQLGlot, numpy. Nothing here is imported before it is used.
"""
