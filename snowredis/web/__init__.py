"""`snowredis serve`: ids over HTTP and a page to look at. Needs the extra ``snowredis[web]``.

A request reaches service.py, where access.py checks it, and then a handler: for ids and the files of the page in
service.py itself, for everything else in routes.py. Handlers use a pool of served.py (its generator, or what it has
read for all). server.py starts uvicorn.
"""

# prefix of the environment variables of the service
PREFIX = "SNOWREDIS_SERVE_"
