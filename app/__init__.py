"""The service, its web page and the `recoquest` command."""
