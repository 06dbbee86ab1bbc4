/*
 * What one device does: load, clocks, temperature, power, modes, and the host side it hangs on.
 */
#include "simnvml.h"

#include <string.h>

/* How long the driver's utilization is averaged, as real ones answer. */
enum { SAMPLING_PERIOD_US = 167000 };

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t handle, nvmlUtilization_t *rates)
{
    struct device device;
    nvmlReturn_t answer = ask(__func__, handle, &device);
    if (answer || !rates)
        return answer ? answer : NVML_ERROR_INVALID_ARGUMENT;
    if (device.utilization == UNKNOWN)
        return NVML_ERROR_NOT_SUPPORTED;
    rates->gpu = (unsigned)device.utilization;
    /* One struct for both: a driver that does not measure the second says 0 (GB10). */
    rates->memory = device.memory_utilization == UNKNOWN ? 0 : (unsigned)device.memory_utilization;
    return NVML_SUCCESS;
}

static nvmlReturn_t codec(const char *function, nvmlDevice_t handle, size_t field, unsigned int *load,
                          unsigned int *period)
{
    struct device device;
    nvmlReturn_t answer = ask(function, handle, &device);
    if (answer)
        return answer;
    if (!load || !period)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (device.utilization == UNKNOWN)
        return NVML_ERROR_NOT_SUPPORTED;
    long long found = *(const long long *)((const char *)&device + field);
    /* Few simulated tasks encode or decode. */
    *load = found == UNKNOWN ? 0 : (unsigned)found;
    *period = SAMPLING_PERIOD_US;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t handle, unsigned int *load, unsigned int *period)
{
    return codec(__func__, handle, offsetof(struct device, encoder), load, period);
}

nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t handle, unsigned int *load, unsigned int *period)
{
    return codec(__func__, handle, offsetof(struct device, decoder), load, period);
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t handle, nvmlTemperatureSensors_t sensor,
                                      unsigned int *celsius)
{
    struct device device;
    nvmlReturn_t answer = ask(__func__, handle, &device);
    if (answer)
        return answer;
    if (!celsius || sensor != NVML_TEMPERATURE_GPU)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (device.temperature == UNKNOWN)
        return NVML_ERROR_NOT_SUPPORTED;
    *celsius = (unsigned)device.temperature;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t handle, nvmlTemperature_t *temperature)
{
    struct device device;
    nvmlReturn_t answer = ask(__func__, handle, &device);
    if (answer)
        return answer;
    if (!temperature || temperature->sensorType != NVML_TEMPERATURE_GPU)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (temperature->version != nvmlTemperature_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (device.temperature == UNKNOWN)
        return NVML_ERROR_NOT_SUPPORTED;
    temperature->temperature = (int)device.temperature;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t handle, nvmlTemperatureThresholds_t threshold,
                                               unsigned int *celsius)
{
    static const unsigned CELSIUS[] = {
        [NVML_TEMPERATURE_THRESHOLD_SHUTDOWN] = 95,
        [NVML_TEMPERATURE_THRESHOLD_SLOWDOWN] = 92,
        [NVML_TEMPERATURE_THRESHOLD_MEM_MAX] = 95,
        [NVML_TEMPERATURE_THRESHOLD_GPU_MAX] = 87,
    };
    struct device device;
    nvmlReturn_t answer = ask(__func__, handle, &device);
    if (answer || !celsius)
        return answer ? answer : NVML_ERROR_INVALID_ARGUMENT;
    if (device.temperature == UNKNOWN || (size_t)threshold >= sizeof CELSIUS / sizeof *CELSIUS)
        return NVML_ERROR_NOT_SUPPORTED;
    *celsius = CELSIUS[threshold];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t handle, unsigned int *least,
                                                          unsigned int *most)
{
    struct device device;
    nvmlReturn_t answer = ask(__func__, handle, &device);
    if (answer)
        return answer;
    if (!least || !most)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (device.power_limit_min == UNKNOWN || device.power_limit_max == UNKNOWN)
        return NVML_ERROR_NOT_SUPPORTED;
    *least = (unsigned)device.power_limit_min;
    *most = (unsigned)device.power_limit_max;
    return NVML_SUCCESS;
}

/* The box knows one clock, of the multiprocessors; what draws and decodes runs at the same. */
static nvmlReturn_t clock_rate(const char *function, nvmlDevice_t handle, nvmlClockType_t type, size_t field,
                               size_t memory_field, unsigned int *mhz)
{
    struct device device;
    nvmlReturn_t answer = ask(function, handle, &device);
    if (answer)
        return answer;
    if (!mhz || (unsigned)type >= NVML_CLOCK_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    size_t place = type == NVML_CLOCK_MEM ? memory_field : field;
    long long found = *(const long long *)((const char *)&device + place);
    if (found == UNKNOWN)
        return NVML_ERROR_NOT_SUPPORTED;
    *mhz = (unsigned)found;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t handle, nvmlClockType_t type, unsigned int *mhz)
{
    return clock_rate(__func__, handle, type, offsetof(struct device, sm_clock),
                      offsetof(struct device, memory_clock), mhz);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t handle, nvmlClockType_t type, unsigned int *mhz)
{
    return clock_rate(__func__, handle, type, offsetof(struct device, max_sm_clock),
                      offsetof(struct device, max_memory_clock), mhz);
}

nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t handle, nvmlPstates_t *state)
{
    struct device device;
    nvmlReturn_t answer = ask(__func__, handle, &device);
    if (answer || !state)
        return answer ? answer : NVML_ERROR_INVALID_ARGUMENT;
    *state = device.utilization == 0 ? NVML_PSTATE_8 : NVML_PSTATE_0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t handle, nvmlEnableState_t *mode)
{
    struct device device;
    nvmlReturn_t answer = ask(__func__, handle, &device);
    if (answer || !mode)
        return answer ? answer : NVML_ERROR_INVALID_ARGUMENT;
    *mode = NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t handle, nvmlEnableState_t *current, nvmlEnableState_t *pending)
{
    struct device device;
    nvmlReturn_t answer = ask(__func__, handle, &device);
    if (answer)
        return answer;
    if (!current || !pending)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (device.ecc == UNKNOWN)
        return NVML_ERROR_NOT_SUPPORTED;
    *current = *pending = (nvmlEnableState_t)device.ecc;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t handle, unsigned int *minor)
{
    struct device device;
    nvmlReturn_t answer = ask(__func__, handle, &device);
    if (answer || !minor)
        return answer ? answer : NVML_ERROR_INVALID_ARGUMENT;
    if (device.parent >= 0)
        return NVML_ERROR_NOT_SUPPORTED;
    *minor = (unsigned)(device.minor == UNKNOWN ? device.index : device.minor);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t handle, unsigned int *several)
{
    struct device device;
    nvmlReturn_t answer = ask(__func__, handle, &device);
    if (answer || !several)
        return answer ? answer : NVML_ERROR_INVALID_ARGUMENT;
    *several = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t handle, unsigned int *board)
{
    struct device device;
    nvmlReturn_t answer = ask(__func__, handle, &device);
    if (answer || !board)
        return answer ? answer : NVML_ERROR_INVALID_ARGUMENT;
    *board = device.bus.domain << 16 | device.bus.bus << 8 | device.bus.device;
    return NVML_SUCCESS;
}

/* KiB/s: nothing but its own polling crosses the bus of an idle GPU. */
nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t handle, nvmlPcieUtilCounter_t counter,
                                         unsigned int *rate)
{
    struct device device;
    nvmlReturn_t answer = ask(__func__, handle, &device);
    if (answer)
        return answer;
    if (!rate || (unsigned)counter >= NVML_PCIE_UTIL_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (device.utilization == UNKNOWN)
        return NVML_ERROR_NOT_SUPPORTED;
    *rate = 500u + (unsigned)device.utilization * 1000u;
    return NVML_SUCCESS;
}

/* The host's CPUs or NUMA nodes that are near, in a set of `size` words. */
static nvmlReturn_t give_set(bool has, const unsigned long *near, unsigned int words, unsigned int size,
                             unsigned long *set)
{
    if (!set || size == 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!has)
        return NVML_ERROR_NOT_SUPPORTED;
    memset(set, 0, size * sizeof *set);
    for (unsigned int i = 0; i < words; i++) {
        if (i < size)
            set[i] = near[i];
        else if (near[i])
            return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t handle, unsigned int size, unsigned long *nodes,
                                         nvmlAffinityScope_t scope)
{
    struct device device;
    nvmlReturn_t answer = ask(__func__, handle, &device);
    if (answer || scope > NVML_AFFINITY_SCOPE_SOCKET)
        return answer ? answer : NVML_ERROR_INVALID_ARGUMENT;
    return give_set(device.has_nodes, device.nodes, NODE_WORDS, size, nodes);
}

nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t handle, unsigned int size, unsigned long *cpus,
                                                 nvmlAffinityScope_t scope)
{
    struct device device;
    nvmlReturn_t answer = ask(__func__, handle, &device);
    if (answer || scope > NVML_AFFINITY_SCOPE_SOCKET)
        return answer ? answer : NVML_ERROR_INVALID_ARGUMENT;
    return give_set(device.has_cpus, device.cpus, CPU_WORDS, size, cpus);
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t handle, unsigned int size, unsigned long *cpus)
{
    struct device device;
    nvmlReturn_t answer = ask(__func__, handle, &device);
    return answer ? answer : give_set(device.has_cpus, device.cpus, CPU_WORDS, size, cpus);
}
