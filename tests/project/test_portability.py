"""Systems without POSIX: everything that does not need it works, the rest is refused with one clear error."""

import socket
from pathlib import Path

from tests.support.pools import new_pool
from tests.support.programs import finished
from tests.support.servers import RedisServer, redis_server
from tests.support.warm import FORKS_WITH_THREADS

PROGRAM = Path(__file__).parent / "programs" / "without_posix.py"


def test_without_fork_fcntl_and_unix_sockets_ids_are_made_over_tcp(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with redis_server(tmp_path, "--port", str(port), "--bind", "127.0.0.1"):
        url = f"redis://127.0.0.1:{port}"
        new_pool(url, "portable", ttl=5)
        done = finished(PROGRAM, url, "portable", forked=False)
    assert done.returncode == 0, done.stderr
    assert "embedded:// does not work on this system" in done.stderr


def test_without_libffi_ids_are_made_and_only_a_kill_costs_more(server: RedisServer) -> None:
    new_pool(server.url, "without-libffi")
    program = PROGRAM.with_name("without_ctypes.py")
    done = finished("-W", FORKS_WITH_THREADS, program, server.url, "without-libffi", forked=False)
    assert (done.returncode, done.stderr) == (0, "")
