"""graphalias: in-place operations and views as visible dependencies of a networkx graph."""

from graphalias.aliases import Hazard, eliminate_dead_operations, find_hazards, insert_update_aliases
from graphalias.errors import (
    CaptureError,
    CheckError,
    ExecutorError,
    GraphAliasError,
    HazardError,
    ParseError,
    VerificationError,
)
from graphalias.graph import Access, After, Operation, Program, Storage, Symbol, Value
from graphalias.text import parse

__version__ = "0.1.0"

__all__ = [
    "Access",
    "After",
    "CaptureError",
    "CheckError",
    "ExecutorError",
    "GraphAliasError",
    "Hazard",
    "HazardError",
    "Operation",
    "ParseError",
    "Program",
    "Storage",
    "Symbol",
    "Value",
    "VerificationError",
    "eliminate_dead_operations",
    "find_hazards",
    "insert_update_aliases",
    "parse",
]
