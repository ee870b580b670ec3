"""What a sweep would show and cost, before it runs: `attnsweep forecast`."""
