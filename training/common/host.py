"""Process-wide settings: of the allocator, MKL and thread pools for numerical work, and of a parent's end."""

import ctypes
import os
import platform
import signal
from pathlib import Path

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
_PR_SET_PDEATHSIG = 1
_LARGEST_INT = 2**31 - 1
_TOP_PAD_BYTES = 64 * 2**20
# Decoding of the largest image takes some 200 MB.
_MOST_DECODERS = 16
# Device files of GPUs by NVIDIA and AMD, and of a GPU in WSL.
_GPU_DRIVERS = (Path("/dev/nvidiactl"), Path("/dev/kfd"), Path("/dev/dxg"))


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0))


def decoding_threads() -> int:
    """How many threads decode for an encoder: one a core, so that a GPU does not wait for them."""
    return min(_MOST_DECODERS, cores())


def processes_here() -> int:
    """How many processes of a training run on this machine; 1 without torchrun, which tells it."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def keep_freed_memory() -> bool:
    """Let the C library reuse freed memory instead of returning it to the kernel; False if it is not glibc.

    A convolution's output is tens of megabytes. By default glibc maps each afresh and the kernel zeroes every
    page on first touch, which costs more than the arithmetic: MobileNetV2 runs two to four times faster
    without.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, _LARGEST_INT), (_M_TOP_PAD, _TOP_PAD_BYTES))
    return all(mallopt(parameter, value) == 1 for parameter, value in settings)


def return_freed_memory() -> None:
    """Give the kernel what the C library has kept of freed memory, so that it counts as free again."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def keep_order_of_sums() -> None:
    """Ask MKL to add up in the same order in every run, as a resumed run has to equal a straight one.

    By default its threads may share out a product in another way when the machine is busy, which changes last
    bits. The mode costs no time. It is heeded only until the first product, and a choice of the user stays.
    """
    os.environ.setdefault("MKL_CBWR", "AUTO")


def keep_waiting_threads_quiet() -> None:
    """Let threads that have nothing to compute sleep, instead of spinning on cores that others need.

    OpenBLAS, which NumPy uses, begins a pool that spins, while a service's products are small: it gets one
    thread. The threads of OpenMP, which torch and FAISS use, wait for each other asleep. Libraries read these
    variables once, when they are loaded, so it comes before any import of theirs; a choice of the user stays.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def has_gpu_driver() -> bool:
    """Whether there may be a GPU; torch, whose import takes seconds, knows whether it can be used."""
    return any(driver.exists() for driver in _GPU_DRIVERS)


def end_with_parent(parent: int) -> None:
    """Have the system kill this process when the one that started it ends, or now if it has ended already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
