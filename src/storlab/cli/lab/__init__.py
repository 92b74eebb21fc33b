"""``storlab lab``: the machines that one has."""
