"""Application that answers with its pid, five ids of a generator, and one of that of the process."""

import os

import snowredis

# in the master, before its workers are forked; unless --lazy-apps
ids = snowredis.connect(
    os.environ["SNOWREDIS_URL"], pool=os.environ["SNOWREDIS_POOL"], ttl=float(os.environ["SNOWREDIS_TTL"])
)


def application(environment, start_response):
    made = " ".join(map(str, [os.getpid(), *ids.next_ids(5), snowredis.next_id()]))
    start_response("200 OK", [("Content-Length", str(len(made)))])
    return [made.encode()]
