"""`snowredis serve`: ids over HTTP, and a page to look at the fleet. Needs the extra ``snowredis[web]``."""

# how the variables begin that are the service's
PREFIX = "SNOWREDIS_SERVE_"
