"""The facts about a device beyond the table, which are read only while its page is on display."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from gputui.inventory.light_dataclasses import frozen

if TYPE_CHECKING:
    from gputui.inventory.typed_json import Celsius, Large, Moment


NvlinkFabric = Literal["not started", "in progress", "ready", "failed"]
"""The states of the registration, in the order of NVML_GPU_FABRIC_STATE_* from 1 (nvml.h)."""

NVLINK_FABRICS: tuple[NvlinkFabric, ...] = get_args(NvlinkFabric)


@frozen(kw_only=True)
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
    nvlink_fabric               how far the GPU's registration with the NVSwitches' manager is
    nvlink_domain, nvlink_clique   of GPUs that NVLink joins across boxes: the cluster's UUID, and the group
                                in it whose members reach each other
    tool_index                  the number that the vendor's own tool gives the device (rocm-smi, amd-smi: in
                                PCI order), where it may differ from `Device.index`
    buffers                     bytes of RAM in the buffers of a Jetson's GPU, cameras and displays (NvMap)
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
    nvlink_fabric: NvlinkFabric | None = None
    nvlink_domain: str | None = None
    nvlink_clique: int | None = None
    tool_index: int | None = None
    buffers: int | None = None
    sm_active: Large | None = None
    sm_occupancy: Large | None = None
    tensor_active: Large | None = None
    energy: Large | None = None
