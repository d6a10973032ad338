"""Finds the repository, and the cases that lie in a folder ``shared`` beside it on some machines."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
CASES = ROOT.parent / "shared" / "cases" / "cases.py"


def load_cases() -> ModuleType | None:
    """Return the module of cases, or None where the folder is not there. Callable while tests are collected."""
    if not CASES.exists():
        return None
    if "shared_cases" not in sys.modules:
        spec = importlib.util.spec_from_file_location("shared_cases", CASES)
        module = importlib.util.module_from_spec(spec)
        sys.modules["shared_cases"] = module
        spec.loader.exec_module(module)
    return sys.modules["shared_cases"]
