"""`snowredis serve`: ids over HTTP, and a page to look at the fleet. Needs the extra ``snowredis[web]``."""
