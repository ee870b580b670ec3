"""What attnsweep needs of Optuna beyond its public names: looked up at import, as another version may lack it."""

from importlib.metadata import version

import optuna

from attnsweep.workloads.errors import UserError

TESTED = "5.0"

try:
    from optuna._transform import _SearchSpaceTransform as SearchSpaceTransform

    for _name in ("_attr_key_optimizer", "_init_optimizer", "_restore_optimizer", "_split_optimizer_str"):
        # What `JsonCmaEsSampler` overrides.
        getattr(optuna.samplers.CmaEsSampler, _name)
except (ImportError, AttributeError) as error:
    raise UserError(
        "optuna",
        given=f"version {version('optuna')}",
        expected=f"version {TESTED}, with which attnsweep was tested ({error})",
        fix=f"pip install 'optuna=={TESTED}.*'",
    ) from error

__all__ = ["SearchSpaceTransform", "trial_of"]


def trial_of(study: optuna.Study, number: int) -> optuna.Trial:
    """A trial that was asked for before, to go on with."""
    trial_id = study._storage.get_trial_id_from_study_id_trial_number(study._study_id, number)
    return optuna.Trial(study, trial_id)
