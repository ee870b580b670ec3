"""Warns about a new sweep whose sampler may take longer to choose the trials than trainers take to train them."""

from attnsweep.search_spaces.sweep import Sampler, Sweep

_SECONDS: dict[Sampler, float] = {"tpe": 1e-6, "cmaes": 1e-6, "nsga2": 2.1e-6, "boundary": 4.6e-4}
"""Driver seconds per squared number of trials, because each draw looks at all earlier trials. Measured on one core,
with 16,000 trials for `tpe` and `cmaes`, 4,000 for `nsga2` and 1,000 for `boundary`."""
_LONG = 600.0


def sampler_warning(spec: Sweep) -> str | None:
    """Returns a warning if the sampler would keep the driver busy for over ten minutes with drawing all trials."""
    seconds = _SECONDS.get(spec.sampler, 0.0) * spec.trials**2
    if seconds <= _LONG:
        return None
    return (
        f"warning: the sampler {spec.sampler} looks at all earlier trials before it draws one: {spec.trials:,} trials"
        f" take it some {seconds / 3600:.2g} hours, however many trainers wait. sampler='qmc' or 'random' takes none"
    )
