"""Every kind of id behind one protocol: IdGenerator, the registry of kinds, and snowredis.generator().

    ids = snowredis.generator("uuid7")
    ids = snowredis.generator("snowflake", url="redis://localhost:6379/0", pool="orders")
    ids = snowredis.generator()                 # the kind and its settings from SNOWREDIS_* variables

base.py says what every generator has and what a kind declares; lookup.py finds kinds by name, those of other
packages by their entry points, and makes generators. libraries.py adapts other libraries.
"""
