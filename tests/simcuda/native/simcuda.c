/*
 * The simulated libcuda.so.1 of the tests: as much of the driver's API as tells which devices a program sees.
 *
 * The devices are those of the file SIMNVML_BOX (tests/simnvml/native/box.c describes it), so that NVML and
 * CUDA speak of one box. CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER count as the CUDA C++ Programming Guide has it:
 * unset is all, empty none; the first entry that names nothing ends the list; an index counts in the order of
 * CUDA_DEVICE_ORDER, the fastest first unless it is PCI_BUS_ID; a UUID may be cut to a unique beginning; a
 * process has one MIG instance only. What a real driver does with an entry given twice is not documented:
 * here it ends the list. SIMCUDA_INIT is a CUresult that cuInit answers instead of starting. With SIMNVML_NODES a
 * device whose node this process may not open is left out before anything is counted (box.c of simnvml);
 * SIMCUDA_SEES_ALL=1 is a driver that looks at no node. cuInit first waits until a writer has opened and closed the
 * named pipe SIMCUDA_WAITS.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nodes.h"

enum { MOST = 256, TEXT = 96, INVALID_VALUE = 1, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101 };

struct device {
    char uuid[TEXT], parent[TEXT], name[TEXT], bus[TEXT];
    long long memory, cores, clock;
    long long minor, gpu_cap, compute_cap;
    bool instance, divided;
};

static struct device all[MOST];
static int count, visible[MOST], seen;
static bool started;

#define API __attribute__((visibility("default"))) int

static void leave_out(const char *folder)
{
    int left = 0;
    bool gpu = false;
    for (int i = 0; i < count; i++) {
        const struct device *now = &all[i];
        bool may = now->instance ? gpu : opens(folder, "nvidia", now->minor);
        if (!now->instance)
            gpu = may;
        else if ((now->gpu_cap >= 0 && !opens(folder, "nvidia-caps/nvidia-cap", now->gpu_cap)) ||
                 (now->compute_cap >= 0 && !opens(folder, "nvidia-caps/nvidia-cap", now->compute_cap)))
            may = false;
        if (may)
            all[left++] = *now;
    }
    count = left;
}

static void read_box(FILE *file)
{
    char line[4096], word[TEXT], parent[TEXT] = "";
    struct device *now = NULL;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        bool gpu = strncmp(line, "gpu ", 4) == 0, instance = strncmp(line, "instance ", 9) == 0;
        if ((gpu || instance) && count < MOST) {
            now = &all[count++];
            if (sscanf(line, "%*s %lld %95s", &now->minor, now->uuid) != 2)
                abort();
            now->gpu_cap = now->compute_cap = -1;
            now->instance = instance;
            if (gpu)
                strcpy(parent, now->uuid);
            strcpy(now->parent, parent);
        } else if (now && strncmp(line, "name ", 5) == 0) {
            snprintf(now->name, TEXT, "%.95s", line + 5);
        } else if (now && sscanf(line, "bus %95s", word) == 1) {
            strcpy(now->bus, word);
        } else if (now) {
            sscanf(line, "memory_total %lld", &now->memory);
            sscanf(line, "cores %lld", &now->cores);
            sscanf(line, "max_sm_clock %lld", &now->clock);
            sscanf(line, "minor %lld", &now->minor);
            sscanf(line, "gpu_cap %lld", &now->gpu_cap);
            sscanf(line, "compute_cap %lld", &now->compute_cap);
        }
    }
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++)
            if (all[j].instance && i != j && strcmp(all[j].parent, all[i].uuid) == 0)
                all[i].divided = true;
    const char *nodes = getenv("SIMNVML_NODES");
    if (nodes && !getenv("SIMCUDA_SEES_ALL"))
        leave_out(nodes);
}

/* GPUs as an index counts them: one that is divided stands for its first instance, and without one for nothing. */
static int ordered(int *places)
{
    int found = 0;
    for (int i = 0; i < count; i++)
        if (!all[i].instance && (!all[i].divided || (i + 1 < count && all[i + 1].instance)))
            places[found++] = i;
    const char *order = getenv("CUDA_DEVICE_ORDER");
    if (!order || strcmp(order, "PCI_BUS_ID") != 0)
        for (int i = 1; i < found; i++)
            for (int j = i; j > 0; j--) {
                struct device *one = &all[places[j - 1]], *other = &all[places[j]];
                if (one->cores * one->clock >= other->cores * other->clock)
                    break;
                int kept = places[j];
                places[j] = places[j - 1];
                places[j - 1] = kept;
            }
    for (int i = 0; i < found; i++)
        if (all[places[i]].divided)
            places[i]++;
    return found;
}

static int named(const char *entry, const int *places, int gpus)
{
    char *end = NULL;
    long index = strtol(entry, &end, 10);
    if (end != entry)
        return *end == 0 && index >= 0 && index < gpus ? places[index] : -1;
    int found = -1;
    if (strncmp(entry, "GPU-", 4) != 0 && strncmp(entry, "MIG-", 4) != 0)
        return -1;
    for (int i = 0; i < count; i++)
        if (strncmp(all[i].uuid, entry, strlen(entry)) == 0) {
            if (found >= 0)
                return -1;
            found = i;
        }
    return found;
}

static void look(void)
{
    int places[MOST], gpus = ordered(places);
    const char *given = getenv("CUDA_VISIBLE_DEVICES");
    if (!given) {
        for (int i = 0; i < gpus; i++)
            visible[seen++] = places[i];
    } else {
        char *text = strdup(given), *rest = text, *entry;
        while ((entry = strsep(&rest, ","))) {
            int found = named(entry, places, gpus);
            for (int i = 0; i < seen; i++)
                if (visible[i] == found)
                    found = -1;
            if (found < 0)
                break;
            visible[seen++] = found;
        }
        free(text);
    }
    if (seen && all[visible[0]].instance)
        seen = 1;
}

API cuInit(unsigned flags)
{
    const char *order = getenv("SIMCUDA_INIT"), *box = getenv("SIMNVML_BOX");
    if (flags)
        return INVALID_VALUE;
    if (order && atoi(order))
        return atoi(order);
    const char *waits = getenv("SIMCUDA_WAITS");
    FILE *pipe = waits ? fopen(waits, "r") : NULL;
    if (pipe) {
        while (fgetc(pipe) != EOF)
            ;
        fclose(pipe);
    }
    if (!started) {
        FILE *file = box ? fopen(box, "r") : NULL;
        if (!file)
            return NO_DEVICE;
        read_box(file);
        fclose(file);
        look();
        started = true;
    }
    return seen ? 0 : NO_DEVICE;
}

API cuDriverGetVersion(int *version)
{
    *version = 12040;
    return 0;
}

API cuDeviceGetCount(int *number)
{
    *number = seen;
    return started ? 0 : NOT_INITIALIZED;
}

API cuDeviceGet(int *device, int place)
{
    if (!started || place < 0 || place >= seen)
        return INVALID_DEVICE;
    *device = place;
    return 0;
}

static struct device *of(int device)
{
    return started && device >= 0 && device < seen ? &all[visible[device]] : NULL;
}

static int written(char *text, int length, const char *from)
{
    if (!from)
        return INVALID_DEVICE;
    return snprintf(text, (size_t)length, "%s", from) < length ? 0 : INVALID_VALUE;
}

API cuDeviceGetName(char *name, int length, int device)
{
    return written(name, length, of(device) ? of(device)->name : NULL);
}

API cuDeviceGetPCIBusId(char *bus, int length, int device)
{
    /* Four digits of the domain, as the driver writes it; NVML writes eight. */
    struct device *found = of(device);
    size_t skip = found && strlen(found->bus) == 16 ? 4 : 0;
    return written(bus, length, found ? found->bus + skip : NULL);
}

API cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    if (!of(device))
        return INVALID_DEVICE;
    *bytes = (size_t)of(device)->memory;
    return 0;
}

static int uuid(unsigned char *bytes, const char *text)
{
    int place = 0;
    for (const char *c = text + 4; *c && place < 16; c++) {
        if (*c == '-')
            continue;
        unsigned byte;
        if (sscanf(c, "%2x", &byte) != 1)
            return INVALID_VALUE;
        bytes[place++] = (unsigned char)byte;
        c++;
    }
    return place == 16 ? 0 : INVALID_VALUE;
}

API cuDeviceGetUuid(unsigned char *bytes, int device)
{
    return of(device) ? uuid(bytes, of(device)->parent) : INVALID_DEVICE;
}

API cuDeviceGetUuid_v2(unsigned char *bytes, int device)
{
    return of(device) ? uuid(bytes, of(device)->uuid) : INVALID_DEVICE;
}
