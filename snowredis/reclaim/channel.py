"""The channel by which a forked process hands its crash records, and a reference to itself, to an ancestor.

A pair of sockets that is made before the first fork. Every descendant inherits one end and sends, before its first
claim, two file descriptors: the memory of its crash records, and a pidfd of itself. So the receiver knows neither pids,
which may be used again, nor the time of a fork; and a fork of a process that makes no ids costs nothing.

The descriptors may have been closed, and their numbers used again, by a program that closes all: a socket that is not
the one that was made is not used.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import socket

from snowredis.lease.model import Store
from snowredis.reclaim.crash_record import PAGE_BYTES, CrashRecord, CrashRecords


class Channel:
    """One pair of sockets, as a process and its descendants see it: CrashRecorders of the descendants.

    Attributes:
        sender: the end that descendants inherit.
        receiver: the other end; None in descendants.
    """

    def __init__(self) -> None:
        receiver, self.sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.receiver: socket.socket | None = receiver
        # a child never waits for the receiver, nor a parent for one at its exit
        self.sender.setblocking(False)
        receiver.setblocking(False)
        self._identities = _identity(self.sender), _identity(receiver)
        self._owner_pid = os.getpid()
        self._records: CrashRecords | None = None
        self._pid = 0

    @property
    def is_usable(self) -> bool:
        """Return whether the receiver still exists, and the socket is the one that was made."""
        poll = select.poll()
        try:
            poll.register(self.sender, 0)
            return self.is_intact and not poll.poll(0)
        except (OSError, ValueError):
            return False

    @property
    def is_intact(self) -> bool:
        """Return whether the sockets of this process are those that were made: nobody closed them."""
        ends = (self.sender,) if self.receiver is None else (self.sender, self.receiver)
        try:
            return all(_identity(end) == made for end, made in zip(ends, self._identities, strict=False))
        except OSError:
            return False

    def after_fork(self) -> None:
        """Become a descendant's end of the channel, in a forked child."""
        receiver, self.receiver = self.receiver, None
        self._records = None
        if receiver is not None:
            receiver.close()

    def new_record(self, store: Store) -> CrashRecord | None:
        """Return a crash record for one generator of *store* in this process; None if it cannot be handed over."""
        pid = os.getpid()
        if not store.urls or pid == self._owner_pid:
            return None
        if self._records is None or self._pid != pid:
            self._records, self._pid = self._hand_over(), pid
        return None if self._records is None else self._records.new_record(store)

    def _hand_over(self) -> CrashRecords | None:
        """Make memory for crash records and send it; return None if it could not be sent. Does not block."""
        with contextlib.ExitStack() as opened:
            try:
                memory = os.memfd_create("snowredis", os.MFD_CLOEXEC)
                opened.callback(os.close, memory)
                os.ftruncate(memory, PAGE_BYTES)
                page = mmap.mmap(memory, PAGE_BYTES)
                process = os.pidfd_open(os.getpid())
                opened.callback(os.close, process)
                if not self.is_usable:
                    return None
                socket.send_fds(self.sender, [b"r"], [memory, process], socket.MSG_NOSIGNAL)
            except OSError:
                # no room in the queue, no more descriptors, not allowed: the lease ends by its ttl after a kill
                return None
        records = CrashRecords(page)
        records.adopt()
        return records

    def ask(self) -> bool:
        """Send an empty request to the receiver, in its own process; return False if that is not possible."""
        try:
            return self.is_usable and self.sender.send(b"d", socket.MSG_NOSIGNAL) == 1
        except OSError:
            return False

    def receive(self) -> tuple[bytes, list[int]] | None:
        """Return the next message and its descriptors; None if there is none now."""
        if self.receiver is None:
            return None
        try:
            text, descriptors, _, _ = socket.recv_fds(self.receiver, 1, 2, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            return None
        return text, descriptors


def _identity(end: socket.socket) -> tuple[int, int]:
    status = os.fstat(end.fileno())
    return status.st_dev, status.st_ino
