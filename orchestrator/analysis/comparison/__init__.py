"""Is the stuck rate of one sweep different from another's?"""
