"""The operations of the service behind its routes: search, write, activate, readiness."""
