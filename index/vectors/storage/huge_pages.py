"""Pages of 2 MB for vectors.

Candidates lie anywhere among the rows: with pages of 4 kB the processor looks nearly each page up in memory
first, and a search takes twice as long (measured). Neither FAISS nor Python's allocator asks for huge pages.
"""

import ctypes
import mmap
import sys
from typing import Any, Final

from numpy.typing import NDArray

# Minimum size of an array that gains from huge pages.
_WORTHWHILE: Final = 32 * 1024**2
# Since Linux 6.1; Python's mmap has no name for it.
_MADV_COLLAPSE: Final = 25


def use_huge_pages(memory: NDArray[Any]) -> None:
    """Move memory to huge pages if the system has some, while others read and write it."""
    if sys.platform != "linux" or memory.nbytes < _WORTHWHILE:
        return
    start, stop = memory.ctypes.data, memory.ctypes.data + memory.nbytes
    first, last = -(-start // mmap.PAGESIZE), stop // mmap.PAGESIZE
    ctypes.CDLL(None).madvise(
        ctypes.c_void_p(first * mmap.PAGESIZE),
        ctypes.c_size_t((last - first) * mmap.PAGESIZE),
        ctypes.c_int(_MADV_COLLAPSE),
    )
