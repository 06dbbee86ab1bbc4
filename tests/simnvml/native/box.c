/*
 * The box file: one line a fact, written by render.py, replaced as a whole whenever the box has moved.
 *
 *   driver 550.54.15
 *   cuda 12040
 *   fabric_down yes           links to NVSwitches are up and lead nowhere
 *   gpu INDEX UUID            begins a GPU; the lines below are its facts
 *   instance INDEX UUID       begins a MIG instance of the GPU above
 *   name TEXT
 *   bus 00000000:1B:00.0
 *   levels N N ...            topology level to each GPU, -1 unknown
 *   peers N N ...             status of reads from each GPU, -1 as the level makes one expect
 *   cpus 0-13,28-41           near CPUs; with nothing behind it: none that we may use
 *   nodes 0,5-11              near NUMA nodes, likewise
 *   link KIND BUS             one NVLink: gpu, switch or unknown, and where it ends; or `link down`
 *   process LISTS PID BYTES [SM]  LISTS of c, g, m; BYTES - when not available; SM percent of the GPU's time
 *   KEY NUMBER                the rest; a key that is not there is "not supported"
 *
 * With SIMNVML_NODES=DIR a device has nodes as the driver's in /dev: DIR/nvidiaN (N is the number `minor`, else the
 * index), and DIR/nvidia-caps/nvidia-capN of an instance (N of `gpu_cap`, `compute_cap`). A program that may not
 * open one of them does not see the device, and counts the others from 0, as a program of Slurm's does. With
 * SIMNVML_REFUSES=1 NVML counts them all the same and refuses their handles (NO_PERMISSION), as nvml.h has it.
 */
#include "simnvml.h"

#include "nodes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NUMBER(key) {#key, offsetof(struct device, key)}

static const struct {
    const char *key;
    size_t offset;
} NUMBERS[] = {
    NUMBER(fault), NUMBER(memory_total), NUMBER(memory_reserved), NUMBER(memory_used), NUMBER(memory_free),
    NUMBER(utilization), NUMBER(memory_utilization), NUMBER(temperature), NUMBER(power), NUMBER(power_limit),
    NUMBER(power_limit_min), NUMBER(power_limit_max), NUMBER(sm_clock), NUMBER(max_sm_clock),
    NUMBER(capability_major), NUMBER(capability_minor), NUMBER(gpu_numa_node), NUMBER(lists_processes), NUMBER(mig), NUMBER(instances_most),
    NUMBER(gpu_instance), NUMBER(compute_instance), NUMBER(slices), NUMBER(cores), NUMBER(brand),
    NUMBER(architecture), NUMBER(ecc), NUMBER(display), NUMBER(compute_mode), NUMBER(energy), NUMBER(nvlink_version),
    NUMBER(pcie_generation), NUMBER(pcie_width), NUMBER(encoder), NUMBER(decoder), NUMBER(memory_clock),
    NUMBER(max_memory_clock), NUMBER(fan), NUMBER(memory_temperature),
    NUMBER(clock_reasons), NUMBER(ecc_corrected), NUMBER(ecc_uncorrected), NUMBER(retired), NUMBER(remapped),
    NUMBER(pcie_generation_now), NUMBER(pcie_width_now), NUMBER(pcie_sent), NUMBER(pcie_received),
    NUMBER(nvlink_sent), NUMBER(nvlink_received), NUMBER(gpm), NUMBER(graphics_active), NUMBER(sm_active), NUMBER(sm_occupancy),
    NUMBER(tensor_active), NUMBER(gpm_pcie_sent), NUMBER(gpm_nvlink_sent), NUMBER(samples_processes),
    NUMBER(fabric_state), NUMBER(fabric_status), NUMBER(fabric_cluster), NUMBER(fabric_clique),
    NUMBER(minor), NUMBER(gpu_cap), NUMBER(compute_cap),
};

static struct watched file;
static struct box boxes[2], *now = &boxes[0];
static bool usable;

void box_use(const char *path)
{
    memset(&file, 0, sizeof file);
    snprintf(file.path, sizeof file.path, "%s", path ? path : "");
    usable = false;
}

const struct box *box_now(void)
{
    return now;
}

bool watched_changed(struct watched *watched)
{
    struct stat found;
    if (!watched->path[0] || stat(watched->path, &found) != 0)
        return false;
    const struct stat *seen = &watched->seen;
    bool same = found.st_mtim.tv_sec == seen->st_mtim.tv_sec && found.st_ino == seen->st_ino &&
                found.st_mtim.tv_nsec == seen->st_mtim.tv_nsec && found.st_size == seen->st_size;
    watched->seen = found;
    return !same;
}

bool bus_parse(const char *text, struct bus *bus)
{
    unsigned function = 0;
    char rest;
    if (sscanf(text, "%x:%x:%x.%x%c", &bus->domain, &bus->bus, &bus->device, &function, &rest) == 4)
        return true;
    bus->domain = 0;
    return sscanf(text, "%x:%x.%x%c", &bus->bus, &bus->device, &function, &rest) == 3;
}

static bool whole(const char *text, long long *number)
{
    char *end;
    errno = 0;
    *number = strtoll(text, &end, 10);
    return errno == 0 && end != text && *end == '\0';
}

static bool copy_text(char *to, size_t size, const char *from)
{
    return (size_t)snprintf(to, size, "%s", from) < size;
}

static void clear(struct device *device, int parent)
{
    memset(device, 0, sizeof *device);
    for (size_t i = 0; i < sizeof NUMBERS / sizeof *NUMBERS; i++)
        *(long long *)((char *)device + NUMBERS[i].offset) = UNKNOWN;
    for (int i = 0; i < MOST_GPUS; i++)
        device->levels[i] = device->peers[i] = -1;
    device->fault = 0;
    device->parent = parent;
}

static bool start_device(struct box *box, bool instance, char *value)
{
    if (box->device_count == MOST_DEVICES || (instance && box->device_count == 0))
        return false;
    int parent = -1, place = box->device_count;
    if (instance)
        parent = box->devices[place - 1].parent < 0 ? place - 1 : box->devices[place - 1].parent;
    struct device *device = &box->devices[box->device_count++];
    clear(device, parent);
    char *uuid = strchr(value, ' ');
    if (!uuid)
        return false;
    *uuid++ = '\0';
    if (!whole(value, &device->index) || !copy_text(device->uuid, sizeof device->uuid, uuid))
        return false;
    int length = instance ? snprintf(device->label, sizeof device->label, "%lld:%lld",
                                     box->devices[parent].index, device->index)
                          : snprintf(device->label, sizeof device->label, "%lld", device->index);
    return length < (int)sizeof device->label && (instance || device->index < MOST_GPUS);
}

static bool read_row(int *row, char *value)
{
    char *place = NULL, *word = strtok_r(value, " ", &place);
    for (int i = 0; word; i++, word = strtok_r(NULL, " ", &place)) {
        long long number;
        if (i == MOST_GPUS || !whole(word, &number))
            return false;
        row[i] = (int)number;
    }
    return true;
}

/* "0-13,28-41" as bits of `words` words. */
static bool read_set(unsigned long *set, int words, const char *value)
{
    const unsigned bits = 8 * sizeof *set;
    while (*value) {
        unsigned first, last;
        int used = 0;
        if (sscanf(value, "%u-%u%n", &first, &last, &used) != 2) {
            if (sscanf(value, "%u%n", &first, &used) != 1)
                return false;
            last = first;
        }
        if (last < first || last >= bits * (unsigned)words)
            return false;
        for (unsigned bit = first; bit <= last; bit++)
            set[bit / bits] |= 1ul << (bit % bits);
        value += used;
        value += *value == ',';
    }
    return true;
}

static bool read_link(struct device *device, const char *value)
{
    static const struct {
        const char *word;
        nvmlIntNvLinkDeviceType_t kind;
    } KINDS[] = {{"gpu", NVML_NVLINK_DEVICE_TYPE_GPU},
                 {"switch", NVML_NVLINK_DEVICE_TYPE_SWITCH},
                 {"unknown", NVML_NVLINK_DEVICE_TYPE_UNKNOWN}};
    if (device->links_count == MOST_LINKS)
        return false;
    struct remote *link = &device->links[device->links_count++];
    if (strcmp(value, "down") == 0)
        return true;
    char word[16], bus[32];
    if (sscanf(value, "%15s %31s", word, bus) != 2 || !bus_parse(bus, &link->bus))
        return false;
    link->up = true;
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (strcmp(word, KINDS[i].word) == 0) {
            link->kind = KINDS[i].kind;
            return true;
        }
    return false;
}

static bool read_process(struct box *box, const char *value)
{
    if (box->process_count == MOST_PROCESSES)
        return false;
    struct process *process = &box->processes[box->process_count++];
    char lists[8], bytes[24];
    process->sm = -1;
    if (sscanf(value, "%7s %u %23s %d", lists, &process->pid, bytes, &process->sm) < 3)
        return false;
    process->device = box->device_count - 1;
    process->lists = (strchr(lists, 'c') ? COMPUTE : 0u) | (strchr(lists, 'g') ? GRAPHICS : 0u) |
                     (strchr(lists, 'm') ? MPS : 0u);
    process->memory = ULLONG_MAX;
    long long number;
    if (strcmp(bytes, "-") == 0)
        return true;
    if (!whole(bytes, &number))
        return false;
    process->memory = (unsigned long long)number;
    return true;
}

static bool read_number(struct device *device, const char *key, const char *value)
{
    for (size_t i = 0; i < sizeof NUMBERS / sizeof *NUMBERS; i++)
        if (strcmp(key, NUMBERS[i].key) == 0)
            return whole(value, (long long *)((char *)device + NUMBERS[i].offset));
    return false;
}

static bool read_line(struct box *box, char *line)
{
    char *value = strchr(line, ' ');
    if (!value)
        return false;
    *value++ = '\0';
    if (strcmp(line, "driver") == 0)
        return copy_text(box->driver, sizeof box->driver, value);
    if (strcmp(line, "cuda") == 0)
        return whole(value, &box->cuda);
    if (strcmp(line, "fabric_down") == 0)
        return box->fabric_down = true;
    if (strcmp(line, "gpu") == 0)
        return start_device(box, false, value);
    if (strcmp(line, "instance") == 0)
        return start_device(box, true, value);
    if (box->device_count == 0)
        return false;
    struct device *device = &box->devices[box->device_count - 1];
    if (strcmp(line, "name") == 0)
        return copy_text(device->name, sizeof device->name, value);
    if (strcmp(line, "bus") == 0)
        return bus_parse(value, &device->bus);
    if (strcmp(line, "levels") == 0)
        return read_row(device->levels, value);
    if (strcmp(line, "peers") == 0)
        return read_row(device->peers, value);
    if (strcmp(line, "cpus") == 0)
        return device->has_cpus = true, read_set(device->cpus, CPU_WORDS, value);
    if (strcmp(line, "nodes") == 0)
        return device->has_nodes = true, read_set(device->nodes, NODE_WORDS, value);
    if (strcmp(line, "link") == 0)
        return read_link(device, value);
    if (strcmp(line, "process") == 0)
        return read_process(box, value);
    return read_number(device, line, value);
}

static bool may_open(const struct device *device, const char *folder)
{
    if (device->parent < 0)
        return opens(folder, "nvidia", device->minor == UNKNOWN ? device->index : device->minor);
    return (device->gpu_cap == UNKNOWN || opens(folder, "nvidia-caps/nvidia-cap", device->gpu_cap)) &&
           (device->compute_cap == UNKNOWN || opens(folder, "nvidia-caps/nvidia-cap", device->compute_cap));
}

static void compact(int *numbers, const bool *kept)
{
    for (int from = 0, to = 0; from < MOST_GPUS; from++)
        if (kept[from])
            numbers[to++] = numbers[from];
}

/* Without the devices that this process may not open; the others are counted from 0. */
static void leave_out(struct box *box, const char *folder)
{
    bool refuses = getenv("SIMNVML_REFUSES") != NULL, kept[MOST_GPUS];
    int place[MOST_DEVICES], left = 0, gpus = 0, index = 0;
    memset(kept, true, sizeof kept);
    for (int i = 0; i < box->device_count; i++) {
        struct device *device = &box->devices[i];
        bool may = may_open(device, folder), gpu = device->parent < 0;
        device->refused = gpu && refuses && !may;
        if (gpu)
            kept[gpus++] = may || device->refused;
        may = gpu ? kept[gpus - 1] : may && place[device->parent] >= 0;
        place[i] = may ? left++ : -1;
    }
    for (int i = 0; i < box->device_count; i++) {
        struct device *device = &box->devices[i];
        if (place[i] < 0)
            continue;
        compact(device->levels, kept);
        compact(device->peers, kept);
        if (device->parent < 0) {
            if (device->minor == UNKNOWN)
                device->minor = device->index;
            device->index = index++;
            snprintf(device->label, sizeof device->label, "%d", (int)device->index);
        } else {
            device->parent = place[device->parent];
            snprintf(device->label, sizeof device->label, "%d:%d", (int)box->devices[device->parent].index,
                     (int)device->index);
        }
        box->devices[place[i]] = *device;
    }
    box->device_count = left;
    int processes = 0;
    for (int i = 0; i < box->process_count; i++)
        if (place[box->processes[i].device] >= 0) {
            box->processes[processes] = box->processes[i];
            box->processes[processes++].device = place[box->processes[i].device];
        }
    box->process_count = processes;
}

static bool read_box(struct box *box)
{
    FILE *stream = fopen(file.path, "re");
    if (!stream) {
        fprintf(stderr, "simnvml: %s: %s\n", file.path, strerror(errno));
        return false;
    }
    box->device_count = box->process_count = 0;
    box->driver[0] = '\0';
    box->fabric_down = false;
    box->cuda = UNKNOWN;
    char *line = NULL;
    size_t size = 0;
    bool right = true;
    for (int number = 1; right && getline(&line, &size, stream) > 0; number++) {
        line[strcspn(line, "\n")] = '\0';
        char shown[MOST_TEXT];
        snprintf(shown, sizeof shown, "%s", line);
        right = line[0] == '\0' || read_line(box, line);
        if (!right)
            fprintf(stderr, "simnvml: %s:%d: cannot read '%s'\n", file.path, number, shown);
    }
    free(line);
    fclose(stream);
    const char *nodes = getenv("SIMNVML_NODES");
    if (right && nodes)
        leave_out(box, nodes);
    return right;
}

bool box_refresh(void)
{
    if (!watched_changed(&file))
        return usable;
    struct box *next = now == &boxes[0] ? &boxes[1] : &boxes[0];
    usable = read_box(next);
    if (usable)
        now = next;
    return usable;
}
