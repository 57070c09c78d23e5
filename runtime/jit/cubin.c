// SPDX-License-Identifier: Apache-2.0
// Reads a cubin, which is an ELF file for a GPU. What is used of it:
//
//   .text.ENTRY      the code; registers of a thread in the high byte of sh_info
//   .nv.shared.ENTRY size: static shared memory; from sm_90 on 1 KiB of the system's more, told by a
//                    section .nv.shared.reserved.0
//   .nv.info         records of all kernels, by number of their symbol: frame size (0x11)
//   .nv.info.ENTRY   records of one: parameters (0x17: ordinal, offset, size), their bytes (0x19)
//
// A record is format (1 byte: 4 = sized, else 2 bytes of value), attribute (1 byte), size or value
// (2 bytes), and the payload if sized. The numbers of attributes are those that cuobjdump -elf
// prints as EIATTR_KPARAM_INFO and so on; tests compare with a kernel whose layout is known, for
// every architecture. The file may come from a cache: nothing outside its bytes is read.
#include "runtime/jit/jit.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>

enum { FORMAT_SIZED = 4, RESERVED = 1024 };
enum { ATTR_FRAME_SIZE = 0x11, ATTR_KPARAM_INFO = 0x17, ATTR_CBANK_PARAM_SIZE = 0x19,
       ATTR_REGCOUNT = 0x2f, ATTR_KPARAM_INFO_V2 = 0x45 };

typedef struct Elf {
    const char *at, *entry;
    size_t n;
    Elf64_Ehdr head;
} Elf;

typedef struct Bytes {
    const char *at;
    size_t n;
} Bytes;

static bool inside(const Elf *elf, uint64_t offset, uint64_t bytes) {
    return offset <= elf->n && bytes <= elf->n - offset;
}

static bool section(const Elf *elf, uint32_t number, Elf64_Shdr *out) {
    uint64_t offset = elf->head.e_shoff + (uint64_t)number * sizeof *out;
    if (number >= elf->head.e_shnum || !inside(elf, offset, sizeof *out)) return false;
    memcpy(out, elf->at + offset, sizeof *out);
    return out->sh_type == SHT_NOBITS || inside(elf, out->sh_offset, out->sh_size);
}

// Whether the string at `offset` of a string table is `prefix` then `rest`.
static bool named(const Elf *elf, const Elf64_Shdr *strings, uint32_t offset, const char *prefix,
                  const char *rest) {
    size_t n = strlen(prefix), m = strlen(rest);
    if (strings->sh_type == SHT_NOBITS || offset > strings->sh_size ||
        n + m + 1 > strings->sh_size - offset)
        return false;
    const char *text = elf->at + strings->sh_offset + offset;
    return !memcmp(text, prefix, n) && !memcmp(text + n, rest, m + 1);
}

static bool find_section(const Elf *elf, const char *prefix, const char *rest, Elf64_Shdr *out) {
    Elf64_Shdr names;
    if (!section(elf, elf->head.e_shstrndx, &names)) return false;
    for (uint32_t i = 0; i < elf->head.e_shnum; i++)
        if (section(elf, i, out) && named(elf, &names, out->sh_name, prefix, rest)) return true;
    return false;
}

// The number of the entry's symbol, by which .nv.info knows it; -1: none.
static int64_t symbol_of_entry(const Elf *elf) {
    Elf64_Shdr table, strings;
    if (!find_section(elf, ".symtab", "", &table) || !section(elf, table.sh_link, &strings))
        return -1;
    for (uint64_t i = 0; i < table.sh_size / sizeof(Elf64_Sym); i++) {
        Elf64_Sym symbol;
        memcpy(&symbol, elf->at + table.sh_offset + i * sizeof symbol, sizeof symbol);
        if (named(elf, &strings, symbol.st_name, "", elf->entry)) return (int64_t)i;
    }
    return -1;
}

/* Records ------------------------------------------------------------------------------------- */

typedef struct Record {
    uint8_t attribute;
    uint16_t value; // or the size of
    Bytes payload;
} Record;

static bool next_record(Bytes *left, Record *out) {
    if (left->n < 4) return false;
    uint8_t format = (uint8_t)left->at[0];
    out->attribute = (uint8_t)left->at[1];
    memcpy(&out->value, left->at + 2, sizeof out->value);
    size_t n = format == FORMAT_SIZED ? out->value : 0;
    if (n > left->n - 4) return false;
    out->payload = (Bytes){ left->at + 4, n };
    left->at += 4 + n;
    left->n -= 4 + n;
    return true;
}

static uint32_t word(const Record *record, int i) {
    uint32_t value = 0;
    if (record->payload.n >= ((size_t)i + 1) * 4)
        memcpy(&value, record->payload.at + (size_t)i * 4, sizeof value);
    return value;
}

// Words of a parameter's record: index; offset << 16 | ordinal; size << 18 | space and alignment.
// In the second form size is a word of its own.
static void read_param(const Record *record, CubinKernel *out) {
    bool wide = record->attribute == ATTR_KPARAM_INFO_V2;
    uint32_t ordinal = word(record, 1) & 0xffff, offset = word(record, 1) >> 16;
    uint32_t bytes = wide ? word(record, 2) & 0xffff : word(record, 2) >> 18;
    if (ordinal >= CUBIN_MOST_PARAMS) return;
    out->params[ordinal].offset = offset;
    out->params[ordinal].bytes = bytes;
    out->n_params = (uint32_t)max_i64(out->n_params, ordinal + 1);
}

static void read_own_records(Bytes left, CubinKernel *out) {
    for (Record record; next_record(&left, &record);) {
        switch (record.attribute) {
        case ATTR_KPARAM_INFO:
        case ATTR_KPARAM_INFO_V2: read_param(&record, out); break;
        case ATTR_CBANK_PARAM_SIZE: out->param_bytes = record.value; break;
        default: break;
        }
    }
}

static void read_common_records(Bytes left, int64_t symbol, CubinKernel *out) {
    for (Record record; next_record(&left, &record);) {
        if ((int64_t)word(&record, 0) != symbol) continue;
        if (record.attribute == ATTR_FRAME_SIZE) out->frame = (int)word(&record, 1);
        if (record.attribute == ATTR_REGCOUNT) out->registers = (int)word(&record, 1);
    }
}

static Bytes contents(const Elf *elf, const Elf64_Shdr *of) {
    return of->sh_type == SHT_NOBITS ? (Bytes){ 0 }
                                     : (Bytes){ elf->at + of->sh_offset, of->sh_size };
}

Status cubin_read(const char *cubin, size_t n, const char *entry, CubinKernel *out) {
    Elf elf = { .at = cubin, .entry = entry, .n = n };
    Elf64_Shdr text, info;
    *out = (CubinKernel){ 0 };
    if (n >= sizeof elf.head) memcpy(&elf.head, cubin, sizeof elf.head);
    if (memcmp(elf.head.e_ident, ELFMAG, SELFMAG) || elf.head.e_ident[EI_CLASS] != ELFCLASS64 ||
        elf.head.e_shentsize != sizeof text)
        return status_fail(ERR_FORMAT, "kernel \"%s\": expected a cubin, found another file",
                           entry);
    if (!find_section(&elf, ".text.", entry, &text))
        return status_fail(ERR_COMPILE, "expected the cubin to hold a kernel \"%s\", found none\n"
                           "  hint: an entry is extern \"C\" __global__ void",
                           entry);
    if (!find_section(&elf, ".nv.info.", entry, &info))
        return status_fail(ERR_FORMAT, "kernel \"%s\": the cubin tells nothing of its parameters",
                           entry);
    out->registers = (int)(text.sh_info >> 24);
    read_own_records(contents(&elf, &info), out);
    if (find_section(&elf, ".nv.info", "", &info))
        read_common_records(contents(&elf, &info), symbol_of_entry(&elf), out);
    if (find_section(&elf, ".nv.shared.", entry, &info)) {
        bool reserved = find_section(&elf, ".nv.shared.reserved.0", "", &text);
        out->shared = (int)(info.sh_size - (reserved && info.sh_size >= RESERVED ? RESERVED : 0));
    }
    return OK;
}

Status cubin_check(const PlanKernel *kernel, const CubinKernel *found) {
    if (found->n_params != kernel->n_args)
        return status_fail(ERR_COMPILE,
                           "kernel \"%s\": expected %u parameters as in the launch table, found %u "
                           "in the compiled kernel",
                           kernel->entry, kernel->n_args, found->n_params);
    for (uint32_t i = 0; i < found->n_params; i++) {
        if (found->params[i].offset == 8 * i && found->params[i].bytes == 8) continue;
        return status_fail(ERR_COMPILE,
                           "kernel \"%s\": expected parameter %u, %s, to be a pointer at byte %u, "
                           "found %u bytes at %u\n"
                           "  hint: every parameter of an entry is a pointer",
                           kernel->entry, i, kernel->args[i].name, 8 * i, found->params[i].bytes,
                           found->params[i].offset);
    }
    return OK;
}

/* The log ------------------------------------------------------------------------------------- */

// "ptxas info    : Function properties for ENTRY\n    0 bytes stack frame, 0 bytes spill stores,
// .."
void cubin_read_log(const char *log, const char *entry, CubinKernel *out) {
    static const char mark[] = "Function properties for ";
    for (const char *at = log; (at = strstr(at, mark));) {
        at += sizeof mark - 1;
        size_t n = strlen(entry);
        if (strncmp(at, entry, n) || at[n] != '\n') continue;
        int frame, stores, loads;
        if (sscanf(at + n, " %d bytes stack frame, %d bytes spill stores, %d bytes spill loads",
                   &frame, &stores, &loads) != 3)
            continue;
        out->spill_stores = stores;
        out->spill_loads = loads;
        return;
    }
}
