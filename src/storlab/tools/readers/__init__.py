"""Readers: what a tool's output says, as data. Storlab's own are TOML files here, a user's lie beside the study."""
