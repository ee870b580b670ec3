"""Problems that the field studies, each put together by `attnsweep.problem`: one file each, named for the problem."""
