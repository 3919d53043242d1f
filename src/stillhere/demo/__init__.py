"""The demo behind `stillhere demo`: a long job among many short ones, and the death of the worker that runs it.

`work` is what the long job does, on real input. `jobs` is the app, as a user would write it; `naive` does the same jobs
the way many fleets do, by the idle time of stream entries. Both write what happened to a `ledger`, a file outside the
store, and `verdict` judges from the ledger alone. `stage` starts and ends the processes, `screen` shows what goes on,
`show` and `naive_show` are the two plays.
"""
