/*
 * What the box and one device are and do: versions, handles, names, memory, load, sensors.
 *
 * Most functions give one number of the device, or "not supported" when the box does not have it: those
 * are one line each, made by NUMBER.
 */
#include "simnvml.h"

#include <stdio.h>
#include <string.h>

static nvmlReturn_t number(const char *function, nvmlDevice_t handle, size_t field, long long *value)
{
    struct device device;
    nvmlReturn_t answer = ask(function, handle, &device);
    if (answer)
        return answer;
    *value = *(const long long *)((const char *)&device + field);
    return *value == UNKNOWN ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

#define NUMBER(function, type, field)                                                          \
    nvmlReturn_t function(nvmlDevice_t handle, type *value)                                    \
    {                                                                                          \
        long long found = 0;                                                                   \
        nvmlReturn_t answer = number(__func__, handle, offsetof(struct device, field), &found); \
        if (!answer && !value)                                                                 \
            return NVML_ERROR_INVALID_ARGUMENT;                                                \
        if (!answer)                                                                           \
            *value = (type)found;                                                              \
        return answer;                                                                         \
    }

NUMBER(nvmlDeviceGetBrand, nvmlBrandType_t, brand)
NUMBER(nvmlDeviceGetArchitecture, nvmlDeviceArchitecture_t, architecture)
NUMBER(nvmlDeviceGetNumGpuCores, unsigned int, cores)
NUMBER(nvmlDeviceGetPowerUsage, unsigned int, power)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned int, power_limit)
NUMBER(nvmlDeviceGetPowerManagementLimit, unsigned int, power_limit)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned int, power_limit)
NUMBER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, energy)
NUMBER(nvmlDeviceGetDisplayActive, nvmlEnableState_t, display)
NUMBER(nvmlDeviceGetDisplayMode, nvmlEnableState_t, display)
NUMBER(nvmlDeviceGetComputeMode, nvmlComputeMode_t, compute_mode)
NUMBER(nvmlDeviceGetNumaNodeId, unsigned int, gpu_numa_node)
NUMBER(nvmlDeviceGetFanSpeed, unsigned int, fan)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, clock_reasons)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, clock_reasons)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int, pcie_generation_now)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned int, pcie_generation)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned int, pcie_width_now)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned int, pcie_width)

/* What no simulated GPU has; the call is counted and its faults are answered all the same. */
#define UNSUPPORTED(function, ...)                                \
    nvmlReturn_t function(nvmlDevice_t handle, __VA_ARGS__)       \
    {                                                             \
        struct device device;                                     \
        nvmlReturn_t answer = ask(__func__, handle, &device);     \
        return answer ? answer : NVML_ERROR_NOT_SUPPORTED;        \
    }

UNSUPPORTED(nvmlDeviceGetSerial, char *serial, unsigned int length)
UNSUPPORTED(nvmlDeviceGetFanSpeed_v2, unsigned int fan, unsigned int *speed)
UNSUPPORTED(nvmlDeviceGetNumFans, unsigned int *fans)
UNSUPPORTED(nvmlDeviceGetTotalEccErrors, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter,
            unsigned long long *count)
UNSUPPORTED(nvmlDeviceGetDetailedEccErrors, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter,
            nvmlEccErrorCounts_t *counts)
UNSUPPORTED(nvmlDeviceGetMemoryErrorCounter, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter,
            nvmlMemoryLocation_t location, unsigned long long *count)
UNSUPPORTED(nvmlDeviceGetRunningProcessDetailList, nvmlProcessDetailList_t *list)
UNSUPPORTED(nvmlDeviceGetConfComputeMemSizeInfo, nvmlConfComputeMemSizeInfo_t *size)
UNSUPPORTED(nvmlDeviceGetDriverModel, nvmlDriverModel_t *current, nvmlDriverModel_t *pending)
UNSUPPORTED(nvmlDeviceGetDriverModel_v2, nvmlDriverModel_t *current, nvmlDriverModel_t *pending)

/* The box as a whole. */

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    nvmlReturn_t answer = begin(__func__, NULL, false);
    return answer ? answer : finish(give_text(box_now()->driver, version, length));
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    nvmlReturn_t answer = begin(__func__, NULL, false);
    if (answer)
        return answer;
    char text[MOST_TEXT + 32];
    snprintf(text, sizeof text, "%lld.%s", box_now()->cuda / 1000, box_now()->driver);
    return finish(give_text(text, version, length));
}

static nvmlReturn_t cuda_version(const char *function, int *version)
{
    nvmlReturn_t answer = begin(function, NULL, false);
    if (answer)
        return answer;
    if (!version)
        return finish(NVML_ERROR_INVALID_ARGUMENT);
    if (box_now()->cuda == UNKNOWN)
        return finish(NVML_ERROR_NOT_SUPPORTED);
    *version = (int)box_now()->cuda;
    return finish(NVML_SUCCESS);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    return cuda_version(__func__, version);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return cuda_version(__func__, version);
}

static nvmlReturn_t device_count(const char *function, unsigned int *count)
{
    nvmlReturn_t answer = begin(function, NULL, false);
    if (answer)
        return answer;
    if (!count)
        return finish(NVML_ERROR_INVALID_ARGUMENT);
    *count = 0;
    for (int i = 0; i < box_now()->device_count; i++)
        *count += box_now()->devices[i].parent < 0;
    return finish(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
    return device_count(__func__, count);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    return device_count(__func__, count);
}

/* Handles. */

static nvmlReturn_t by_index(const char *function, unsigned int index, nvmlDevice_t *handle)
{
    char label[MOST_LABEL];
    snprintf(label, sizeof label, "%u", index);
    nvmlReturn_t answer = begin(function, label, false);
    if (answer)
        return answer;
    if (!handle)
        return finish(NVML_ERROR_INVALID_ARGUMENT);
    const struct box *box = box_now();
    for (int i = 0; i < box->device_count; i++)
        if (box->devices[i].parent < 0 && box->devices[i].index == index)
            return finish(handle_of(&box->devices[i], handle));
    return finish(NVML_ERROR_INVALID_ARGUMENT);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *handle)
{
    return by_index(__func__, index, handle);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *handle)
{
    return by_index(__func__, index, handle);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *handle)
{
    nvmlReturn_t answer = begin(__func__, NULL, false);
    if (answer)
        return answer;
    if (!uuid || !handle)
        return finish(NVML_ERROR_INVALID_ARGUMENT);
    const struct box *box = box_now();
    for (int i = 0; i < box->device_count; i++)
        if (strcmp(box->devices[i].uuid, uuid) == 0)
            return finish(handle_of(&box->devices[i], handle));
    return finish(NVML_ERROR_NOT_FOUND);
}

static nvmlReturn_t by_bus(const char *function, const char *text, nvmlDevice_t *handle)
{
    nvmlReturn_t answer = begin(function, NULL, false);
    if (answer)
        return answer;
    struct bus wanted;
    if (!text || !handle || !bus_parse(text, &wanted))
        return finish(NVML_ERROR_INVALID_ARGUMENT);
    const struct box *box = box_now();
    for (int i = 0; i < box->device_count; i++)
        if (box->devices[i].parent < 0 && memcmp(&box->devices[i].bus, &wanted, sizeof wanted) == 0)
            return finish(handle_of(&box->devices[i], handle));
    return finish(NVML_ERROR_NOT_FOUND);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus, nvmlDevice_t *handle)
{
    return by_bus(__func__, bus, handle);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *handle)
{
    return by_bus(__func__, bus, handle);
}

/* Who the device is: answered for a lost GPU too. */

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t handle, unsigned int *index)
{
    struct device device;
    nvmlReturn_t answer = ask_identity(__func__, handle, &device);
    if (answer || !index)
        return answer ? answer : NVML_ERROR_INVALID_ARGUMENT;
    *index = (unsigned)device.index;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t handle, char *uuid, unsigned int length)
{
    struct device device;
    nvmlReturn_t answer = ask_identity(__func__, handle, &device);
    return answer ? answer : give_text(device.uuid, uuid, length);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t handle, char *name, unsigned int length)
{
    struct device device;
    nvmlReturn_t answer = ask_identity(__func__, handle, &device);
    return answer ? answer : give_text(device.name, name, length);
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t handle, int *major, int *minor)
{
    struct device device;
    nvmlReturn_t answer = ask_identity(__func__, handle, &device);
    if (answer)
        return answer;
    if (!major || !minor)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (device.capability_major == UNKNOWN)
        return NVML_ERROR_NOT_SUPPORTED;
    *major = (int)device.capability_major;
    *minor = (int)device.capability_minor;
    return NVML_SUCCESS;
}

nvmlReturn_t give_pci(const struct bus *bus, nvmlPciInfo_t *pci, size_t size)
{
    if (!pci)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlPciInfo_t found = {.domain = bus->domain, .bus = bus->bus, .device = bus->device,
                           .pciDeviceId = 0x10DE};
    snprintf(found.busIdLegacy, sizeof found.busIdLegacy, "%04X:%02X:%02X.0", bus->domain & 0xFFFF,
             bus->bus & 0xFF, bus->device & 0xFF);
    snprintf(found.busId, sizeof found.busId, NVML_DEVICE_PCI_BUS_ID_FMT, bus->domain, bus->bus,
             bus->device);
    memcpy(pci, &found, size);
    return NVML_SUCCESS;
}

static nvmlReturn_t pci_info(const char *function, nvmlDevice_t handle, nvmlPciInfo_t *pci, size_t size)
{
    struct device device;
    nvmlReturn_t answer = ask_identity(function, handle, &device);
    return answer ? answer : give_pci(&device.bus, pci, size);
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t handle, nvmlPciInfo_t *pci)
{
    return pci_info(__func__, handle, pci, PCI_SIZE_BEFORE_V3);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t handle, nvmlPciInfo_t *pci)
{
    return pci_info(__func__, handle, pci, PCI_SIZE_BEFORE_V3);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, nvmlPciInfo_t *pci)
{
    return pci_info(__func__, handle, pci, sizeof *pci);
}

/* Memory. */

/* The first version counts what the driver keeps for itself as used. */
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t *memory)
{
    struct device device;
    nvmlReturn_t answer = ask(__func__, handle, &device);
    if (answer || !memory)
        return answer ? answer : NVML_ERROR_INVALID_ARGUMENT;
    if (device.memory_total == UNKNOWN || device.memory_used == UNKNOWN || device.memory_free == UNKNOWN)
        return NVML_ERROR_NOT_SUPPORTED;
    long long reserved = device.memory_reserved == UNKNOWN ? 0 : device.memory_reserved;
    memory->total = (unsigned long long)device.memory_total;
    memory->used = (unsigned long long)(device.memory_used + reserved);
    memory->free = memory->used < memory->total ? memory->total - memory->used : 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t *memory)
{
    struct device device;
    nvmlReturn_t answer = ask(__func__, handle, &device);
    if (answer || !memory)
        return answer ? answer : NVML_ERROR_INVALID_ARGUMENT;
    if (memory->version != nvmlMemory_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (device.memory_total == UNKNOWN || device.memory_used == UNKNOWN || device.memory_free == UNKNOWN)
        return NVML_ERROR_NOT_SUPPORTED;
    memory->total = (unsigned long long)device.memory_total;
    memory->reserved = device.memory_reserved == UNKNOWN ? 0 : (unsigned long long)device.memory_reserved;
    memory->used = (unsigned long long)device.memory_used;
    memory->free = (unsigned long long)device.memory_free;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t handle, nvmlBAR1Memory_t *memory)
{
    struct device device;
    nvmlReturn_t answer = ask(__func__, handle, &device);
    if (answer || !memory)
        return answer ? answer : NVML_ERROR_INVALID_ARGUMENT;
    if (device.memory_total == UNKNOWN)
        return NVML_ERROR_NOT_SUPPORTED;
    const unsigned long long mib = 1 << 20;
    *memory = (nvmlBAR1Memory_t){.bar1Total = 256 * mib, .bar1Free = 253 * mib, .bar1Used = 3 * mib};
    return NVML_SUCCESS;
}
