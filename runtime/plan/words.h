// SPDX-License-Identifier: Apache-2.0
// Private to runtime/plan: the words of the text form, shared by its printer and its parser, and a
// table from name to index.
#ifndef MOEC_PLAN_WORDS_H
#define MOEC_PLAN_WORDS_H

#include "runtime/plan/plan.h"

extern const char *const plan_region_words[N_REGIONS];
extern const char *const plan_input_words[N_INPUTS];
extern const char *const plan_init_words[PLAN_INIT_ONES + 1];
extern const char *const plan_axis_words[N_AXES];
extern const char *const plan_group_words[N_GROUPS];
extern const char *const plan_op_words[N_PLAN_OPS];
extern const char *const plan_lane_words[N_LANES];
extern const char *const plan_half_words[N_HALVES];
extern const char *const plan_mode_words[N_OPERAND_MODES];

// Regions that few plans have: a plan says nothing of one without bytes.
static inline bool plan_region_is_rare(int region) {
    return region > REGION_scalars;
}
// Where buffers live for a part of a program.
static inline bool plan_region_is_placed(int region) {
    return region == REGION_act || region == REGION_sym;
}

// May the byte stand in a name without quotes?
bool plan_bare_byte(char c);
// The text; without the places of buffers when it is for the identity.
void plan_print_text(const Plan *plan, bool locations, Text *out);

// plan_parse for a text whose first line has that number in messages.
Status plan_parse_from(const char *text, size_t bytes, int line, Plan **out);

// Names point to text that outlives the table. Memory comes from the arena given to each call.
typedef struct NameEntry {
    const char *name;
    uint32_t index;
} NameEntry;
typedef struct Names {
    NameEntry *entries;
    uint32_t n, cap /* power of two, or 0 */;
} Names;
enum { NAME_NONE = UINT32_MAX };
bool names_add(Names *names, Arena *arena, const char *name,
               uint32_t index);                            // false: is there already
uint32_t names_find(const Names *names, const char *name); // NAME_NONE: is not there

#endif
