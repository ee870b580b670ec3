"""Answers computed from the ledger: rates, models, curves, comparisons, figures. Start with `SweepData`.

In all modules `connection` is from `Ledger.connect` or `SweepData.reading`, and `specs` are those of its sweeps;
`ending` is the outcome whose rate is computed; `pool` combines the counts of several trials into one rate; with
`once_per_trial` all trials have equal weight, whatever their number of trainings.
"""
