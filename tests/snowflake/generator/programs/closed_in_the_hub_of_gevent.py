"""Close a generator in a signal handler that runs in gevent's hub, which cannot wait for anything."""

from gevent import monkey

monkey.patch_all()

import signal

import gevent

from snowredis.testing import memory_pool

ids = memory_pool().connect()
ids.next_id()


def close(*_):
    ids.close()
    print(gevent.getcurrent() is gevent.get_hub(), ids.closed, flush=True)


signal.signal(signal.SIGALRM, close)
signal.setitimer(signal.ITIMER_REAL, 0.2)
gevent.sleep(0.4)
