"""The version, apart from the package's interface, so that the lowest layers may know it."""

__version__ = "0.1.0"
