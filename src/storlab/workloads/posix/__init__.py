"""Workload ``posix``: what programs may rely on in a directory, looked at call by call."""
