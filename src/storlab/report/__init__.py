"""Reports: what a run found, for people and for programs.

``model`` says what is shown, ``charts`` draws, and ``formats`` has the table of formats in which both come out.
"""
