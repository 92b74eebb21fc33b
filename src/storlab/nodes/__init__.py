"""Where commands run: nodes, which all speak to the same agent over a stream of bytes."""
