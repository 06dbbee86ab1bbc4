/*
 * The simulated libze_loader.so.1 of the tests: as much of Level Zero as tells which devices a program sees.
 *
 * The devices are those of the file SIMZE_BOX, a line each: the bus id, the name. Their UUIDs are made of the place on
 * the bus, as compute-runtime makes them where it knows no serial number. With SIM_RENDER_NODES a device whose render
 * node cannot be opened is left out. SIMZE_INIT is a ze_result_t that zeInit answers instead of starting.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "nodes.h"

enum { MOST = 64, UNINITIALIZED = 0x78000001, INVALID = 0x78000004, DEVICE = 0x3, PCI = 0x10008 };

struct device_properties {
    uint32_t stype;
    void *next;
    uint32_t type, vendor, device, flags, subdevice, clock;
    uint64_t most_allocated;
    uint32_t contexts, priority, threads, width, units, subslices, slices;
    uint64_t timer;
    uint32_t bits, kernel_bits;
    uint8_t uuid[16];
    char name[256];
};

struct pci_properties {
    uint32_t stype;
    void *next;
    uint32_t domain, bus, device, function;
    int32_t generation, width;
    int64_t bandwidth;
};

static struct device { uint32_t domain, bus, device, function; char name[128]; } all[MOST];
static uint32_t count;

#define API __attribute__((visibility("default"))) uint32_t

API zeInit(uint32_t flags)
{
    const char *init = getenv("SIMZE_INIT"), *path = getenv("SIMZE_BOX");
    if (init && atoi(init))
        return (uint32_t)strtoul(init, NULL, 0);
    FILE *file = path && flags <= 1 ? fopen(path, "r") : NULL;
    if (!file)
        return UNINITIALIZED;
    int number = 0;
    for (count = 0; count < MOST; number++) {
        struct device *now = &all[count];
        if (fscanf(file, "%x:%x:%x.%x %127[^\n]", &now->domain, &now->bus, &now->device, &now->function, now->name) != 5)
            break;
        count += opens_render_node(number);
    }
    fclose(file);
    return count ? 0 : UNINITIALIZED;
}

API zeDriverGet(uint32_t *number, void **drivers)
{
    if (drivers && *number)
        drivers[0] = all;
    *number = 1;
    return 0;
}

API zeDeviceGet(void *driver, uint32_t *number, void **devices)
{
    if (driver != all)
        return INVALID;
    for (uint32_t i = 0; devices && i < count && i < *number; i++)
        devices[i] = &all[i];
    *number = count;
    return 0;
}

API zeDeviceGetProperties(const struct device *device, struct device_properties *told)
{
    if (told->stype != DEVICE)
        return INVALID;
    uint8_t uuid[16] = {0x86, 0x80, 0x0b, 0xe2, 0, 0, (uint8_t)device->domain, (uint8_t)(device->domain >> 8),
                        (uint8_t)device->bus, (uint8_t)device->device, (uint8_t)device->function};
    memcpy(told->uuid, uuid, sizeof uuid);
    strcpy(told->name, device->name);
    told->vendor = 0x8086;
    return 0;
}

API zeDevicePciGetPropertiesExt(const struct device *device, struct pci_properties *told)
{
    if (told->stype != PCI)
        return INVALID;
    told->domain = device->domain;
    told->bus = device->bus;
    told->device = device->device;
    told->function = device->function;
    return 0;
}
