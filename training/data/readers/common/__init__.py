"""Parts that several readers of data sets share."""
