/*
 * The simulated libnvidia-ml of the tests: what its parts share.
 *
 *   box.c       the box file: what the GPUs are at this moment
 *   control.c   the control file: delays, hangs and errors that a test has ordered
 *   counts.c    how often each function was called, readable from outside
 *   library.c   start, stop, handles, and the way in of every call: begin, ask, finish
 *   facts.c     what the box and one device are: versions, handles, names, memory
 *   sensors.c   what one device does: load, clocks, temperature, power, modes
 *   processes.c the process lists
 *   mig.c       MIG instances
 *   links.c     topology, peer access, NVLink, field values
 *   telemetry.c what a device's page shows: throttling, errors, counters, GPM, samples of processes, XIDs
 *
 * All state is guarded by one lock. A function never works on shared state: it asks for a copy of its
 * device, and answers from that, so that a box that changes meanwhile cannot tear an answer.
 */
#ifndef SIMNVML_H
#define SIMNVML_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* With this the header declares the functions of every version, as a real library exports them. */
#define NVML_NO_UNVERSIONED_FUNC_DEFS
/* We are compiled with hidden visibility: only NVML's functions are to be seen from outside. */
#pragma GCC visibility push(default)
#include <nvml.h>
#pragma GCC visibility pop

enum {
    MOST_DEVICES = 256, /* GPUs and MIG instances of a box */
    MOST_GPUS = 128,
    MOST_PROCESSES = 8192,
    MOST_LINKS = NVML_NVLINK_MAX_LINKS,
    MOST_TEXT = 96,
    MOST_LABEL = 12, /* "3", or "0:1" for instance 1 of GPU 0 */
    CPU_WORDS = 128, /* 8192 CPUs, the most that Linux is built for */
    NODE_WORDS = 4,
};

/* A number that the box does not have: its functions answer "not supported". */
#define UNKNOWN LLONG_MIN

struct bus {
    unsigned domain, bus, device;
};

/* Where one NVLink ends. */
struct remote {
    bool up;
    nvmlIntNvLinkDeviceType_t kind;
    struct bus bus;
};

/* Bits of process.lists: in which of NVML's three lists a process stands. */
enum { COMPUTE = 1, GRAPHICS = 2, MPS = 4 };

struct process {
    int device; /* place in box.devices */
    unsigned lists, pid;
    unsigned long long memory; /* all ones: not available */
    int sm;                    /* percent; -1: the driver has no sample of it */
};

struct device {
    char uuid[MOST_TEXT], name[MOST_TEXT], label[MOST_LABEL];
    struct bus bus;
    int parent; /* place in box.devices of the GPU that an instance is a part of; -1: a GPU */
    long long index, fault, memory_total, memory_reserved, memory_used, memory_free, utilization,
        memory_utilization, temperature, power, power_limit, power_limit_min, power_limit_max, sm_clock,
        max_sm_clock, capability_major, capability_minor, gpu_numa_node, lists_processes, mig, instances_most, gpu_instance, compute_instance, slices, cores, brand,
        architecture, ecc, display, compute_mode, energy, nvlink_version, pcie_generation, pcie_width;
    /* telemetry.c: percent, MHz, degrees; counters of bytes (NVLink: KiB); GPM in thousandths of a percent. */
    long long encoder, decoder, memory_clock, max_memory_clock, fan, memory_temperature,
        clock_reasons, ecc_corrected, ecc_uncorrected, retired, remapped, pcie_generation_now, pcie_width_now,
        pcie_sent, pcie_received, nvlink_sent, nvlink_received, gpm, graphics_active, sm_active, sm_occupancy, tensor_active,
        gpm_pcie_sent, gpm_nvlink_sent, samples_processes,
        fabric_state, fabric_status, fabric_cluster, fabric_clique;
    long long minor, gpu_cap, compute_cap; /* numbers of nodes; `minor` of GPUs, UNKNOWN: the index */
    bool refused; /* this process may not open it, and NVML says so */
    int links_count;
    struct remote links[MOST_LINKS];
    int levels[MOST_GPUS]; /* nvmlGpuTopologyLevel_t to each GPU by index, -1: unknown */
    int peers[MOST_GPUS];  /* nvmlGpuP2PStatus_t of reads to each GPU, -1: as the level makes one expect */
    bool has_cpus, has_nodes;
    unsigned long cpus[CPU_WORDS], nodes[NODE_WORDS]; /* near host CPUs and NUMA nodes */
};

struct box {
    char driver[MOST_TEXT];
    long long cuda; /* 12040 for 12.4 */
    bool fabric_down; /* the NVSwitches are not set up: links are up, peer access over them is denied */
    int device_count, process_count;
    struct device devices[MOST_DEVICES];
    struct process processes[MOST_PROCESSES];
};

/* What NVML's opaque handle points at. It stays valid until the last nvmlShutdown. */
struct nvmlDevice_st {
    char uuid[MOST_TEXT], parent[MOST_TEXT], label[MOST_LABEL];
};

/* A file that is replaced by renaming another over it: where it is and which one was read last. */
struct watched {
    char path[PATH_MAX];
    struct stat seen;
};

/* Whether the file is another one than at the last call; false also when there is none. */
bool watched_changed(struct watched *file);

/* box.c, under the lock. */
void box_use(const char *path);
bool box_refresh(void); /* false: there is no box, or its file is wrong (said on stderr) */
const struct box *box_now(void);
bool bus_parse(const char *text, struct bus *bus);

/* control.c, under the lock. */
struct orders {
    long delay_us;
    bool hang;
    int error; /* nvmlReturn_t, 0: none */
};
void control_use(const char *path);
/* `counting`: this is the last look before the call answers. */
struct orders control_orders(const char *function, const char *label, bool counting);
int control_count(void);
/* The next XID of the device that was ordered at `*cursor` or later; false: none. Moves the cursor on. */
bool control_next_xid(int *cursor, const char *label, long *xid);

/* telemetry.c: a field that it knows, in `asked`; false: it is none of its. */
bool telemetry_field(const struct device *device, nvmlFieldValue_t *asked);

/* counts.c, under the lock. */
void counts_use(const char *path);
void counts_add(const char *function, const char *label);

/*
 * library.c, the way in of every call. On NVML_SUCCESS of begin, and of enter, the caller holds the lock,
 * and must call finish with its answer; on an error there is nothing left to do.
 */
/* Counts the call, waits as ordered, and returns an ordered error. */
nvmlReturn_t begin(const char *function, const char *label, bool starting);
nvmlReturn_t finish(nvmlReturn_t answer);
/* As begin, and finds the handle's device. `lost_too`: a driver still knows who a lost GPU was. */
nvmlReturn_t enter(const char *function, nvmlDevice_t handle, bool lost_too, const struct device **device);
/* Enters, copies the device out, and finishes. */
nvmlReturn_t ask(const char *function, nvmlDevice_t handle, struct device *copy);
nvmlReturn_t ask_identity(const char *function, nvmlDevice_t handle, struct device *copy);

/* Under the lock: the device of a handle, NULL where it is gone, and 0 or the fault that it answers with. */
nvmlReturn_t resolve(nvmlDevice_t handle, const struct device **device);
/* Under the lock: a handle for a device, or the fault of one that was lost before it was opened. */
nvmlReturn_t handle_of(const struct device *device, nvmlDevice_t *handle);

/* Answers that are more than a number. Before version 3 nvmlPciInfo_t ended where `busId` begins. */
#define PCI_SIZE_BEFORE_V3 offsetof(nvmlPciInfo_t, busId)
nvmlReturn_t give_text(const char *text, char *out, unsigned int length);
nvmlReturn_t give_pci(const struct bus *bus, nvmlPciInfo_t *pci, size_t size);

#endif
