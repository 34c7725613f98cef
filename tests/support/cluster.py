"""Worker processes that find each other over loopback."""

import json
import socket

import pytest

# The tests' programs run for milliseconds, and optimizing them takes seconds.
UNOPTIMIZED = "--xla_backend_optimization_level=0"


def free_addresses(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
    for s in sockets:
        s.close()
    return addresses


def on_jax(devices):
    """The environment of a process that trains on so many virtual devices of JAX; skips the test without JAX."""
    pytest.importorskip("jax")
    return {"KERAS_BACKEND": "jax", "XLA_FLAGS": f"{UNOPTIMIZED} --xla_force_host_platform_device_count={devices}"}


def jax_environments(count, devices):
    """The environment of each of `count` processes on JAX, which have so many virtual devices each."""
    shared = {
        **on_jax(devices),
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": ",".join(free_addresses(count)),
        "KERAS_DISTRIBUTION_NUM_PROCESSES": str(count),
    }
    return [{**shared, "KERAS_DISTRIBUTION_PROCESS_ID": str(i)} for i in range(count)]


def configs(count):
    """TF_CONFIG for each of `count` workers, on free ports."""
    cluster = {"worker": free_addresses(count)}
    return [json.dumps({"cluster": cluster, "task": {"type": "worker", "index": i}}) for i in range(count)]
