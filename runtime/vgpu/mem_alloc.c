// SPDX-License-Identifier: Apache-2.0
// Device memory: allocations, the table of pages, and copies by the host.
//
// Device addresses are plenty and host memory is not: an allocation takes whole 2 MiB pages of
// addresses for itself, in order, and a page's addresses are used again only when the window of 1
// TiB has been walked through. So every distance to another allocation is a red zone of 4 KiB or
// more, and what is freed is remembered long after its host memory is gone. Host memory is mapped
// lazily; lines (shadow.h) are complete at both ends.
//
// Behind an allocation is one mapping: data, history, maps of written bytes, each from a page on. What
// processes share of it is data and maps, which then come from a file, one after the other.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/vgpu/shadow.h"

// Records hang in a table that is no heap memory: leak checkers are told of it.
#if defined(__SANITIZE_ADDRESS__)
#define LEAKS_SOUGHT 1
#elif defined(__has_feature) // not in a condition with other things, which older GCCs cannot read
#if __has_feature(address_sanitizer)
#define LEAKS_SOUGHT 1
#endif
#endif
#ifdef LEAKS_SOUGHT
#include <sanitizer/lsan_interface.h>
#define KNOW_TABLE(at, bytes) __lsan_register_root_region(at, bytes)
#define FORGET_TABLE(at, bytes) __lsan_unregister_root_region(at, bytes)
#else
#define KNOW_TABLE(at, bytes) (void)0
#define FORGET_TABLE(at, bytes) (void)0
#endif

#define PAGE ((uint64_t)1 << VG_PAGE_SHIFT)
#define RED_ZONE 4096u

static int window_of(uint64_t address) {
    if (address - VG_GLOBAL_WINDOW < VG_WINDOW_BYTES) return 0;
    if (address - VG_CONST_WINDOW < VG_WINDOW_BYTES) return 1;
    return -1;
}

static const uint64_t window_start[2] = { VG_GLOBAL_WINDOW, VG_CONST_WINDOW };

static void *map_pages(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

VgSpace vg_space_of(uint64_t generic) {
    switch (generic >> 40) {
    case VG_SHARED_WINDOW >> 40: return VG_SHARED;
    case VG_LOCAL_WINDOW >> 40: return VG_LOCAL;
    case VG_CONST_WINDOW >> 40: return VG_CONST;
    case VG_PARAM_WINDOW >> 40: return VG_PARAM;
    case VG_GLOBAL_WINDOW >> 40: return VG_GLOBAL;
    default: return VG_NOWHERE;
    }
}

VgAlloc *vg_alloc_at(const VgMemory *memory, uint64_t address) {
    int window = window_of(address);
    if (window < 0) return NULL;
    uint64_t page = (address - window_start[window]) >> VG_PAGE_SHIFT;
    return atomic_load_explicit(&memory->pages[window][page], memory_order_acquire);
}

Status vg_memory_create(const VgMemoryOptions *options, VgMemory **out) {
    VgMemory *memory = calloc(1, sizeof *memory);
    if (!memory) return status_fail(ERR_MEMORY, "no memory for the virtual GPU");
    if (options) memory->options = *options;
    if (!memory->options.total_bytes) memory->options.total_bytes = (uint64_t)64 << 30;
    for (int i = 0; i < 2; i++) {
        memory->pages[i] = map_pages(VG_WINDOW_PAGES * sizeof *memory->pages[i]);
        if (memory->pages[i]) KNOW_TABLE(memory->pages[i], VG_WINDOW_PAGES * sizeof *memory->pages[i]);
        memory->next_page[i] = 1; // the window's first page is always wild
    }
    pthread_mutex_init(&memory->lock, NULL);
    memory->next_id = 1u << VG_CHUNK_SHIFT;
    if (!memory->pages[0] || !memory->pages[1]) {
        vg_memory_destroy(memory);
        return status_fail(ERR_MEMORY, "no address space for the virtual GPU's page table");
    }
    *out = memory;
    return OK;
}

// The three parts, in bytes.
typedef struct Parts { size_t data, history, written; } Parts;

static Parts parts_of(const VgAlloc *alloc) {
    enum { HOST_PAGE = 4096 };
    size_t lines = VG_LINES(alloc->bytes) + 1;
    size_t history = alloc->read_only ? 0 : lines * (VG_LINE / 4) * sizeof *alloc->history;
    return (Parts){ (size_t)round_up((int64_t)((lines + 1) * VG_LINE), HOST_PAGE),
                    (size_t)round_up((int64_t)history, HOST_PAGE),
                    (size_t)round_up((int64_t)(lines * sizeof *alloc->written), HOST_PAGE) };
}

void vg_alloc_unmap(VgAlloc *alloc) {
    if (alloc->mapped) munmap(alloc->host - VG_LINE, alloc->mapped);
    alloc->mapped = 0;
    if (alloc->file) close(alloc->file - 1);
    alloc->file = 0;
}

void vg_memory_destroy(VgMemory *memory) {
    if (!memory) return;
    for (int w = 0; w < 2; w++) {
        if (!memory->pages[w]) continue;
        VgAlloc *last = NULL;
        for (size_t page = 0; page < memory->end_page[w]; page++) {
            VgAlloc *alloc = memory->pages[w][page];
            if (alloc && alloc != last) {
                vg_alloc_unmap(alloc);
                free(alloc);
            }
            if (alloc) last = alloc;
        }
        FORGET_TABLE(memory->pages[w], VG_WINDOW_PAGES * sizeof *memory->pages[w]);
        munmap(memory->pages[w], VG_WINDOW_PAGES * sizeof *memory->pages[w]);
    }
    pthread_mutex_destroy(&memory->lock);
    free(memory);
}

// A run of pages whose owners are dead or nobody, from next_page on; around the window once.
// Records of the dead that give their pages are dropped. 0: none.
static uint64_t take_pages(VgMemory *memory, int window, uint64_t n) {
    _Atomic(VgAlloc *) *pages = memory->pages[window];
    uint64_t at = memory->next_page[window], run = 0;
    for (uint64_t seen = 0; seen < 2 * VG_WINDOW_PAGES; seen++, at++) {
        if (at >= VG_WINDOW_PAGES) {
            at = 1;
            run = 0;
        }
        VgAlloc *owner = pages[at];
        bool taken =
            owner && (owner->live || owner->mapped || memory->launches); // kernels look at records
        run = taken ? 0 : run + 1;
        if (run < n) continue;
        uint64_t first = at + 1 - n;
        for (uint64_t p = first; p <= at; p++) {
            VgAlloc *dead = pages[p];
            if (!dead) continue;
            for (uint64_t q = (dead->start - window_start[window]) >> VG_PAGE_SHIFT;
                 q < VG_WINDOW_PAGES && pages[q] == dead; q++)
                pages[q] = NULL;
            free(dead);
        }
        memory->next_page[window] = at + 1;
        if (at + 1 > memory->end_page[window]) memory->end_page[window] = at + 1;
        return first;
    }
    return 0;
}

// Data and maps become the file's, where they lie.
static bool map_file(VgAlloc *alloc) {
    Parts parts = parts_of(alloc);
    int file = alloc->file - 1, how = MAP_SHARED | MAP_FIXED | MAP_NORESERVE;
    return mmap(alloc->host - VG_LINE, parts.data, PROT_READ | PROT_WRITE, how, file, 0) != MAP_FAILED &&
           mmap(alloc->written, parts.written, PROT_READ | PROT_WRITE, how, file, (off_t)parts.data) !=
               MAP_FAILED;
}

static Status map_alloc(VgAlloc *alloc) {
    Parts parts = parts_of(alloc);
    uint8_t *at = map_pages(parts.data + parts.history + parts.written);
    if (!at)
        return status_fail(ERR_MEMORY, "no host memory for %llu bytes of device memory",
                           (unsigned long long)alloc->bytes);
    alloc->mapped = parts.data + parts.history + parts.written;
    alloc->host = at + VG_LINE;
    alloc->history = parts.history ? (uint32_t *)(at + parts.data) : NULL;
    alloc->written = (uint64_t (*)[4])(at + parts.data + parts.history);
    if (!alloc->file || map_file(alloc)) return OK;
    return status_fail(ERR_MEMORY, "cannot map %s: %s", alloc->what, strerror(errno));
}

// Addresses and host memory for the record.
static Status place(VgMemory *memory, int window, size_t align, VgAlloc *alloc) {
    uint64_t lead = align > 512 ? round_up(RED_ZONE, (int64_t)align) : RED_ZONE + 512;
    uint64_t n_pages = div_up((int64_t)(lead + alloc->bytes + RED_ZONE), (int64_t)PAGE);
    uint64_t first = align <= PAGE ? take_pages(memory, window, n_pages) : 0;
    if (!first)
        return status_fail(ERR_MEMORY, "no device addresses left for %llu bytes aligned to %zu",
                           (unsigned long long)alloc->bytes, align);
    TRY(map_alloc(alloc));
    alloc->start = window_start[window] + first * PAGE + lead;
    alloc->live = true;
    alloc->serial = ++memory->serial;
    for (uint64_t i = 0; i < n_pages; i++)
        atomic_store_explicit(&memory->pages[window][first + i], alloc, memory_order_release);
    return OK;
}

Status vg_mem_alloc(VgMemory *memory, VgSpace space, size_t bytes, size_t align, const char *what,
                    uint64_t *address) {
    if (!bytes || bytes > VG_WINDOW_BYTES / 4)
        return status_fail(ERR_ARGUMENT, "an allocation of %zu bytes", bytes);
    if (align & (align - 1))
        return status_fail(ERR_ARGUMENT, "alignment %zu is no power of two", align);
    VgAlloc *alloc = calloc(1, sizeof *alloc);
    if (!alloc) return status_fail(ERR_MEMORY, "no memory for an allocation's record");
    snprintf(alloc->what, sizeof alloc->what, "%s", what ? what : "allocation");
    alloc->bytes = bytes;
    alloc->read_only = space == VG_CONST;

    pthread_mutex_lock(&memory->lock);
    Status status = OK;
    if (memory->used + bytes > memory->options.total_bytes)
        status = status_fail(ERR_MEMORY, "%zu bytes asked, %llu of %llu in use", bytes,
                             (unsigned long long)memory->used,
                             (unsigned long long)memory->options.total_bytes);
    else
        status = place(memory, space == VG_CONST, align, alloc);
    if (status == OK) memory->used += bytes;
    pthread_mutex_unlock(&memory->lock);
    if (status == OK) *address = alloc->start;
    else free(alloc);
    return status;
}

Status vg_mem_free(VgMemory *memory, uint64_t address) {
    if (!address) return OK;
    VgAlloc *alloc = vg_alloc_at(memory, address);
    if (!alloc || address < alloc->start || address >= alloc->start + alloc->bytes)
        return status_fail(ERR_ARGUMENT, "free of 0x%llx, which is no device allocation",
                           (unsigned long long)address);
    if (!alloc->live)
        return status_fail(ERR_ARGUMENT, "double free of 0x%llx (%s, %llu bytes)",
                           (unsigned long long)address, alloc->what,
                           (unsigned long long)alloc->bytes);
    if (address != alloc->start)
        return status_fail(ERR_ARGUMENT, "free of 0x%llx, which is %llu bytes inside %s",
                           (unsigned long long)address,
                           (unsigned long long)(address - alloc->start), alloc->what);
    pthread_mutex_lock(&memory->lock);
    alloc->live = false;
    if (!alloc->guest) memory->used -= alloc->bytes;
    if (memory->launches) { // a kernel may be looking at it
        alloc->next_dead = memory->dead;
        memory->dead = alloc;
    } else {
        vg_alloc_unmap(alloc);
    }
    pthread_mutex_unlock(&memory->lock);
    return OK;
}

// [address, address + bytes) as a live allocation and an offset.
static Status locate(VgMemory *memory, uint64_t address, size_t bytes, const char *verb,
                     VgAlloc **alloc, uint64_t *offset) {
    VgAlloc *at = vg_alloc_at(memory, address);
    if (!at || !at->live)
        return status_fail(ERR_ARGUMENT, "%s of %zu bytes at 0x%llx: %s", verb, bytes,
                           (unsigned long long)address,
                           at ? "that allocation has been freed" : "no device allocation");
    *offset = address - at->start;
    if (address < at->start || *offset > at->bytes || bytes > at->bytes - *offset)
        return status_fail(ERR_ARGUMENT,
                           "%s of %zu bytes at offset %lld of %s, which has %llu bytes", verb,
                           bytes, (long long)*offset, at->what, (unsigned long long)at->bytes);
    *alloc = at;
    return OK;
}

void vg_written_mark(VgAlloc *alloc, uint64_t offset, uint64_t bytes) {
    if (!offset && bytes == alloc->bytes) alloc->whole = true;
    while (bytes) {
        uint64_t line = offset / VG_LINE, in = offset % VG_LINE;
        if (!in && bytes >= VG_LINE) {
            memset(alloc->written[line], 0xff, sizeof alloc->written[line]);
            offset += VG_LINE;
            bytes -= VG_LINE;
            continue;
        }
        // kernels of other processes mark theirs
        __atomic_fetch_or(&alloc->written[line][in & 3], (uint64_t)1 << (in >> 2), __ATOMIC_RELAXED);
        offset++;
        bytes--;
    }
}

uint64_t vg_written_check(const VgAlloc *alloc, uint64_t offset, uint64_t bytes) {
    if (alloc->whole) return bytes;
    for (uint64_t done = 0; done < bytes;) {
        uint64_t at = offset + done, in = at % VG_LINE;
        const uint64_t *maps = alloc->written[at / VG_LINE];
        if (!in && bytes - done >= VG_LINE &&
            (maps[0] & maps[1] & maps[2] & maps[3]) == UINT64_MAX) {
            done += VG_LINE;
            continue;
        }
        if (!(maps[in & 3] >> (in >> 2) & 1)) return done;
        done++;
    }
    return bytes;
}

Status vg_mem_write(VgMemory *memory, uint64_t to, const void *from, size_t bytes) {
    VgAlloc *alloc;
    uint64_t offset;
    if (!bytes) return OK;
    TRY(locate(memory, to, bytes, "write", &alloc, &offset));
    memcpy(alloc->host + offset, from, bytes);
    vg_written_mark(alloc, offset, bytes);
    return OK;
}

Status vg_mem_read(VgMemory *memory, uint64_t from, void *to, size_t bytes, bool unchecked) {
    VgAlloc *alloc;
    uint64_t offset;
    if (!bytes) return OK;
    TRY(locate(memory, from, bytes, "read", &alloc, &offset));
    memcpy(to, alloc->host + offset, bytes);
    uint64_t good =
        unchecked || memory->options.no_init ? bytes : vg_written_check(alloc, offset, bytes);
    if (good < bytes)
        return status_fail(ERR_INPUT,
                           "copy to the host of %zu bytes of %s: byte %llu was never written",
                           bytes, alloc->what, (unsigned long long)(offset + good));
    return OK;
}

Status vg_mem_copy(VgMemory *memory, uint64_t to, uint64_t from, size_t bytes) {
    VgAlloc *source, *target;
    uint64_t from_offset, to_offset;
    if (!bytes) return OK;
    TRY(locate(memory, from, bytes, "copy", &source, &from_offset));
    TRY(locate(memory, to, bytes, "copy", &target, &to_offset));
    memmove(target->host + to_offset, source->host + from_offset, bytes);
    if (vg_written_check(source, from_offset, bytes) == bytes) {
        vg_written_mark(target, to_offset, bytes);
        return OK;
    }
    // Unwritten bytes stay unwritten, wherever they go. Backwards when the target is ahead. Maps of
    // a target that is whole may lag behind.
    if (target->whole) {
        memset(target->written, 0xff, VG_LINES(target->bytes) * sizeof *target->written);
        target->whole = false;
    }
    bool backwards = source == target && to_offset > from_offset;
    for (size_t k = 0; k < bytes; k++) {
        size_t i = backwards ? bytes - 1 - k : k;
        uint64_t s = from_offset + i, t = to_offset + i, bit = (uint64_t)1 << (t % VG_LINE >> 2);
        bool set = vg_written_check(source, s, 1) == 1;
        uint64_t *map = &target->written[t / VG_LINE][t & 3];
        *map = set ? *map | bit : *map & ~bit;
    }
    return OK;
}

Status vg_mem_fill(VgMemory *memory, uint64_t to, uint64_t value, int value_bytes, size_t count) {
    VgAlloc *alloc;
    uint64_t offset;
    size_t bytes = count * (size_t)value_bytes;
    if (!bytes) return OK;
    TRY(locate(memory, to, bytes, "fill", &alloc, &offset));
    uint8_t *at = alloc->host + offset;
    if (value_bytes == 1)
        memset(at, (int)value, bytes);
    else
        for (size_t i = 0; i < count; i++)
            memcpy(at + i * (size_t)value_bytes, &value, (size_t)value_bytes);
    vg_written_mark(alloc, offset, bytes);
    return OK;
}

// Host memory is mapped for each allocation, so it begins as zeros.
Status vg_mem_zero_rest(VgMemory *memory, uint64_t address) {
    VgAlloc *alloc = vg_alloc_at(memory, address);
    if (!alloc || !alloc->live || alloc->start != address)
        return status_fail(ERR_ARGUMENT, "0x%llx begins no device allocation",
                           (unsigned long long)address);
    alloc->whole = true;
    return OK;
}

void *vg_mem_host(VgMemory *memory, uint64_t address, size_t bytes) {
    VgAlloc *alloc = vg_alloc_at(memory, address);
    if (!alloc || !alloc->live || address < alloc->start) return NULL;
    uint64_t offset = address - alloc->start;
    return offset > alloc->bytes || bytes > alloc->bytes - offset ? NULL : alloc->host + offset;
}

bool vg_mem_find(VgMemory *memory, uint64_t address, uint64_t *start, size_t *bytes,
                 const char **what) {
    VgAlloc *alloc = vg_alloc_at(memory, address);
    if (!alloc || !alloc->live || address - alloc->start >= alloc->bytes) return false;
    *start = alloc->start;
    *bytes = alloc->bytes;
    *what = alloc->what;
    return true;
}

void vg_mem_usage(VgMemory *memory, uint64_t *total, uint64_t *used) {
    pthread_mutex_lock(&memory->lock);
    *total = memory->options.total_bytes;
    *used = memory->used;
    pthread_mutex_unlock(&memory->lock);
}

/* Memory of several processes ------------------------------------------------------------------ */

// Pages that hold nothing stay holes.
static bool put_pages(int file, const uint8_t *from, size_t bytes, size_t at) {
    static const uint8_t zeros[4096];
    for (size_t done = 0; done < bytes; done += sizeof zeros) {
        if (!memcmp(from + done, zeros, sizeof zeros)) continue;
        if (pwrite(file, from + done, sizeof zeros, (off_t)(at + done)) != (ssize_t)sizeof zeros)
            return false;
    }
    return true;
}

Status vg_mem_share(VgMemory *memory, uint64_t address, int *file) {
    VgAlloc *alloc = vg_alloc_at(memory, address);
    if (!alloc || !alloc->live || alloc->start != address || alloc->guest || alloc->read_only)
        return status_fail(ERR_ARGUMENT, "0x%llx is no allocation that can be shared",
                           (unsigned long long)address);
    *file = alloc->file - 1;
    if (alloc->file) return OK;
    Parts parts = parts_of(alloc);
    int made = memfd_create("moec-vgpu", MFD_CLOEXEC);
    if (made < 0) return status_fail(ERR_IO, "no file for shared memory: %s", strerror(errno));
    bool good = ftruncate(made, (off_t)(parts.data + parts.written)) == 0 &&
                put_pages(made, alloc->host - VG_LINE, parts.data, 0) &&
                put_pages(made, (const uint8_t *)alloc->written, parts.written, parts.data);
    alloc->file = made + 1;
    if (good && map_file(alloc)) {
        *file = made;
        return OK;
    }
    Status status = status_fail(ERR_MEMORY, "cannot share %s: %s", alloc->what, strerror(errno));
    alloc->file = 0;
    close(made);
    return status;
}

Status vg_mem_guest(VgMemory *memory, int file, size_t bytes, const char *what, uint64_t *address) {
    VgAlloc *alloc = calloc(1, sizeof *alloc);
    if (!alloc) {
        close(file);
        return status_fail(ERR_MEMORY, "no memory for an allocation's record");
    }
    snprintf(alloc->what, sizeof alloc->what, "%s", what);
    alloc->bytes = bytes;
    alloc->file = file + 1;
    alloc->guest = true;
    pthread_mutex_lock(&memory->lock);
    Status status = place(memory, 0, 0, alloc);
    pthread_mutex_unlock(&memory->lock);
    if (status == OK) {
        *address = alloc->start;
        return OK;
    }
    vg_alloc_unmap(alloc);
    free(alloc);
    return status;
}
