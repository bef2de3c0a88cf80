"""The engines that are compared, each behind the same few methods."""
