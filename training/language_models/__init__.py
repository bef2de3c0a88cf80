"""Variational language models of sentences, with and without RECLAIM's term."""
