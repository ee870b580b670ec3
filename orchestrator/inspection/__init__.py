"""One training again, alone: does it end where the ledger says?"""
