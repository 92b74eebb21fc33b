"""The load: command lines out, measurements in."""
