/*
 * The process lists: compute, graphics and MPS, in the struct of each version.
 *
 * NVML's protocol has two steps: a call with room for too few answers "insufficient size" and how many
 * there are; the next call brings room for them.
 */
#include "simnvml.h"

enum { NO_INSTANCE = -1 }; /* 0xFFFFFFFF: the process is not on a MIG instance */

/* Writes one process into the caller's array, in the layout of its version. */
typedef void put(void *infos, unsigned place, const struct process *process, const struct device *device);

static void put_v1(void *infos, unsigned place, const struct process *process, const struct device *device)
{
    ((nvmlProcessInfo_v1_t *)infos)[place] =
        (nvmlProcessInfo_v1_t){.pid = process->pid, .usedGpuMemory = process->memory};
}

static void put_v2(void *infos, unsigned place, const struct process *process, const struct device *device)
{
    bool instance = device->parent >= 0;
    ((nvmlProcessInfo_v2_t *)infos)[place] = (nvmlProcessInfo_v2_t){
        .pid = process->pid,
        .usedGpuMemory = process->memory,
        .gpuInstanceId = (unsigned)(instance ? device->gpu_instance : NO_INSTANCE),
        .computeInstanceId = (unsigned)(instance ? device->compute_instance : NO_INSTANCE),
    };
}

static nvmlReturn_t give(const struct device *device, unsigned lists, unsigned int *count, void *infos,
                         put *put_one)
{
    const struct box *box = box_now();
    if (device->lists_processes == UNKNOWN)
        return NVML_ERROR_NOT_SUPPORTED;
    const struct process *found[MOST_PROCESSES];
    unsigned total = 0;
    for (int i = 0; i < box->process_count; i++) {
        const struct process *process = &box->processes[i];
        const struct device *owner = &box->devices[process->device];
        /* A divided GPU lists what runs on its instances. */
        bool here = owner == device || (owner->parent >= 0 && &box->devices[owner->parent] == device);
        if (here && process->lists & lists)
            found[total++] = process;
    }
    unsigned room = *count;
    *count = total;
    if (room < total)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    if (total && !infos)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < total; i++)
        put_one(infos, i, found[i], &box->devices[found[i]->device]);
    return NVML_SUCCESS;
}

static nvmlReturn_t list(const char *function, nvmlDevice_t handle, unsigned lists, unsigned int *count,
                         void *infos, put *put_one)
{
    const struct device *device;
    nvmlReturn_t answer = enter(function, handle, false, &device);
    if (answer)
        return answer;
    return finish(count ? give(device, lists, count, infos, put_one) : NVML_ERROR_INVALID_ARGUMENT);
}

#define LIST(function, type, lists, put_one)                                             \
    nvmlReturn_t function(nvmlDevice_t handle, unsigned int *count, type *infos)         \
    {                                                                                    \
        return list(__func__, handle, lists, count, infos, put_one);                     \
    }

LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, COMPUTE, put_v1)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, COMPUTE, put_v2)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, COMPUTE, put_v2)
LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, GRAPHICS, put_v1)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, GRAPHICS, put_v2)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t, GRAPHICS, put_v2)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, MPS, put_v1)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, MPS, put_v2)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t, MPS, put_v2)
