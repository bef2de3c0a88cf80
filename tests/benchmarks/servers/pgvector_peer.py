"""PostgreSQL 18 with pgvector: how it is filled and asked, in an environment that has it.

Run `python -m tests.benchmarks.servers.pgvector_peer PARENT WORKLOAD CONNECTION`.
"""

import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tests.benchmarks.search.contestants.contestant import BUILD_EFFORT, LINKS
from tests.benchmarks.search.made_vectors import Vectors
from tests.benchmarks.search.workload import FIELDS, Condition, Field, K, Workload
from tests.benchmarks.servers.callers import Search
from training.common.host import end_with_parent

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

SETTING: Final = f"PostgreSQL 18, pgvector, HNSW, m {LINKS}, ef_construction {BUILD_EFFORT}, iterative scan"
_ROWS_AT_ONCE: Final = 2000
_TABLE: Final = "vectors"
_BINARY: Final = 1
# Of PostgreSQL's documentation of COPY: signature, flags and the length of an extension; and the end.
_COPY_HEAD: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_COPY_END: Final = b"\xff\xff"


def main() -> None:
    """Give the server all vectors unless it has them."""
    end_with_parent(int(sys.argv[1]))
    import psycopg

    workload = Workload(Path(sys.argv[2]))
    with psycopg.connect(sys.argv[3]) as connection:
        if connection.execute(f"SELECT to_regclass('{_TABLE}')").fetchone() == (None,):
            _fill(connection, workload)


def _fill(connection: Any, workload: Workload) -> None:
    """In one transaction: what is interrupted leaves nothing."""
    connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    columns = "".join(f", {name} bigint NOT NULL" for name in FIELDS)
    connection.execute(
        f"CREATE TABLE {_TABLE} (id bigint PRIMARY KEY, vector vector({workload.dim}) NOT NULL{columns})"
    )
    copy = f"COPY {_TABLE} (id, {', '.join(FIELDS)}, vector) FROM STDIN (FORMAT BINARY)"
    with connection.cursor() as cursor, cursor.copy(copy) as target:
        target.write(_COPY_HEAD)
        for start in range(0, len(workload.vectors), _ROWS_AT_ONCE):
            target.write(_rows(workload, start, start + _ROWS_AT_ONCE))
        target.write(_COPY_END)
    graph = f"m = {LINKS}, ef_construction = {BUILD_EFFORT}"
    connection.execute(f"CREATE INDEX ON {_TABLE} USING hnsw (vector vector_ip_ops) WITH ({graph})")
    for name in FIELDS:
        connection.execute(f"CREATE INDEX ON {_TABLE} ({name})")
    connection.execute(f"ANALYZE {_TABLE}")


def _rows(workload: Workload, start: int, end: int) -> bytes:
    """Return rows in the binary form of COPY: for each value its length before it."""
    numbers = ("id", *FIELDS)
    vector = [("vector_length", ">i4"), ("dim", ">i2"), ("unused", ">i2"), ("vector", ">f4", workload.dim)]
    parts = [part for name in numbers for part in ((f"{name}_length", ">i4"), (name, ">i8"))]
    block = workload.vectors[start:end]
    rows = np.zeros(len(block), np.dtype([("values", ">i2"), *parts, *vector]))
    rows["values"] = len(numbers) + 1
    rows["id"] = np.arange(start, start + len(block))
    for name in numbers:
        rows[f"{name}_length"] = 8
    for name in FIELDS:
        rows[name] = workload.field(name)[start:end]
    rows["vector_length"], rows["dim"], rows["vector"] = 4 + 4 * workload.dim, workload.dim, block
    return rows.tobytes()


class Pgvector:
    """The client, with a prepared statement for each set of fields: options are a `connection` and `ef`."""

    def __init__(self, options: dict[str, Any]) -> None:
        from psycopg import pq

        self._pq = pq
        self._connection: str = options["connection"]
        self._settings = (
            f"SET hnsw.ef_search = {options['ef']}",
            "SET hnsw.iterative_scan = relaxed_order",
            # A plan for all ranges alike would sort what passes, also where half of the rows do.
            "SET plan_cache_mode = force_custom_plan",
            "SET jit = off",
        )

    def prepare(self, query: Vectors, condition: Condition | None) -> tuple[tuple[Field, ...], list[bytes]]:
        ranges = () if condition is None else condition.ranges
        vector = struct.pack(">hh", len(query), 0) + np.asarray(query, ">f4").tobytes()
        bounds = [struct.pack(">q", bound) for one in ranges for bound in (one.low, one.high)]
        return tuple(one.field for one in ranges), [vector, *bounds]

    def connect(self) -> Search:
        connection = self._pq.PGconn.connect(self._connection.encode())
        for setting in self._settings:
            self._checked(connection, connection.exec_(setting.encode()))
        prepared: set[bytes] = set()

        def search(request: tuple[tuple[Field, ...], list[bytes]]) -> "PGresult":
            fields, values = request
            name = "_".join(("by", *fields)).encode()
            if name not in prepared:
                self._checked(connection, connection.prepare(name, _statement(fields)))
                prepared.add(name)
            found = connection.exec_prepared(name, values, [_BINARY] * len(values), _BINARY)
            return self._checked(connection, found)

        return search

    def keys(self, answer: "PGresult") -> list[int]:
        if answer.nfields != 1 + len(FIELDS):
            raise RuntimeError("hits of PostgreSQL have no metadata")
        found = [answer.get_value(row, 0) for row in range(answer.ntuples)]
        return [struct.unpack(">q", key)[0] for key in found if key is not None]

    def _checked(self, connection: "PGconn", answer: "PGresult") -> "PGresult":
        if answer.status not in (self._pq.ExecStatus.COMMAND_OK, self._pq.ExecStatus.TUPLES_OK):
            raise RuntimeError(connection.get_error_message())
        return answer


def _statement(fields: tuple[Field, ...]) -> bytes:
    ranges = (
        f"{field} >= ${2 * place + 2}::bigint AND {field} < ${2 * place + 3}::bigint"
        for place, field in enumerate(fields)
    )
    where = f" WHERE {' AND '.join(ranges)}" if fields else ""
    order = f"ORDER BY vector <#> $1::vector LIMIT {K}"
    return f"SELECT id, {', '.join(FIELDS)} FROM {_TABLE}{where} {order}".encode()


if __name__ == "__main__":
    main()
