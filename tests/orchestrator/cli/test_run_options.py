"""The shard of a driver, as an option names it."""

import pytest

from attnsweep.orchestrator.cli.run_options import parse_shard
from attnsweep.orchestrator.storage.shards import Shard
from attnsweep.workloads.errors import UserError


@pytest.mark.parametrize(("text", "shard"), [(None, None), ("0/1", Shard(0, 1)), ("2/5", Shard(2, 5))])
def test_a_shard_is_read(text: str | None, shard: Shard | None) -> None:
    assert parse_shard(text) == shard


@pytest.mark.parametrize("text", ["4/4", "-1/4", "1", "0/0", "auto"])
def test_what_names_no_shard_is_refused(text: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_shard(text)
    assert refused.value.subject == "--shard"
