"""Milvus 2.3.5 as a standalone server: how to run, fill and search it where it is installed.

Run `python -m tests.benchmarks.servers.milvus_peer serve PARENT FOLDER` and
`python -m tests.benchmarks.servers.milvus_peer fill PARENT WORKLOAD SERVER`. The server listens on every
address, whatever its settings say, so it gets a network namespace of its own that has only a loopback device.
Its callers enter that namespace. They use gRPC because the RESTful interface takes no search parameters.
"""

import ctypes
import fcntl
import os
import re
import socket
import struct
import sys
import time
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.search.contestants.contestant import BUILD_EFFORT, LINKS
from tests.benchmarks.search.made_vectors import Vectors
from tests.benchmarks.search.workload import FIELDS, Condition, K, Workload
from tests.benchmarks.servers.callers import Search
from training.common.host import end_with_parent

SETTING: Final = f"Milvus 2.3.5, float32, HNSW, M {LINKS}, efConstruction {BUILD_EFFORT}, Eventually"
_NAME: Final = "vectors"
_PORT: Final = 19530
_HEALTH_PORT: Final = 9091
_ROWS_AT_ONCE: Final = 2000
_STARTED_S: Final = 180.0
_INDEXED_S: Final = 900.0
_CALL_S: Final = 60.0
# Of bits/sched.h and linux/sockios.h.
_NEW_USER: Final = 0x10000000
_NEW_NET: Final = 0x40000000
_SET_FLAGS: Final = 0x8914
_UP: Final = 0x1 | 0x40
# Of pymilvus.
_EVENTUALLY: Final = 3
_EVENTUALLY_AFTER: Final = 1


def main() -> None:
    """Do what the arguments say."""
    action, parent, *values = sys.argv[1:]
    end_with_parent(int(parent))
    if action == "serve":
        serve(int(parent), Path(values[0]))
    else:
        fill(Workload(Path(values[0])), int(values[1]))


def serve(parent: int, folder: Path) -> None:
    """Become the server, which keeps its data in this folder."""
    import milvus

    _leave_the_network()
    end_with_parent(parent)
    config = milvus.MilvusServerConfig(data_dir=str(folder), proxy_port=_PORT)
    config.template_text = re.sub(r"(?m)^( +ip:) *(#.*)?$", r"\1 127.0.0.1", config.template_text)
    config.resolve()
    milvus._initialize_data_files(config.base_data_dir)
    programs = folder / "bin"
    os.chdir(folder)
    environment = {
        "DEPLOY_MODE": "STANDALONE",
        "METRICS_PORT": str(_HEALTH_PORT),
        "MILVUS_RUN_DIR": str(folder / "run"),
        "LD_LIBRARY_PATH": str(programs),
    }
    os.execve(programs / "milvus", ["milvus", "run", "standalone"], {**os.environ, **environment})


def fill(workload: Workload, server: int) -> None:
    """Wait until the server is ready, and give it all vectors unless it has them."""
    enter_network_of(server)
    _wait_until_healthy()
    from pymilvus import MilvusClient

    client = MilvusClient(f"http://127.0.0.1:{_PORT}", timeout=_CALL_S)
    if not client.has_collection(_NAME):
        _insert(client, workload)
    client.load_collection(_NAME, timeout=_INDEXED_S)


def _insert(client: Any, workload: Workload) -> None:
    from pymilvus import DataType

    schema = client.create_schema(auto_id=False)
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=workload.dim)
    for name in FIELDS:
        schema.add_field(name, DataType.INT64)
    client.create_collection(_NAME, schema=schema, consistency_level="Eventually")
    values = {name: own.tolist() for name, own in workload.fields().items()}
    for start in range(0, len(workload.vectors), _ROWS_AT_ONCE):
        block = workload.vectors[start : start + _ROWS_AT_ONCE]
        rows = [
            {"id": key, "vector": vector, **{name: values[name][key] for name in FIELDS}}
            for key, vector in enumerate(block, start)
        ]
        client.insert(_NAME, rows)
    client.flush(_NAME, timeout=_INDEXED_S)
    graph = {"M": LINKS, "efConstruction": BUILD_EFFORT}
    params = client.prepare_index_params()
    params.add_index("vector", index_type="HNSW", metric_type="IP", params=graph)
    for name in FIELDS:
        params.add_index(name, index_type="STL_SORT")
    client.create_index(_NAME, params)
    ended = time.monotonic() + _INDEXED_S
    while client.describe_index(_NAME, "vector")["indexed_rows"] < len(workload.vectors):
        if time.monotonic() > ended:
            raise TimeoutError("Milvus did not index the vectors in time")
        time.sleep(1)


class Milvus:
    """The client: options are the `server`'s process and `ef`."""

    def __init__(self, options: dict[str, Any]) -> None:
        enter_network_of(options["server"])
        # They start threads, which stay in the network that they begin in.
        import grpc
        from pymilvus.client.prepare import Prepare
        from pymilvus.grpc_gen.milvus_pb2 import SearchResults

        self._grpc, self._prepare, self._results = grpc, Prepare, SearchResults
        self._params = {"metric_type": "IP", "params": {"ef": options["ef"]}}

    def prepare(self, query: Vectors, condition: Condition | None) -> bytes:
        ranges = () if condition is None else condition.ranges
        request: bytes = self._prepare.search_requests_with_expr(
            _NAME,
            "vector",
            self._params,
            K,
            data=[query],
            expr=" and ".join(f"{one.field} >= {one.low} and {one.field} < {one.high}" for one in ranges),
            output_fields=list(FIELDS),
            use_default_consistency=False,
            consistency_level=_EVENTUALLY,
            guarantee_timestamp=_EVENTUALLY_AFTER,
        ).SerializeToString()
        return request

    def connect(self) -> Search:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        channel = self._grpc.insecure_channel(f"127.0.0.1:{_PORT}", options)
        # Neither has a serializer: bytes go and bytes come.
        call = channel.unary_unary("/milvus.proto.milvus.MilvusService/Search")
        return lambda request: call(request, timeout=_CALL_S)

    def keys(self, answer: bytes) -> list[int]:
        found = self._results.FromString(answer)
        if found.status.code or {field.field_name for field in found.results.fields_data} < set(FIELDS):
            raise RuntimeError(found.status.reason or "hits of Milvus have no metadata")
        return list(found.results.ids.int_id.data)


def enter_network_of(process: int) -> None:
    """Enter the network namespace of a server, and its user namespace if that is another."""
    for name, kind in (("user", _NEW_USER), ("net", _NEW_NET)):
        theirs = Path(f"/proc/{process}/ns/{name}")
        if theirs.readlink() != Path(f"/proc/self/ns/{name}").readlink():
            with theirs.open("rb") as file:
                _call("setns", file.fileno(), kind)


def _leave_the_network() -> None:
    _call("unshare", _NEW_NET if os.geteuid() == 0 else _NEW_USER | _NEW_NET)
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", _UP))


def _call(name: str, *values: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*values):
        number = ctypes.get_errno()
        raise OSError(number, f"a network of its own is refused: {os.strerror(number)}")


def _wait_until_healthy() -> None:
    ended = time.monotonic() + _STARTED_S
    while time.monotonic() < ended:
        try:
            connection = HTTPConnection("127.0.0.1", _HEALTH_PORT, timeout=10)
            connection.request("GET", "/healthz")
            if b"OK" in connection.getresponse().read():
                return
        except (OSError, HTTPException):
            pass
        time.sleep(0.2)
    raise TimeoutError("Milvus did not become ready")


if __name__ == "__main__":
    main()
