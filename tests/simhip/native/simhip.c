/*
 * The simulated libamdhip64.so of the tests: as much of HIP's API as tells which devices a program sees.
 *
 * The devices are those of the file SIMHIP_BOX, a line each: the UUID's sixteen bytes as hex digits or "-", the
 * bus id, the bytes of memory, the name. HIP_VISIBLE_DEVICES counts as ROCm/clr reads it (rocdevice.cpp): the
 * order is kept, the first entry that names nothing ends the list, an empty list is none. SIMHIP_INIT is a
 * hipError_t that hipInit answers instead of starting. With SIM_RENDER_NODES a device whose render node cannot be
 * opened is left out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nodes.h"

enum { MOST = 64, TEXT = 128, INVALID_VALUE = 1, NO_DEVICE = 100, INVALID_DEVICE = 101 };

static struct device { char uuid[TEXT], bus[TEXT], name[TEXT]; long long memory; } all[MOST];
static int count, visible[MOST], seen;

#define API __attribute__((visibility("default"))) int

API hipInit(unsigned flags)
{
    const char *init = getenv("SIMHIP_INIT"), *path = getenv("SIMHIP_BOX");
    if (flags || (init && atoi(init)))
        return init ? atoi(init) : INVALID_VALUE;
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file)
        return NO_DEVICE;
    int number = 0;
    for (count = 0; count < MOST; number++) {
        struct device *now = &all[count];
        if (fscanf(file, "%127s %127s %lld %127[^\n]", now->uuid, now->bus, &now->memory, now->name) != 4)
            break;
        count += opens_render_node(number);
    }
    fclose(file);
    const char *list = getenv("HIP_VISIBLE_DEVICES");
    seen = 0;
    if (!list || !*list) {
        for (; seen < count; seen++)
            visible[seen] = seen;
        return 0;
    }
    for (char *end; seen < MOST; list = end + 1) {
        long number = strtol(list, &end, 10);
        if (end == list || number < 0 || number >= count)
            break;
        visible[seen++] = (int)number;
        if (*end != ',')
            break;
    }
    return 0;
}

API hipRuntimeGetVersion(int *version)
{
    *version = 60342131;
    return 0;
}

API hipGetDeviceCount(int *found)
{
    *found = seen;
    return seen ? 0 : NO_DEVICE;
}

API hipDeviceGet(int *device, int place)
{
    *device = place;
    return place >= 0 && place < seen ? 0 : INVALID_DEVICE;
}

API hipDeviceGetUuid(unsigned char *uuid, int device)
{
    const char *digits = all[visible[device]].uuid;
    memset(uuid, 0, 16);
    for (int i = 0; i < 16 && strlen(digits) == 32; i++)
        sscanf(digits + 2 * i, "%2hhx", &uuid[i]);
    return 0;
}

API hipDeviceGetPCIBusId(char *bus, int size, int device)
{
    return snprintf(bus, size, "%s", all[visible[device]].bus) < size ? 0 : INVALID_VALUE;
}

API hipDeviceGetName(char *name, int size, int device)
{
    return snprintf(name, size, "%s", all[visible[device]].name) < size ? 0 : INVALID_VALUE;
}

API hipDeviceTotalMem(size_t *memory, int device)
{
    *memory = all[visible[device]].memory;
    return 0;
}
