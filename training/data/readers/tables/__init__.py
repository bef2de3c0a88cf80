"""Tables with a header: comma, semicolon, tab or bar between fields, in any encoding, compressed or not."""

from training.data.readers.tables.published import count_rows, find_table, need_table, read_rows, read_table
from training.data.readers.tables.table import Row, Table, open_table

__all__ = ["Row", "Table", "count_rows", "find_table", "need_table", "open_table", "read_rows", "read_table"]
