"""Requests of an attacker, and a service that must outlast them."""
