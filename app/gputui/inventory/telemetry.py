"""The facts about a device beyond the table, which are read only while its page is on display."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputui.inventory.light_dataclasses import dataclass

if TYPE_CHECKING:
    from gputui.inventory.typed_json import Celsius, Large, Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """The facts on a device's page beyond the table: read only for devices on display.

    None is "not known" or "not supported". Percentages are 0 to 100; rates are bytes per second between the
    last two readings, None at the first.

    encoder, decoder            percent of the last sampling period
    memory_clock                MHz
    fan                         percent of full speed
    memory_temperature          °C
    slowdown_temperature, shutdown_temperature   °C: the driver lowers the clocks, or turns the GPU off
    hotspot_temperature         °C, of the hottest spot, where `Device.temperature` is of another sensor
    hotspot_slowdown_temperature, memory_slowdown_temperature   °C
    throttle                    why the clocks are lower than possible, () for no reason
    performance_state           0 is the fastest (P0)
    persistence                 whether the driver keeps the GPU ready while nobody uses it
    ecc_corrected, ecc_uncorrected   errors since the driver was loaded
    retired_pages, remapped_rows     of the memory, permanently
    xid, xid_at                 the driver's last error report while we watched, and when (epoch seconds)
    pcie_*                      the present state of the link, and the best that device and slot support
    pcie_sent, pcie_received, nvlink_sent, nvlink_received   rates
    sm_active, sm_occupancy, tensor_active   percent, by GPM (Hopper and newer)
    energy                      J since the driver was loaded
    """

    encoder: int | None = None
    decoder: int | None = None
    memory_clock: int | None = None
    max_memory_clock: int | None = None
    fan: int | None = None
    memory_temperature: Celsius | None = None
    slowdown_temperature: Celsius | None = None
    shutdown_temperature: Celsius | None = None
    hotspot_temperature: Celsius | None = None
    hotspot_slowdown_temperature: Celsius | None = None
    memory_slowdown_temperature: Celsius | None = None
    throttle: tuple[str, ...] | None = None
    performance_state: int | None = None
    persistence: bool | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    retired_pages: int | None = None
    remapped_rows: int | None = None
    xid: int | None = None
    xid_at: Moment | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    max_pcie_generation: int | None = None
    max_pcie_width: int | None = None
    pcie_sent: Large | None = None
    pcie_received: Large | None = None
    nvlink_sent: Large | None = None
    nvlink_received: Large | None = None
    sm_active: Large | None = None
    sm_occupancy: Large | None = None
    tensor_active: Large | None = None
    energy: Large | None = None
