/*
 * MIG: whether a GPU is divided, and its instances. Instances come and go while a program runs.
 */
#include "simnvml.h"

#include <string.h>

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t handle, unsigned int *current, unsigned int *pending)
{
    struct device device;
    nvmlReturn_t answer = ask(__func__, handle, &device);
    if (answer)
        return answer;
    if (!current || !pending)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (device.mig == UNKNOWN)
        return NVML_ERROR_NOT_SUPPORTED;
    *current = *pending = (unsigned)device.mig;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t handle, unsigned int *count)
{
    struct device device;
    nvmlReturn_t answer = ask(__func__, handle, &device);
    if (answer || !count)
        return answer ? answer : NVML_ERROR_INVALID_ARGUMENT;
    *count = device.instances_most == UNKNOWN ? 0 : (unsigned)device.instances_most;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t handle, unsigned int index,
                                                 nvmlDevice_t *instance)
{
    const struct device *gpu;
    nvmlReturn_t answer = enter(__func__, handle, false, &gpu);
    if (answer)
        return answer;
    if (!instance || gpu->parent >= 0)
        return finish(NVML_ERROR_INVALID_ARGUMENT);
    if (gpu->mig == UNKNOWN)
        return finish(NVML_ERROR_NOT_SUPPORTED);
    if (index >= (unsigned)gpu->instances_most)
        return finish(NVML_ERROR_INVALID_ARGUMENT);
    const struct box *box = box_now();
    for (int i = 0; i < box->device_count; i++) {
        const struct device *device = &box->devices[i];
        if (device->parent >= 0 && &box->devices[device->parent] == gpu && device->index == index)
            return finish(handle_of(device, instance));
    }
    return finish(NVML_ERROR_NOT_FOUND);
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t instance, nvmlDevice_t *handle)
{
    const struct device *device;
    nvmlReturn_t answer = enter(__func__, instance, false, &device);
    if (answer)
        return answer;
    if (!handle || device->parent < 0)
        return finish(NVML_ERROR_INVALID_ARGUMENT);
    return finish(handle_of(&box_now()->devices[device->parent], handle));
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t handle, unsigned int *is_instance)
{
    struct device device;
    nvmlReturn_t answer = ask(__func__, handle, &device);
    if (answer || !is_instance)
        return answer ? answer : NVML_ERROR_INVALID_ARGUMENT;
    *is_instance = device.parent >= 0;
    return NVML_SUCCESS;
}

static nvmlReturn_t instance_number(const char *function, nvmlDevice_t handle, size_t field, unsigned int *id)
{
    struct device device;
    nvmlReturn_t answer = ask(function, handle, &device);
    if (answer || !id)
        return answer ? answer : NVML_ERROR_INVALID_ARGUMENT;
    long long found = *(const long long *)((const char *)&device + field);
    if (device.parent < 0 || found == UNKNOWN)
        return NVML_ERROR_NOT_SUPPORTED;
    *id = (unsigned)found;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t handle, unsigned int *id)
{
    return instance_number(__func__, handle, offsetof(struct device, gpu_instance), id);
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t handle, unsigned int *id)
{
    return instance_number(__func__, handle, offsetof(struct device, compute_instance), id);
}

static nvmlReturn_t attributes_of(const char *function, nvmlDevice_t handle, nvmlDeviceAttributes_t *given)
{
    enum { MULTIPROCESSORS_A_SLICE = 14 }; /* of an A100 */
    struct device device;
    nvmlReturn_t answer = ask(function, handle, &device);
    if (answer || !given)
        return answer ? answer : NVML_ERROR_INVALID_ARGUMENT;
    if (device.parent < 0 || device.slices == UNKNOWN || device.memory_total == UNKNOWN)
        return NVML_ERROR_NOT_SUPPORTED;
    unsigned slices = (unsigned)device.slices;
    *given = (nvmlDeviceAttributes_t){
        .multiprocessorCount = slices * MULTIPROCESSORS_A_SLICE,
        .sharedCopyEngineCount = slices,
        .gpuInstanceSliceCount = slices,
        .computeInstanceSliceCount = slices,
        .memorySizeMB = (unsigned long long)device.memory_total >> 20,
    };
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t handle, nvmlDeviceAttributes_t *attributes)
{
    return attributes_of(__func__, handle, attributes);
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t handle, nvmlDeviceAttributes_t *attributes)
{
    return attributes_of(__func__, handle, attributes);
}
