"""Workload ``ledger``: small commits, each acknowledged, that can be asked for after a power cut."""
