# SPDX-License-Identifier: Apache-2.0
"""The package's exceptions, with the status that belongs to each."""

from __future__ import annotations

from typing import Type

import stepaf
from stepaf import _core

_STATUS = {
    stepaf.HandleError: "STEPAF_ERR_HANDLE", stepaf.InvalidError: "STEPAF_ERR_INVALID",
    stepaf.LimitError: "STEPAF_ERR_LIMIT", stepaf.ProtocolError: "STEPAF_ERR_PROTOCOL",
    stepaf.PullsError: "STEPAF_ERR_PULLS", stepaf.RoleError: "STEPAF_ERR_ROLE",
    stepaf.SettingError: "STEPAF_ERR_SETTING", stepaf.SizeError: "STEPAF_ERR_SIZE",
    stepaf.StateError: "STEPAF_ERR_STATE", stepaf.TimeoutError: "STEPAF_ERR_TIMEOUT",
    stepaf.UnsupportedError: "STEPAF_ERR_UNSUPPORTED",
}


def error(kind: Type[stepaf.StepafError], text: str) -> stepaf.StepafError:
    """An exception of this kind, to be raised."""
    return kind("fserver_lib: " + text, _core.STATUSES.get(_STATUS[kind], 0))
