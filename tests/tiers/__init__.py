"""Which test runs where and when: what it needs, what it costs, and so in which tier it is and what begins first."""
