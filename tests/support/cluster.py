"""Worker processes that find each other over loopback."""

import json
import socket


def configs(count):
    """TF_CONFIG for each of `count` workers, on free ports."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    cluster = {"worker": [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]}
    for s in sockets:
        s.close()
    return [json.dumps({"cluster": cluster, "task": {"type": "worker", "index": i}}) for i in range(count)]
