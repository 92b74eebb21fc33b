"""The formats that suites come in, a module each."""
