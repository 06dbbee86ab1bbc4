/*
 * What joins the GPUs: common ancestors, peer access, NVLinks; and field values, which tell of links too.
 */
#include "simnvml.h"

#include <time.h>

static bool same_bus(const struct bus *one, const struct bus *other)
{
    return one->domain == other->domain && one->bus == other->bus && one->device == other->device;
}

/* Links to switches join GPUs of one fabric, which is told by the bus id of the switches. */
static bool one_fabric(const struct device *one, const struct device *other)
{
    for (int i = 0; i < one->links_count; i++)
        for (int j = 0; j < other->links_count; j++)
            if (one->links[i].up && other->links[j].up &&
                one->links[i].kind == NVML_NVLINK_DEVICE_TYPE_SWITCH &&
                other->links[j].kind == NVML_NVLINK_DEVICE_TYPE_SWITCH &&
                same_bus(&one->links[i].bus, &other->links[j].bus))
                return true;
    return false;
}

static int switched(const struct device *device)
{
    int count = 0;
    for (int i = 0; i < device->links_count; i++)
        count += device->links[i].up && device->links[i].kind == NVML_NVLINK_DEVICE_TYPE_SWITCH;
    return count;
}

/* Links whose end cannot be read (GB200, virtual machines) join every GPU that has them. */
static int dark(const struct device *device)
{
    int count = 0;
    for (int i = 0; i < device->links_count; i++)
        count += device->links[i].up && device->links[i].kind == NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
    return count;
}

static bool joined(const struct device *one, const struct device *other)
{
    for (int i = 0; i < one->links_count; i++)
        if (one->links[i].up && same_bus(&one->links[i].bus, &other->bus))
            return true;
    return (one_fabric(one, other) && !box_now()->fabric_down) || (dark(one) && dark(other));
}

/* Both devices of a pair, under the lock on success; the call counts for the first. */
static nvmlReturn_t enter_pair(const char *function, nvmlDevice_t one, nvmlDevice_t other,
                               const struct device *pair[2])
{
    nvmlReturn_t answer = enter(function, one, false, &pair[0]);
    if (answer)
        return answer;
    answer = resolve(other, &pair[1]);
    if (!answer && (pair[0]->parent >= 0 || pair[1]->parent >= 0))
        answer = NVML_ERROR_NOT_SUPPORTED;
    return answer ? finish(answer) : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other,
                                                 nvmlGpuTopologyLevel_t *level)
{
    const struct device *pair[2];
    nvmlReturn_t answer = enter_pair(__func__, one, other, pair);
    if (answer)
        return answer;
    if (!level)
        return finish(NVML_ERROR_INVALID_ARGUMENT);
    int found = pair[0]->levels[pair[1]->index];
    if (found < 0)
        return finish(NVML_ERROR_NOT_SUPPORTED);
    *level = (nvmlGpuTopologyLevel_t)found;
    return finish(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other, nvmlGpuP2PCapsIndex_t capability,
                                    nvmlGpuP2PStatus_t *status)
{
    const struct device *pair[2];
    nvmlReturn_t answer = enter_pair(__func__, one, other, pair);
    if (answer)
        return answer;
    if (!status || (unsigned)capability >= NVML_P2P_CAPS_INDEX_UNKNOWN)
        return finish(NVML_ERROR_INVALID_ARGUMENT);
    int ordered = pair[0]->peers[pair[1]->index];
    if (ordered >= 0 && capability != NVML_P2P_CAPS_INDEX_NVLINK) {
        *status = (nvmlGpuP2PStatus_t)ordered;
        return finish(NVML_SUCCESS);
    }
    int level = pair[0]->levels[pair[1]->index];
    bool reachable = level >= 0 && level < NVML_TOPOLOGY_SYSTEM && capability != NVML_P2P_CAPS_INDEX_NVLINK;
    *status = joined(pair[0], pair[1]) || reachable ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
    return finish(NVML_SUCCESS);
}

/* The link of that number: a GPU without NVLink has none, on others the numbers end. */
static nvmlReturn_t ask_link(const char *function, nvmlDevice_t handle, unsigned int number,
                             struct device *device, struct remote *link)
{
    nvmlReturn_t answer = ask(function, handle, device);
    if (answer)
        return answer;
    if (device->parent >= 0 || device->links_count == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    if (number >= (unsigned)device->links_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *link = device->links[number];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t handle, unsigned int number, nvmlEnableState_t *active)
{
    struct device device;
    struct remote link;
    nvmlReturn_t answer = ask_link(__func__, handle, number, &device, &link);
    if (answer || !active)
        return answer ? answer : NVML_ERROR_INVALID_ARGUMENT;
    *active = link.up ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t handle, unsigned int number, unsigned int *version)
{
    struct device device;
    struct remote link;
    nvmlReturn_t answer = ask_link(__func__, handle, number, &device, &link);
    if (answer || !version)
        return answer ? answer : NVML_ERROR_INVALID_ARGUMENT;
    if (device.nvlink_version == UNKNOWN)
        return NVML_ERROR_NOT_SUPPORTED;
    *version = (unsigned)device.nvlink_version;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t handle, unsigned int number,
                                           nvmlNvLinkCapability_t capability, unsigned int *has)
{
    struct device device;
    struct remote link;
    nvmlReturn_t answer = ask_link(__func__, handle, number, &device, &link);
    if (answer)
        return answer;
    if (!has || (unsigned)capability >= NVML_NVLINK_CAP_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    *has = link.up && capability != NVML_NVLINK_CAP_SLI_BRIDGE;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t handle, unsigned int number,
                                                 nvmlIntNvLinkDeviceType_t *kind)
{
    struct device device;
    struct remote link;
    nvmlReturn_t answer = ask_link(__func__, handle, number, &device, &link);
    if (answer || !kind)
        return answer ? answer : NVML_ERROR_INVALID_ARGUMENT;
    if (!link.up)
        return NVML_ERROR_NOT_SUPPORTED;
    *kind = link.kind;
    return NVML_SUCCESS;
}

static nvmlReturn_t remote_pci(const char *function, nvmlDevice_t handle, unsigned int number,
                               nvmlPciInfo_t *pci, size_t size)
{
    struct device device;
    struct remote link;
    nvmlReturn_t answer = ask_link(function, handle, number, &device, &link);
    if (answer)
        return answer;
    return link.up ? give_pci(&link.bus, pci, size) : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t handle, unsigned int number, nvmlPciInfo_t *pci)
{
    return remote_pci(__func__, handle, number, pci, PCI_SIZE_BEFORE_V3);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t handle, unsigned int number,
                                                 nvmlPciInfo_t *pci)
{
    return remote_pci(__func__, handle, number, pci, sizeof *pci);
}

/* One field of links or power: its number, an unsigned int, or "not supported". */
static nvmlReturn_t field(const struct device *device, const nvmlFieldValue_t *asked, unsigned int *value)
{
    bool nvlink = device->parent < 0 && device->links_count > 0;
    long long found = UNKNOWN;
    switch (asked->fieldId) {
    case NVML_FI_DEV_NVLINK_LINK_COUNT:
        found = nvlink ? device->links_count : UNKNOWN;
        break;
    case NVML_FI_DEV_NVSWITCH_CONNECTED_LINK_COUNT:
        found = nvlink ? switched(device) : UNKNOWN;
        break;
    case NVML_FI_DEV_NVLINK_GET_STATE:
        if (nvlink && asked->scopeId >= (unsigned)device->links_count)
            return NVML_ERROR_INVALID_ARGUMENT;
        found = nvlink ? device->links[asked->scopeId].up : UNKNOWN;
        break;
    case NVML_FI_DEV_POWER_AVERAGE:
    case NVML_FI_DEV_POWER_INSTANT:
        found = device->power;
        break;
    }
    if (found == UNKNOWN)
        return NVML_ERROR_NOT_SUPPORTED;
    *value = (unsigned)found;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t handle, int count, nvmlFieldValue_t *values)
{
    struct device device;
    nvmlReturn_t answer = ask(__func__, handle, &device);
    if (answer)
        return answer;
    if (count < 1 || !values)
        return NVML_ERROR_INVALID_ARGUMENT;
    struct timespec moment;
    clock_gettime(CLOCK_REALTIME, &moment);
    for (int i = 0; i < count; i++) {
        values[i].timestamp = moment.tv_sec * 1000000LL + moment.tv_nsec / 1000;
        values[i].latencyUsec = 0;
        values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
        if (!telemetry_field(&device, &values[i]))
            values[i].nvmlReturn = field(&device, &values[i], &values[i].value.uiVal);
    }
    return NVML_SUCCESS;
}
