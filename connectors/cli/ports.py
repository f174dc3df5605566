"""Free ports of this machine, for what `up` starts."""

from random import SystemRandom
from socket import AF_INET, SO_REUSEADDR, SOCK_STREAM, SOL_SOCKET, socket
from typing import Final

# Below the range that systems hand out to outgoing connections, so that nobody takes the port of what restarts.
_RANGE: Final = range(20000, 30000)


def free_ports(count: int) -> list[int]:
    """`count` different ports on 127.0.0.1 that nobody listens on now."""
    chosen: list[int] = []
    random = SystemRandom()
    while len(chosen) < count:
        port = random.choice(_RANGE)
        if port not in chosen and is_free(port):
            chosen.append(port)
    return chosen


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    with socket(AF_INET, SOCK_STREAM) as listener:
        # What just stopped leaves connections that linger; they do not hinder its successor, which sets this too.
        listener.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError:
            return False
    return True
