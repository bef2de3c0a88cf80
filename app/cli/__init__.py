"""The `recoquest` command: one module a command, by subject; heavy imports happen inside the commands."""
