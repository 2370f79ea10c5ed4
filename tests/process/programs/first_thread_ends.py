"""End the first thread alone, as pthread_exit() in main() does; another thread sleeps."""

import ctypes
import platform
import sys
import threading
import time

NUMBERS = {"x86_64": 60, "aarch64": 93}


def sleep():
    print("alone", flush=True)
    time.sleep(60)


if platform.machine() not in NUMBERS:
    sys.exit("not known here")
threading.Thread(target=sleep).start()
time.sleep(0.05)
ctypes.CDLL(None).syscall(NUMBERS[platform.machine()], 0)
