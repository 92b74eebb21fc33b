"""What the samples of one trial say of it: how much they vary, whether they were steady, how far they depend on each
other. Pure functions of arrays. They describe a trial; they never judge between two (``docs/explanation/series.md``).
"""
