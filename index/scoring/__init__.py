"""Score statistics of a collection: background sample, reference queries, vocabulary."""
