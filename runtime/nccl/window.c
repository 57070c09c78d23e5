// SPDX-License-Identifier: Apache-2.0
// Memory and windows. A window's peers are mapped through the driver's handles for other processes; ranks
// that are threads of one process reach each other as they are.
#include <unistd.h>

#include "runtime/nccl/standin.h"

enum { GRAIN = NCCL_WINDOW_GRAIN };

typedef struct Memory {
    struct Memory *next;
    CUdeviceptr base, at;
    size_t bytes;
    int windows;
} Memory;

struct ncclWindow_vidmem {
    NcclWindow next;
    NcclComm comm;
    Memory *memory;
    CUdeviceptr at;
    size_t bytes;
    bool over;
    CUdeviceptr mapped[MOST_RANKS], peers[MOST_RANKS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Memory *memories;
static NcclWindow windows; // of this process, ever

/* Memory --------------------------------------------------------------------------------------- */

EXPORT NcclResult ncclMemAlloc(void **out, size_t bytes) {
    CUdeviceptr base;
    if (!out || !bytes) return say(NCCL_WRONG_ARGUMENT, "ncclMemAlloc: %zu bytes", bytes);
    if (!driver()) return NCCL_SYSTEM_ERROR;
    if (driver()->cuMemAlloc_v2(&base, bytes + GRAIN)) return driver_said("ncclMemAlloc");
    Memory *memory = memory_alloc(sizeof *memory);
    *memory = (Memory){ NULL, base, (base + GRAIN - 1) / GRAIN * GRAIN, bytes, 0 };
    pthread_mutex_lock(&lock);
    memory->next = memories;
    memories = memory;
    pthread_mutex_unlock(&lock);
    *out = (void *)(uintptr_t)memory->at;
    return NCCL_OK;
}

static Memory **memory_at(CUdeviceptr at, size_t bytes) {
    Memory **memory = &memories;
    while (*memory && (at < (*memory)->at || at + bytes > (*memory)->at + (*memory)->bytes))
        memory = &(*memory)->next;
    return memory;
}

EXPORT NcclResult ncclMemFree(void *at) {
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)at;
    if (!at) return NCCL_OK;
    pthread_mutex_lock(&lock);
    Memory **found = memory_at(address, 1), *memory = *found;
    NcclResult result = NCCL_OK;
    if (!memory || memory->at != address)
        result = say(NCCL_WRONG_ARGUMENT, "ncclMemFree: %p is none of ncclMemAlloc's, or was freed", at);
    else if (memory->windows)
        result = say(NCCL_WRONG_USE, "ncclMemFree: %p is registered as a window\n"
                     "  hint: ncclCommWindowDeregister comes first", at);
    else *found = memory->next;
    pthread_mutex_unlock(&lock);
    if (result != NCCL_OK) return result;
    if (driver()->cuMemFree_v2(memory->base)) result = driver_said("ncclMemFree");
    memory_free(memory);
    return result;
}

/* Windows -------------------------------------------------------------------------------------- */

typedef struct Offer {
    CUipcMemHandle handle;
    CUdeviceptr at;
    size_t bytes, lead; // from the handle's start
    int pid, flags, wrong; // wrong: an NcclResult
} Offer;
_Static_assert(sizeof(Offer) <= OFFER - 32, "an offer holds it");

static NcclResult make_offer(void *at, size_t bytes, int flags, Offer *offer, Memory **memory) {
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)at;
    *offer = (Offer){ .at = address, .bytes = bytes, .pid = getpid(), .flags = flags };
    pthread_mutex_lock(&lock);
    *memory = *memory_at(address, bytes);
    if (*memory) (*memory)->windows++;
    pthread_mutex_unlock(&lock);
    if (!*memory)
        return say(NCCL_WRONG_USE, "a window of %zu bytes at %p, which is not within ncclMemAlloc's memory",
                   bytes, at);
    if (address % GRAIN || !bytes)
        return say(NCCL_WRONG_ARGUMENT, "a window of %zu bytes at %p: expected a multiple of %d", bytes, at, GRAIN);
    offer->lead = address - (*memory)->base;
    return driver()->cuIpcGetMemHandle(&offer->handle, (*memory)->base) ? driver_said("a window") : NCCL_OK;
}

static NcclResult open_peers(NcclWindow window, const char *all) {
    for (int i = 0; i < window->comm->n_ranks; i++) {
        Offer offer;
        memcpy(&offer, all + i * OFFER, sizeof offer);
        window->peers[i] = offer.at;
        if (offer.pid == getpid()) continue;
        if (driver()->cuIpcOpenMemHandle_v2(&window->mapped[i], offer.handle, CU_LAZY_PEERS))
            return driver_said("a peer's window");
        window->peers[i] = window->mapped[i] + offer.lead;
    }
    return NCCL_OK;
}

// All ranks register alike.
static NcclResult compare(NcclComm comm, const char *all) {
    Offer first, other;
    memcpy(&first, all, sizeof first);
    for (int i = 0; i < comm->n_ranks; i++) {
        memcpy(&other, all + i * OFFER, sizeof other);
        if (other.wrong)
            return say((NcclResult)other.wrong, "rank %d cannot register its window of %zu bytes", i, other.bytes);
        if (other.bytes == first.bytes && other.flags == first.flags) continue;
        return say(NCCL_WRONG_USE,
                   "ranks register different windows\n  rank 0: %zu bytes, flags %d\n  rank %d: %zu bytes, flags %d",
                   first.bytes, first.flags, i, other.bytes, other.flags);
    }
    return NCCL_OK;
}

static void close_window(NcclWindow window) {
    for (int i = 0; i < window->comm->n_ranks; i++)
        if (window->mapped[i]) driver()->cuIpcCloseMemHandle(window->mapped[i]);
    pthread_mutex_lock(&lock);
    if (window->memory) window->memory->windows--;
    pthread_mutex_unlock(&lock);
    window->over = true;
}

EXPORT NcclResult ncclCommWindowRegister(NcclComm comm, void *at, size_t bytes, NcclWindow *out, int flags) {
    Offer offer;
    NcclResult result = check_host_call(comm, "ncclCommWindowRegister");
    if (result != NCCL_OK) return result;
    if (!out) return say(NCCL_WRONG_ARGUMENT, "ncclCommWindowRegister: no place for the window");
    *out = NULL;
    NcclWindow window = memory_alloc(sizeof *window);
    window->comm = comm;
    window->at = (CUdeviceptr)(uintptr_t)at;
    window->bytes = bytes;
    char own[REPORT] = "", *all = memory_alloc((size_t)comm->n_ranks * OFFER);
    offer.wrong = 0;
    NcclResult made = make_offer(at, bytes, flags, &offer, &window->memory);
    if (made != NCCL_OK) {
        offer.wrong = (int)made;
        strncpy(own, last_text(), sizeof own - 1);
    }
    result = room_meet(comm, "ncclCommWindowRegister", &offer, sizeof offer, all);
    if (result == NCCL_OK) result = compare(comm, all);
    if (result == NCCL_OK) result = open_peers(window, all);
    if (made != NCCL_OK) result = say(made, "%s", own); // the rank itself knows more
    memory_free(all);
    pthread_mutex_lock(&lock);
    window->next = windows;
    windows = window;
    pthread_mutex_unlock(&lock);
    if (result != NCCL_OK) {
        close_window(window);
        return result;
    }
    *out = window;
    return in_progress(comm);
}

static NcclResult check_window(NcclWindow window, const char *call) {
    pthread_mutex_lock(&lock);
    NcclWindow at = windows;
    while (at && at != window) at = at->next;
    bool over = at && at->over;
    pthread_mutex_unlock(&lock);
    if (at && !over) return NCCL_OK;
    return say(NCCL_WRONG_ARGUMENT, "%s: %p %s", call, (void *)window,
               over ? "was deregistered, or its communicator destroyed" : "is no window");
}

EXPORT NcclResult ncclCommWindowDeregister(NcclComm comm, NcclWindow window) {
    NcclResult result = check_host_call(comm, "ncclCommWindowDeregister");
    if (result == NCCL_OK) result = check_window(window, "ncclCommWindowDeregister");
    if (result != NCCL_OK) return result;
    if (window->comm != comm)
        return say(NCCL_WRONG_ARGUMENT, "ncclCommWindowDeregister: the window is another communicator's");
    close_window(window);
    return NCCL_OK;
}

EXPORT NcclResult ncclGetPeerDevicePointer(NcclWindow window, size_t offset, int peer, void **out) {
    NcclResult result = check_window(window, "ncclGetPeerDevicePointer");
    if (result != NCCL_OK) return result;
    if (!out || peer < 0 || peer >= window->comm->n_ranks || offset >= window->bytes)
        return say(NCCL_WRONG_ARGUMENT, "ncclGetPeerDevicePointer: byte %zu of %zu, rank %d of %d", offset,
                   window->bytes, peer, window->comm->n_ranks);
    *out = (void *)(uintptr_t)(window->peers[peer] + offset);
    return NCCL_OK;
}

void free_windows(NcclComm comm) {
    for (NcclWindow window = windows; window; window = window->next)
        if (window->comm == comm && !window->over) close_window(window);
}
