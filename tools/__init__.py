"""Benchmarks and checks: a package, since nvFuser's wheel installs one of this name that would come before a folder."""
