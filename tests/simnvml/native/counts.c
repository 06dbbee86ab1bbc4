/*
 * How often each function was called on each device: a file of slots that every process maps and adds to,
 * so that it can be read while a program runs, and is right after an exec or a kill.
 *
 * A slot is {char name[64]; uint64 total}; its name "FUNCTION" or "FUNCTION LABEL". A slot is taken by
 * writing its name, the first byte last: a reader never sees half a name. counts.py knows this layout.
 */
#include "simnvml.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SLOTS = 4096, NAME = 64 };

struct slot {
    char name[NAME];
    uint64_t total;
};

static struct slot *slots;
static int descriptor = -1;

void counts_use(const char *path)
{
    if (slots)
        munmap(slots, SLOTS * sizeof *slots);
    if (descriptor >= 0)
        close(descriptor);
    slots = NULL;
    descriptor = -1;
    if (!path || !path[0])
        return;
    descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (descriptor >= 0 && ftruncate(descriptor, SLOTS * sizeof *slots) == 0) {
        void *start = mmap(NULL, SLOTS * sizeof *slots, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
        slots = start == MAP_FAILED ? NULL : start;
    }
    if (!slots)
        fprintf(stderr, "simnvml: %s: %s\n", path, strerror(errno));
}

static bool taken(const struct slot *slot)
{
    return __atomic_load_n(&slot->name[0], __ATOMIC_ACQUIRE) != '\0';
}

/* The slot of that name, or the free one where it belongs; NULL when all are taken. */
static struct slot *find(const char *name)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (const char *c = name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    for (unsigned step = 0; step < SLOTS; step++) {
        struct slot *slot = &slots[(hash + step) % SLOTS];
        if (!taken(slot) || strcmp(slot->name, name) == 0)
            return slot;
    }
    return NULL;
}

void counts_add(const char *function, const char *label)
{
    if (!slots)
        return;
    char name[NAME] = {0};
    snprintf(name, sizeof name, label ? "%s %s" : "%s", function, label);
    struct slot *slot = find(name);
    if (slot && !taken(slot)) {
        /* Rare: the first call of this function. The kernel frees the lock of a process that is killed. */
        flock(descriptor, LOCK_EX);
        slot = find(name);
        if (slot && !taken(slot)) {
            memcpy(slot->name + 1, name + 1, NAME - 1);
            __atomic_store_n(&slot->name[0], name[0], __ATOMIC_RELEASE);
        }
        flock(descriptor, LOCK_UN);
    }
    if (slot)
        __atomic_fetch_add(&slot->total, 1, __ATOMIC_RELAXED);
    else
        fprintf(stderr, "simnvml: no slot is left to count %s\n", name);
}
