"""How the controller speaks to an agent: frames, events, one stream, operations on files; the executable itself."""
