/*
 * The control file: what a test has ordered. One order a line; of several that match, the last counts.
 *
 *   delay FUNCTION DEVICE MICROSECONDS   instead of what the call takes by itself
 *   error FUNCTION DEVICE CODE [AFTER]   CODE 0: none, an exception to an order above; the first AFTER calls
 *                                        that it is meant for are answered as if it were not there
 *   hang FUNCTION DEVICE                 until the file no longer says so
 *   xid - DEVICE CODE                    reported once, to each event set that is there at that moment
 *
 * FUNCTION is a symbol, with or without its version ("_v3"), or *; DEVICE a label ("3", "0:1") or *.
 */
#include "simnvml.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ORDERS = 512 };

struct order {
    char what[8], function[64], label[MOST_LABEL];
    long number, after;
};

static struct watched file;
static struct order orders[MOST_ORDERS];
static int order_count;

void control_use(const char *path)
{
    memset(&file, 0, sizeof file);
    snprintf(file.path, sizeof file.path, "%s", path ? path : "");
    order_count = 0;
}

static bool read_order(const char *line, struct order *order)
{
    order->number = order->after = 0;
    int words = sscanf(line, "%7s %63s %11s %ld %ld", order->what, order->function, order->label, &order->number,
                       &order->after);
    if (strcmp(order->what, "hang") == 0)
        return words == 3;
    if (words == 5)
        return strcmp(order->what, "error") == 0 && order->after >= 0;
    return words == 4 && (strcmp(order->what, "delay") == 0 || strcmp(order->what, "error") == 0 ||
                          strcmp(order->what, "xid") == 0);
}

static void read_orders(void)
{
    order_count = 0;
    FILE *stream = fopen(file.path, "re");
    if (!stream) {
        fprintf(stderr, "simnvml: %s: %s\n", file.path, strerror(errno));
        return;
    }
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, stream) > 0) {
        if (order_count < MOST_ORDERS && read_order(line, &orders[order_count]))
            order_count++;
        else if (line[0] != '\n')
            fprintf(stderr, "simnvml: %s: cannot obey '%.80s'\n", file.path, line);
    }
    free(line);
    fclose(stream);
}

/* Whether `symbol` is `name`, or a version of it: nvmlInit names nvmlInit_v2, but not nvmlInitWithFlags. */
static bool names(const char *name, const char *symbol)
{
    if (strcmp(name, "*") == 0)
        return true;
    size_t length = strlen(name);
    if (strncmp(name, symbol, length) != 0)
        return false;
    const char *rest = symbol + length;
    return *rest == '\0' || (strncmp(rest, "_v", 2) == 0 && isdigit((unsigned char)rest[2]));
}

/* What a call takes by itself: this one counts bytes for 20 ms, says nvml.h. The others take microseconds. */
static long natural_delay_us(const char *function)
{
    return strcmp(function, "nvmlDeviceGetPcieThroughput") == 0 ? 20000 : 0;
}

struct orders control_orders(const char *function, const char *label, bool counting)
{
    struct orders found = {natural_delay_us(function), false, 0};
    if (watched_changed(&file))
        read_orders();
    for (int i = 0; i < order_count; i++) {
        struct order *order = &orders[i];
        bool here = strcmp(order->label, "*") == 0 || (label && strcmp(order->label, label) == 0);
        if (!here || !names(order->function, function))
            continue;
        if (order->what[0] == 'd')
            found.delay_us = order->number;
        else if (order->what[0] == 'e' && order->after > 0)
            order->after -= counting;
        else if (order->what[0] == 'e')
            found.error = (int)order->number;
        else
            found.hang = true;
    }
    return found;
}

int control_count(void)
{
    if (watched_changed(&file))
        read_orders();
    return order_count;
}

bool control_next_xid(int *cursor, const char *label, long *xid)
{
    int count = control_count();
    if (*cursor > count)
        *cursor = count;
    while (*cursor < count) {
        const struct order *order = &orders[(*cursor)++];
        if (strcmp(order->what, "xid") == 0 && strcmp(order->label, label) == 0) {
            *xid = order->number;
            return true;
        }
    }
    return false;
}
