# SPDX-License-Identifier: Apache-2.0
"""What the ratios of several rounds come to, by stepaf-report's rule: for delay.sh and tcp_table.sh."""
import importlib.machinery
import importlib.util
import os

_tool = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "tools", "stepaf-report")
_loader = importlib.machinery.SourceFileLoader("stepaf_report", _tool)
_report = importlib.util.module_from_spec(importlib.util.spec_from_loader("stepaf_report", _loader))
_loader.exec_module(_report)

WORDS = ("lower", "higher", "shorter", "longer", "same", "?")


def verdict(ratios, less, more):
    """@less or @more, if the median of what @ratios are drawn from is not 1 with 99 % confidence; "same" if it
    may be; "?" where there are too few."""
    bounds = _report.median_range(ratios)
    if bounds is None:
        return "?"
    return less if bounds[1] < 1 else more if bounds[0] > 1 else "same"


def count(verdicts):
    """How many there are of each, in words."""
    return ", ".join(f"{verdicts.count(word)} {word}" for word in WORDS if word in verdicts)
