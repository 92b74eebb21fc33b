"""Suites over many runs: what changed between them, which tests are flaky, which change is to blame."""
