/* The device files of simulated devices, for every simulated driver: which of them this process may open. */
#ifndef NODES_H
#define NODES_H

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Whether the file FOLDER/NAME<number> can be opened, as a driver opens it. */
static inline bool opens(const char *folder, const char *name, long long number)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s%lld", folder, name, number);
    int node = open(path, O_RDWR | O_CLOEXEC);
    if (node >= 0)
        close(node);
    return node >= 0;
}

/* The same of the n-th graphics card's render node, the first of which is renderD128, below SIM_RENDER_NODES (drm);
 * without that, a driver that looks at no node. */
static inline bool opens_render_node(int n)
{
    const char *folder = getenv("SIM_RENDER_NODES");
    return !folder || opens(folder, "renderD", 128 + n);
}

#endif
