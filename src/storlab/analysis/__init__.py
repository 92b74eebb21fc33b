"""Statistics: pure functions over data frames. Nothing here runs, reads or writes anything.

    summarise      a run's tables -> Summary: the way in
    design         what of a study the statistics must know
    questions      which comparisons it plans
    series         what was measured, in narrow columns
    estimates      one cell at a time, described
    pairing        two sides, round by round, as log ratios
    compare        a question and its pairs -> Comparison
    verdict        the rules: better, worse, equivalent, undecided
    anytime        the interval: t, valid at every look
    signed_rank    the evidence that needs no shape of noise
    checks         outliers and drift, as warnings
    stopping       whether to go on
    summary        the result, as data and as JSON
    wording        numbers as words

``docs/explanation/statistics.md`` says why.
"""
