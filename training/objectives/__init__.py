"""Losses over Features, one a file, chosen by name in a recipe; `registry` finds them."""
