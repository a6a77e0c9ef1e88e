# SPDX-License-Identifier: Apache-2.0
"""A stand-in of vLLM's AFD plugin: the part of its contract that a connector meets."""
