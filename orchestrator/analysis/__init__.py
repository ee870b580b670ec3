"""Answers computed from the ledger: rates, models, curves, comparisons, figures. Start with `SweepData`.

An argument name means the same in all modules: `connection` is from `Ledger.connect` or `SweepData.reading`; `spec` or
`specs` are the specs of the sweeps in the connection; `ending` is the outcome whose rate is computed; `pool` combines
the counts of several trials into one rate (`pooling`); `once_per_trial` gives all trials equal weight, whatever their
number of trainings.
"""
