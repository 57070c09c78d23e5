// SPDX-License-Identifier: Apache-2.0
// Words of the text form and the table of names: open addressing, at most half full, never shrinks.
#include "runtime/plan/words.h"

const char *const plan_region_words[N_REGIONS] = {
#define X(name) #name,
    PLAN_REGIONS(X)
#undef X
};

const char *const plan_input_words[N_INPUTS] = {
#define X(name) #name,
    PLAN_INPUTS(X)
#undef X
};

const char *const plan_axis_words[N_AXES] = {
#define X(name) #name,
    PLAN_AXES(X)
#undef X
};

const char *const plan_group_words[N_GROUPS] = {
#define X(name, sides) #name,
    PLAN_GROUPS(X)
#undef X
};

const char *plan_group_name(PlanGroup group) {
    return plan_group_words[group];
}

const char *const plan_op_words[N_PLAN_OPS] = {
#define X(name) #name,
    PLAN_OPS(X)
#undef X
};

const char *const plan_lane_words[N_LANES] = {
#define X(name) #name,
    PLAN_LANES(X)
#undef X
};

const char *const plan_half_words[N_HALVES] = {
#define X(name) #name,
    PLAN_HALVES(X)
#undef X
};

const char *const plan_init_words[] = { "normal", "zeros", "ones" };
const char *const plan_mode_words[N_OPERAND_MODES] = {
#define X(name, word) word,
    PLAN_MODES(X)
#undef X
};

bool plan_bare_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("_.$:/-", c));
}

// The entry of `name`, or the empty one where it belongs.
static NameEntry *names_slot(NameEntry *entries, uint32_t cap, const char *name) {
    uint64_t at = hash_bytes(name, strlen(name)).low;
    for (;; at++) {
        NameEntry *entry = &entries[at & (cap - 1)];
        if (!entry->name || !strcmp(entry->name, name)) return entry;
    }
}

bool names_add(Names *names, Arena *arena, const char *name, uint32_t index) {
    if (names->n * 2 >= names->cap) {
        uint32_t cap = names->cap ? names->cap * 2 : 64;
        NameEntry *entries = ARENA_ARRAY(arena, NameEntry, cap);
        for (uint32_t i = 0; i < names->cap; i++) {
            const NameEntry *old = &names->entries[i];
            if (old->name) *names_slot(entries, cap, old->name) = *old;
        }
        names->entries = entries;
        names->cap = cap;
    }
    NameEntry *entry = names_slot(names->entries, names->cap, name);
    if (entry->name) return false;
    *entry = (NameEntry){ name, index };
    names->n++;
    return true;
}

uint32_t names_find(const Names *names, const char *name) {
    if (!names->cap) return NAME_NONE;
    const NameEntry *entry = names_slot(names->entries, names->cap, name);
    return entry->name ? entry->index : NAME_NONE;
}
