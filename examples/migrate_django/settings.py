"""Settings of the example: the database of DATABASE_URL, as SQLAlchemy and `snowredis migrate` write it."""

import os

from sqlalchemy import make_url

DATABASE_URL = os.environ["DATABASE_URL"]
_url = make_url(DATABASE_URL)
DATABASES = {
    "default": {
        "ENGINE": f"django.db.backends.{_url.get_backend_name()}",
        "NAME": _url.database,
        "USER": _url.username or "",
        "PASSWORD": _url.password or "",
        "HOST": _url.host or _url.query.get("host", ""),
    }
}
INSTALLED_APPS = ["snowredis.integrations.django", "shop"]
SNOWREDIS = {"url": os.environ.get("SNOWREDIS_URL", "embedded://"), "pool": "orders"}
USE_TZ = True
