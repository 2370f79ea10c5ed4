"""The fleet of `snowredis demo` and `snowredis gameday`: processes that make ids and write them to files.

Fleet starts and ends the processes, and compares their ids: of the library it trusts only the layout. Each process runs
this file, as ``python -m snowredis.cli.fleet KIND POOL TTL_S PATH …``, with SNOWREDIS_URL. It ends at the end of stdin,
so that it does not outlive the process that started it.
"""
