"""The options of torchrun: for its launcher, and for programs that pass them on to it."""

from __future__ import annotations

from gputui.launching.argument_vector import OptionTable

TORCHRUN = OptionTable(
    flags="standalone no-python run-path module|m virtual-local-rank use-env help|h",
    valued="nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf max-restarts monitor-interval"
    " start-method event-log-handler role log-dir redirects|r tee|t local-ranks-filter"
    " duplicate-stdout-filters duplicate-stderr-filters node-rank master-addr master-port local-addr"
    " logs-specs numa-binding signals-to-handle shutdown-timeout",
    unlisted="value",
    abbreviations=True,
)
"""Source: torch/distributed/run.py, 2.13."""
