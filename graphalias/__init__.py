"""graphalias: in-place operations and views as visible dependencies of a networkx graph."""

from graphalias.aliases import insert_update_aliases
from graphalias.capture import capture
from graphalias.check import check
from graphalias.dead import eliminate_dead_operations
from graphalias.draw import Drawing, draw
from graphalias.errors import (
    CaptureError,
    CheckError,
    ExecutorError,
    GraphAliasError,
    HazardError,
    ParseError,
    RewriteError,
    VerificationError,
)
from graphalias.explain import Explanation, explain
from graphalias.fx import to_fx
from graphalias.graph import Program
from graphalias.hazards import Hazard, find_hazards
from graphalias.interchange import from_dot, from_graphml, from_node_link, to_dot, to_graphml, to_node_link
from graphalias.lower import Compiled, lower
from graphalias.matching import Match
from graphalias.operation import After, Operation
from graphalias.overlap import overlaps
from graphalias.parser import parse
from graphalias.partition import partition
from graphalias.patterns import Rule
from graphalias.rewrite import rewrite, rewrite_in_steps
from graphalias.runtime import jit
from graphalias.steps import Step, Steps
from graphalias.switch import disabled
from graphalias.values import Access, Storage, Symbol, Value
from graphalias.verify import Report, verify
from graphalias.views import ViewGroup, find_view_groups
from graphalias.wildcards import Wildcard

__version__ = "0.1.0"

__all__ = [
    "Access",
    "After",
    "CaptureError",
    "CheckError",
    "Compiled",
    "Drawing",
    "ExecutorError",
    "Explanation",
    "GraphAliasError",
    "Hazard",
    "HazardError",
    "Match",
    "Operation",
    "ParseError",
    "Program",
    "Report",
    "RewriteError",
    "Rule",
    "Step",
    "Steps",
    "Storage",
    "Symbol",
    "Value",
    "VerificationError",
    "ViewGroup",
    "Wildcard",
    "capture",
    "check",
    "disabled",
    "draw",
    "eliminate_dead_operations",
    "explain",
    "find_hazards",
    "find_view_groups",
    "from_dot",
    "from_graphml",
    "from_node_link",
    "insert_update_aliases",
    "jit",
    "lower",
    "overlaps",
    "parse",
    "partition",
    "rewrite",
    "rewrite_in_steps",
    "to_dot",
    "to_fx",
    "to_graphml",
    "to_node_link",
    "verify",
]
