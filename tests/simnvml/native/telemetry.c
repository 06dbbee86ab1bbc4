/*
 * What the page of a device shows: field values of counters and errors, the performance monitor
 * (GPM), samples of what processes do, and XIDs. The plain numbers of it are in facts.c and sensors.c.
 */
#include "simnvml.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define OFFSET(field) offsetof(struct device, field)

static long long number_at(const struct device *device, size_t offset)
{
    return *(const long long *)((const char *)device + offset);
}

/* Field values. */

bool telemetry_field(const struct device *device, nvmlFieldValue_t *asked)
{
    static const struct {
        unsigned int field;
        size_t offset;
        bool every_link; /* we have it of all links together only */
    } FIELDS[] = {
        {NVML_FI_DEV_MEMORY_TEMP, OFFSET(memory_temperature), false},
        {NVML_FI_DEV_ECC_SBE_VOL_TOTAL, OFFSET(ecc_corrected), false},
        {NVML_FI_DEV_ECC_DBE_VOL_TOTAL, OFFSET(ecc_uncorrected), false},
        {NVML_FI_DEV_RETIRED_DBE, OFFSET(retired), false},
        {NVML_FI_DEV_REMAPPED_UNC, OFFSET(remapped), false},
        {NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, OFFSET(energy), false},
        {NVML_FI_DEV_PCIE_COUNT_TX_BYTES, OFFSET(pcie_sent), false},
        {NVML_FI_DEV_PCIE_COUNT_RX_BYTES, OFFSET(pcie_received), false},
        {NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, OFFSET(nvlink_sent), true},
        {NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, OFFSET(nvlink_received), true},
    };
    for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++) {
        if (FIELDS[i].field != asked->fieldId)
            continue;
        long long found = number_at(device, FIELDS[i].offset);
        if (FIELDS[i].every_link && asked->scopeId != UINT_MAX)
            found = UNKNOWN;
        asked->nvmlReturn = found == UNKNOWN ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
        asked->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
        asked->value.ullVal = found == UNKNOWN ? 0 : (unsigned long long)found;
        return true;
    }
    return false;
}

/* GPM: a sample is the device as it was; the metrics are those of the later one. */

struct nvmlGpmSample_st {
    struct device device;
    bool taken;
};

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t handle, nvmlGpmSupport_t *support)
{
    struct device device;
    nvmlReturn_t answer = ask(__func__, handle, &device);
    if (answer || !support)
        return answer ? answer : NVML_ERROR_INVALID_ARGUMENT;
    if (support->version != NVML_GPM_SUPPORT_VERSION)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    support->isSupportedDevice = device.gpm == 1;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample)
{
    nvmlReturn_t answer = begin(__func__, NULL, false);
    if (answer)
        return answer;
    if (!sample)
        return finish(NVML_ERROR_INVALID_ARGUMENT);
    *sample = calloc(1, sizeof **sample);
    return finish(*sample ? NVML_SUCCESS : NVML_ERROR_MEMORY);
}

nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample)
{
    nvmlReturn_t answer = begin(__func__, NULL, false);
    if (answer)
        return answer;
    free(sample);
    return finish(sample ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT);
}

nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t handle, nvmlGpmSample_t sample)
{
    struct device device;
    nvmlReturn_t answer = ask(__func__, handle, &device);
    if (answer || !sample)
        return answer ? answer : NVML_ERROR_INVALID_ARGUMENT;
    if (device.gpm != 1)
        return NVML_ERROR_NOT_SUPPORTED;
    sample->device = device;
    sample->taken = true;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t handle, unsigned int gpu_instance, nvmlGpmSample_t sample)
{
    const struct device *gpu;
    nvmlReturn_t answer = enter(__func__, handle, false, &gpu);
    if (answer)
        return answer;
    if (!sample || gpu->parent >= 0)
        return finish(NVML_ERROR_INVALID_ARGUMENT);
    if (gpu->gpm != 1 || gpu->mig != 1)
        return finish(NVML_ERROR_NOT_SUPPORTED);
    const struct box *box = box_now();
    for (int i = 0; i < box->device_count; i++) {
        const struct device *device = &box->devices[i];
        if (device->parent < 0 || &box->devices[device->parent] != gpu || device->gpu_instance != gpu_instance)
            continue;
        sample->device = *device;
        sample->taken = true;
        return finish(NVML_SUCCESS);
    }
    return finish(NVML_ERROR_INVALID_ARGUMENT);
}

nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *asked)
{
    static const struct {
        unsigned int metric;
        size_t offset;
        double unit;
    } METRICS[] = {
        {NVML_GPM_METRIC_GRAPHICS_UTIL, OFFSET(graphics_active), 1000},
        {NVML_GPM_METRIC_SM_UTIL, OFFSET(sm_active), 1000},
        {NVML_GPM_METRIC_SM_OCCUPANCY, OFFSET(sm_occupancy), 1000},
        {NVML_GPM_METRIC_ANY_TENSOR_UTIL, OFFSET(tensor_active), 1000},
        {NVML_GPM_METRIC_PCIE_TX_PER_SEC, OFFSET(gpm_pcie_sent), 1},
        {NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, OFFSET(gpm_nvlink_sent), 1},
    };
    nvmlReturn_t answer = begin(__func__, NULL, false);
    if (answer)
        return answer;
    if (!asked || asked->version != NVML_GPM_METRICS_GET_VERSION || !asked->sample1 || !asked->sample2 ||
        asked->sample1 == asked->sample2 || !asked->sample1->taken || !asked->sample2->taken ||
        asked->numMetrics > NVML_GPM_METRIC_MAX)
        return finish(NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned i = 0; i < asked->numMetrics; i++) {
        asked->metrics[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
        for (size_t j = 0; j < sizeof METRICS / sizeof *METRICS; j++) {
            if (METRICS[j].metric != asked->metrics[i].metricId)
                continue;
            long long found = number_at(&asked->sample2->device, METRICS[j].offset);
            if (found != UNKNOWN) {
                asked->metrics[i].nvmlReturn = NVML_SUCCESS;
                asked->metrics[i].value = (double)found / METRICS[j].unit;
            }
        }
    }
    return finish(NVML_SUCCESS);
}

/* The place in an NVLink fabric. The cluster's UUID is a number: zeros but for the last eight bytes. */

static nvmlReturn_t fabric_of(const char *function, nvmlDevice_t handle, nvmlGpuFabricInfo_t *info)
{
    struct device device;
    nvmlReturn_t answer = ask(function, handle, &device);
    if (answer || !info)
        return answer ? answer : NVML_ERROR_INVALID_ARGUMENT;
    if (device.parent >= 0 || device.fabric_state == UNKNOWN)
        return NVML_ERROR_NOT_SUPPORTED;
    memset(info, 0, sizeof *info);
    info->state = (nvmlGpuFabricState_t)device.fabric_state;
    info->status = device.fabric_status == UNKNOWN ? NVML_SUCCESS : (nvmlReturn_t)device.fabric_status;
    info->cliqueId = device.fabric_clique == UNKNOWN ? 0 : (unsigned)device.fabric_clique;
    unsigned long long cluster = device.fabric_cluster == UNKNOWN ? 0 : (unsigned long long)device.fabric_cluster;
    for (int i = NVML_GPU_FABRIC_UUID_LEN - 1; i >= 0 && cluster; i--, cluster >>= 8)
        info->clusterUuid[i] = (unsigned char)cluster;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t handle, nvmlGpuFabricInfo_t *info)
{
    return fabric_of(__func__, handle, info);
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t handle, nvmlGpuFabricInfoV_t *given)
{
    nvmlGpuFabricInfo_t info;
    nvmlReturn_t answer = fabric_of(__func__, handle, given ? &info : NULL);
    if (answer)
        return answer;
    if (given->version != nvmlGpuFabricInfo_v2 && given->version != nvmlGpuFabricInfo_v3)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    /* Version 3 has one field more, at the end. */
    nvmlGpuFabricInfo_v2_t *second = (nvmlGpuFabricInfo_v2_t *)given;
    memcpy(second->clusterUuid, info.clusterUuid, sizeof info.clusterUuid);
    second->status = info.status;
    second->cliqueId = info.cliqueId;
    second->state = info.state;
    second->healthMask = 0;
    if (given->version == nvmlGpuFabricInfo_v3)
        given->healthSummary = NVML_GPU_FABRIC_HEALTH_SUMMARY_NOT_SUPPORTED;
    return NVML_SUCCESS;
}

/* What processes do: one sample of each, taken at this moment. */

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t handle, nvmlProcessUtilizationSample_t *samples,
                                             unsigned int *count, unsigned long long since)
{
    const struct device *device;
    nvmlReturn_t answer = enter(__func__, handle, false, &device);
    if (answer)
        return answer;
    if (!count)
        return finish(NVML_ERROR_INVALID_ARGUMENT);
    if (device->samples_processes != 1)
        return finish(NVML_ERROR_NOT_SUPPORTED);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    unsigned long long moment = (unsigned long long)now.tv_sec * 1000000ULL + (unsigned long long)now.tv_nsec / 1000;
    const struct box *box = box_now();
    unsigned room = *count, total = 0;
    for (int i = 0; i < box->process_count; i++) {
        const struct process *process = &box->processes[i];
        if (&box->devices[process->device] != device || process->sm < 0 || moment <= since)
            continue;
        if (total < room && samples)
            samples[total] = (nvmlProcessUtilizationSample_t){
                .pid = process->pid, .timeStamp = moment, .smUtil = (unsigned)process->sm};
        total++;
    }
    *count = total;
    if (total == 0)
        return finish(NVML_ERROR_NOT_FOUND);
    return finish(room < total || !samples ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
}

/* XIDs: a set listens to one device, from the moment it is registered. */

struct nvmlEventSet_st {
    nvmlDevice_t handle;
    char label[MOST_LABEL];
    int cursor;
};

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    nvmlReturn_t answer = begin(__func__, NULL, false);
    if (answer)
        return answer;
    if (!set)
        return finish(NVML_ERROR_INVALID_ARGUMENT);
    *set = calloc(1, sizeof **set);
    return finish(*set ? NVML_SUCCESS : NVML_ERROR_MEMORY);
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    nvmlReturn_t answer = begin(__func__, NULL, false);
    if (answer)
        return answer;
    free(set);
    return finish(set ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT);
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t handle, unsigned long long types, nvmlEventSet_t set)
{
    const struct device *device;
    nvmlReturn_t answer = enter(__func__, handle, false, &device);
    if (answer)
        return answer;
    if (!set || set->handle || !(types & nvmlEventTypeXidCriticalError))
        return finish(NVML_ERROR_INVALID_ARGUMENT);
    if (device->parent >= 0)
        return finish(NVML_ERROR_NOT_SUPPORTED);
    set->handle = handle;
    memcpy(set->label, device->label, sizeof set->label);
    set->cursor = control_count();
    return finish(NVML_SUCCESS);
}

static nvmlReturn_t wait_for_event(const char *function, nvmlEventSet_t set, nvmlEventData_t *data)
{
    nvmlReturn_t answer = begin(function, set && set->handle ? set->label : NULL, false);
    if (answer)
        return answer;
    long xid;
    if (!set || !data)
        return finish(NVML_ERROR_INVALID_ARGUMENT);
    /* (A test never waits: whatever the timeout is, there is an event now or there is none.) */
    if (!set->handle || !control_next_xid(&set->cursor, set->label, &xid))
        return finish(NVML_ERROR_TIMEOUT);
    *data = (nvmlEventData_t){.device = set->handle,
                              .eventType = nvmlEventTypeXidCriticalError,
                              .eventData = (unsigned long long)xid,
                              .gpuInstanceId = UINT_MAX,
                              .computeInstanceId = UINT_MAX};
    return finish(NVML_SUCCESS);
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout)
{
    return wait_for_event(__func__, set, data);
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout)
{
    return wait_for_event(__func__, set, data);
}
