"""The machine: its processor, the memory of a process and its limit, and errors of exhausted memory."""

import contextlib
import os
import platform
import re
import sys
from pathlib import Path

import psutil


def read_processor():
    """The text of /proc/cpuinfo, or "" if there is none."""
    path = Path("/proc/cpuinfo")
    return path.read_text() if path.exists() else ""


def count_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def name_accelerator() -> str:
    """The name of the GPU or TPU that Keras' backend uses; "" for the processor."""
    import keras

    if keras.backend.backend() == "jax":
        import jax

        device = jax.devices()[0]
        return "" if device.platform == "cpu" else device.device_kind
    import tensorflow as tf

    found = [device for kind in ("TPU", "GPU") for device in tf.config.list_physical_devices(kind)]
    if not found:
        return ""
    details = tf.config.experimental.get_device_details(found[0]) if found[0].device_type == "GPU" else {}
    return details.get("device_name", found[0].device_type)


def describe_machine(accelerator: str = "") -> str:
    """Describes the processor and its cores, and the accelerator if there is one."""
    named = re.search(r"^model name\s*: (.*)$", read_processor(), re.M)
    processor = named[1] if named else platform.processor() or platform.machine()
    return ", ".join(filter(None, (processor, f"{count_cores()} cores", accelerator)))


def free_memory() -> int:
    """Bytes that a new process on this machine can use: free memory, within the limit of its control group."""
    free = psutil.virtual_memory().available
    with contextlib.suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        free = min(free, int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    return max(free, 0)


def resident_memory(pid: int) -> int:
    """Bytes that a process has in memory; 0 once it has ended."""
    try:
        return psutil.Process(pid).memory_info().rss
    except psutil.Error:
        return 0


def read_status(field):
    """Bytes of a field of /proc/self/status."""
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(field))


def peak_memory() -> int:
    """The most bytes that this process has had in memory; unlike getrusage's, not those of its parent."""
    if sys.platform == "linux":
        return read_status("VmHWM:")
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


def limit_memory(most: int) -> None:
    """Makes this process's allocations on the processor fail once it has `most` bytes more than now."""
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (read_status("VmData:") + most, resource.RLIM_INFINITY))


def is_of_memory(error: Exception) -> bool:
    """Whether an error of Python's or TensorFlow's means that memory ran out."""
    if isinstance(error, MemoryError):
        return True
    kinds = ("AbortedError", "InternalError", "UnknownError")
    names = {kind.__name__ for kind in type(error).__mro__}
    words = str(error).lower()
    return "ResourceExhaustedError" in names or bool(names.intersection(kinds) and re.search("memory|alloc", words))
