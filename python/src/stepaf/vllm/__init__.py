# SPDX-License-Identifier: Apache-2.0
"""Connectors for vLLM's AFD plugin (afd_plugin): docs/vllm.md.

vLLM calls register() by the entry point "stepaf" of the group vllm.general_plugins. Importing this
package imports neither torch nor vLLM.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

CONNECTOR = "StepafAFDConnector"
ASYNC_CONNECTOR = "StepafAsyncAFDConnector"


def register() -> None:
    """Make the connectors known to the plugin; nothing happens without it. Idempotent."""
    if importlib.util.find_spec("afd_plugin") is None:
        return
    factory: Any = importlib.import_module("afd_plugin.connectors").AFDConnectorFactory
    factory.register_connector(CONNECTOR, "stepaf.vllm.connector", CONNECTOR, replace=True)
    factory.register_connector(ASYNC_CONNECTOR, "stepaf.vllm.async_connector", ASYNC_CONNECTOR, replace=True)


__all__ = ["ASYNC_CONNECTOR", "CONNECTOR", "register"]
