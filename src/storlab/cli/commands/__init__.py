"""What each command is called with: its options and their help. What it does is the module of its name in ``cli/``.

That module is imported when the command is run, so ``--help`` and shell completion load nothing else.
"""
