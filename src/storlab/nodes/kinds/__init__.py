"""The kinds of node, one each."""
