/* The device files of simulated devices, for every simulated driver: which of them this process may open. */
#ifndef NODES_H
#define NODES_H

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

/* Whether the file FOLDER/NAME can be opened, as a driver opens it. */
static inline bool opens_named(const char *folder, const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int node = open(path, O_RDWR | O_CLOEXEC);
    if (node >= 0)
        close(node);
    return node >= 0;
}

static inline bool opens(const char *folder, const char *name, long long number)
{
    char whole[256];
    snprintf(whole, sizeof whole, "%s%lld", name, number);
    return opens_named(folder, whole);
}

#endif
