"""Classification of texts, with and without RECLAIM: the tasks of GLUE."""
