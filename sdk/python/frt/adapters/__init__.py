# SPDX-License-Identifier: Apache-2.0
"""Policies as other libraries want them:

    frt.adapters.lerobot   a policy that lerobot evaluates as one of its own
    frt.adapters.openpi    a policy for openpi's server, agents and action chunk brokers

Neither is imported with `frt`; the first needs lerobot, both need numpy."""
