"""`snowredis serve`: ids over HTTP and a dashboard. Needs the extra ``snowredis[web]``.

A request passes connections.py (limits of connections and of time), service.py (where access.py checks it), and then a
handler: for ids in service.py itself, for pages in pages.py, for everything else in routes.py. Handlers use a pool of
served.py (its generator, or what was read for all). server.py starts uvicorn.
"""

# prefix of the environment variables of the service
PREFIX = "SNOWREDIS_SERVE_"
