"""Every kind of id behind one protocol: IdGenerator, the registry of kinds, and snowredis.generator().

    ids = snowredis.generator("uuid7")
    ids = snowredis.generator("snowflake", url="redis://localhost:6379/0", pool="orders")
    ids = snowredis.generator()                 # the kind and its settings from SNOWREDIS_* variables

protocol.py says what every generator has; base.py implements most of it; kind.py says what a kind declares; registry.py
finds kinds by name, those of other packages by their entry points; opening.py is generator(). The other modules are
kinds: adapters of libraries, and snowflake.py for connect(). Kinds with code of their own have a package each.
"""
