"""What a sweep's ledger says: rates with intervals, the best trial, figures. Heavy: imported where it is used."""
