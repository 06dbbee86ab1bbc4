/*
 * Start, stop, handles, and the way in of every call.
 */
#include "simnvml.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int users;  /* nvmlInit without its nvmlShutdown */
static int inside; /* calls that have begun and not finished */
static bool told;  /* simnvml_use has named the files: the environment is not asked */
static struct nvmlDevice_st handles[MOST_DEVICES];
static int handle_count;

/*
 * Name the three files, and forget everything, as if the library had just been loaded: for tests that
 * load it into their own process. With NULLs the environment is asked again at the next nvmlInit.
 */
__attribute__((visibility("default"))) void simnvml_use(const char *box, const char *control,
                                                        const char *counts)
{
    pthread_mutex_lock(&lock);
    told = box != NULL;
    users = handle_count = 0;
    box_use(box);
    control_use(control);
    counts_use(counts);
    pthread_mutex_unlock(&lock);
}

static void pause_us(long microseconds)
{
    struct timespec left = {microseconds / 1000000, microseconds % 1000000 * 1000};
    pthread_mutex_unlock(&lock);
    while (nanosleep(&left, &left) != 0)
        ;
    pthread_mutex_lock(&lock);
}

nvmlReturn_t finish(nvmlReturn_t answer)
{
    inside--;
    pthread_mutex_unlock(&lock);
    return answer;
}

nvmlReturn_t begin(const char *function, const char *label, bool starting)
{
    pthread_mutex_lock(&lock);
    inside++;
    if (!starting && users == 0)
        return finish(NVML_ERROR_UNINITIALIZED);
    counts_add(function, label);
    struct orders orders = control_orders(function, label, false);
    if (orders.delay_us > 0)
        pause_us(orders.delay_us);
    while (control_orders(function, label, false).hang)
        pause_us(2000);
    orders = control_orders(function, label, true);
    if (orders.error)
        return finish((nvmlReturn_t)orders.error);
    if (!starting && users == 0) /* shut down while this call waited; the real library crashes here */
        return finish(NVML_ERROR_UNINITIALIZED);
    if (!box_refresh())
        return finish(starting ? NVML_ERROR_DRIVER_NOT_LOADED : NVML_ERROR_UNKNOWN);
    return NVML_SUCCESS;
}

static const struct device *find_uuid(const char *uuid)
{
    const struct box *box = box_now();
    for (int i = 0; i < box->device_count; i++)
        if (strcmp(box->devices[i].uuid, uuid) == 0)
            return &box->devices[i];
    return NULL;
}

static nvmlReturn_t fault_of(const struct device *device)
{
    const struct device *gpu = device->parent < 0 ? device : &box_now()->devices[device->parent];
    return (nvmlReturn_t)gpu->fault;
}

static bool known(nvmlDevice_t handle)
{
    for (int i = 0; i < handle_count; i++)
        if (handle == &handles[i])
            return true;
    return false;
}

nvmlReturn_t resolve(nvmlDevice_t handle, const struct device **device)
{
    *device = NULL;
    if (!known(handle))
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = find_uuid(handle->uuid);
    if (*device)
        return fault_of(*device);
    if (!handle->parent[0])
        return NVML_ERROR_GPU_IS_LOST;
    /* An instance that is gone: its GPU may have taken it along. */
    const struct device *gpu = find_uuid(handle->parent);
    return gpu && gpu->fault ? (nvmlReturn_t)gpu->fault : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t enter(const char *function, nvmlDevice_t handle, bool lost_too, const struct device **device)
{
    pthread_mutex_lock(&lock);
    char label[MOST_LABEL] = "";
    if (known(handle))
        memcpy(label, handle->label, sizeof label);
    pthread_mutex_unlock(&lock);
    nvmlReturn_t answer = begin(function, label[0] ? label : NULL, false);
    if (answer)
        return answer;
    answer = resolve(handle, device);
    if (*device && lost_too)
        answer = NVML_SUCCESS;
    return answer ? finish(answer) : NVML_SUCCESS;
}

static nvmlReturn_t copied(const char *function, nvmlDevice_t handle, bool lost_too, struct device *copy)
{
    const struct device *device;
    nvmlReturn_t answer = enter(function, handle, lost_too, &device);
    if (answer)
        return answer;
    *copy = *device;
    return finish(NVML_SUCCESS);
}

nvmlReturn_t ask(const char *function, nvmlDevice_t handle, struct device *copy)
{
    return copied(function, handle, false, copy);
}

nvmlReturn_t ask_identity(const char *function, nvmlDevice_t handle, struct device *copy)
{
    return copied(function, handle, true, copy);
}

nvmlReturn_t handle_of(const struct device *device, nvmlDevice_t *handle)
{
    for (int i = 0; i < handle_count; i++)
        if (strcmp(handles[i].uuid, device->uuid) == 0) {
            *handle = &handles[i];
            return NVML_SUCCESS;
        }
    /* A driver still knows a GPU that is lost after it was opened, but cannot open one that is lost. */
    if (fault_of(device))
        return fault_of(device);
    if (device->refused)
        return NVML_ERROR_NO_PERMISSION;
    if (handle_count == MOST_DEVICES)
        return NVML_ERROR_MEMORY;
    struct nvmlDevice_st *next = &handles[handle_count++];
    memset(next, 0, sizeof *next);
    memcpy(next->uuid, device->uuid, sizeof next->uuid);
    memcpy(next->label, device->label, sizeof next->label);
    if (device->parent >= 0)
        memcpy(next->parent, box_now()->devices[device->parent].uuid, sizeof next->parent);
    *handle = next;
    return NVML_SUCCESS;
}

nvmlReturn_t give_text(const char *text, char *out, unsigned int length)
{
    if (!out)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(out, text, strlen(text) + 1);
    return NVML_SUCCESS;
}

static nvmlReturn_t start(const char *function)
{
    pthread_mutex_lock(&lock);
    if (users == 0 && !told) {
        box_use(getenv("SIMNVML_BOX"));
        control_use(getenv("SIMNVML_CONTROL"));
        counts_use(getenv("SIMNVML_COUNTS"));
    }
    pthread_mutex_unlock(&lock);
    nvmlReturn_t answer = begin(function, NULL, true);
    if (answer)
        return answer;
    users++;
    return finish(NVML_SUCCESS);
}

nvmlReturn_t nvmlInit(void)
{
    return start(__func__);
}

nvmlReturn_t nvmlInit_v2(void)
{
    return start(__func__);
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    return start(__func__);
}

nvmlReturn_t nvmlShutdown(void)
{
    nvmlReturn_t answer = begin(__func__, NULL, false);
    if (answer)
        return answer;
    /* The real library crashes when a thread is inside it at the last shutdown: let a test see that. */
    if (users == 1 && inside > 1)
        counts_add("shutdown-while-inside", NULL);
    if (--users == 0)
        handle_count = 0;
    return finish(NVML_SUCCESS);
}

const char *nvmlErrorString(nvmlReturn_t result)
{
    static const struct {
        nvmlReturn_t code;
        const char *text;
    } TEXTS[] = {
        {NVML_SUCCESS, "Success"},
        {NVML_ERROR_UNINITIALIZED, "Uninitialized"},
        {NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument"},
        {NVML_ERROR_NOT_SUPPORTED, "Not Supported"},
        {NVML_ERROR_NO_PERMISSION, "Insufficient Permissions"},
        {NVML_ERROR_NOT_FOUND, "Not Found"},
        {NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size"},
        {NVML_ERROR_INSUFFICIENT_POWER, "Insufficient External Power"},
        {NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"},
        {NVML_ERROR_TIMEOUT, "Timeout"},
        {NVML_ERROR_IRQ_ISSUE, "Interrupt Request Issue"},
        {NVML_ERROR_LIBRARY_NOT_FOUND, "NVML Shared Library Not Found"},
        {NVML_ERROR_FUNCTION_NOT_FOUND, "Function Not Found"},
        {NVML_ERROR_CORRUPTED_INFOROM, "Corrupted infoROM"},
        {NVML_ERROR_GPU_IS_LOST, "GPU is lost"},
        {NVML_ERROR_RESET_REQUIRED, "GPU requires restart"},
        {NVML_ERROR_OPERATING_SYSTEM, "The operating system has blocked the request."},
        {NVML_ERROR_LIB_RM_VERSION_MISMATCH, "RM has detected an NVML/RM version mismatch."},
        {NVML_ERROR_MEMORY, "Insufficient Memory"},
        {NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "Argument version mismatch"},
    };
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; i++)
        if (TEXTS[i].code == result)
            return TEXTS[i].text;
    return "Unknown Error";
}
