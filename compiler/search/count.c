// SPDX-License-Identifier: Apache-2.0
// Whole numbers as large as spaces of layouts are: 2^31 splits of 64 layers times 3^64 recomputes.
#include "compiler/search/search.h"

SearchCount search_count(uint64_t n) {
    return (SearchCount){ { (uint32_t)n, (uint32_t)(n >> 32) } };
}

void search_count_add(SearchCount *sum, const SearchCount *more) {
    uint64_t carry = 0;
    for (int i = 0; i < SEARCH_COUNT_LIMBS; i++) {
        carry += (uint64_t)sum->limb[i] + more->limb[i];
        sum->limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
}

void search_count_subtract(SearchCount *from, const SearchCount *less) {
    int64_t borrow = 0;
    for (int i = 0; i < SEARCH_COUNT_LIMBS; i++) {
        borrow += (int64_t)from->limb[i] - less->limb[i];
        from->limb[i] = (uint32_t)borrow;
        borrow >>= 32; // arithmetic: -1 or 0
    }
}

void search_count_times(SearchCount *count, uint32_t factor) {
    uint64_t carry = 0;
    for (int i = 0; i < SEARCH_COUNT_LIMBS; i++) {
        carry += (uint64_t)count->limb[i] * factor;
        count->limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
}

static uint32_t divide(SearchCount *count, uint32_t by) {
    uint64_t rest = 0;
    for (int i = SEARCH_COUNT_LIMBS - 1; i >= 0; i--) {
        rest = rest << 32 | count->limb[i];
        count->limb[i] = (uint32_t)(rest / by);
        rest %= by;
    }
    return (uint32_t)rest;
}

SearchCount search_count_choose(int32_t n, int32_t k) {
    if (k < 0 || k > n) return search_count(0);
    SearchCount count = search_count(1);
    for (int32_t i = 1; i <= k; i++) { // always whole: a product of i neighbours divided by i!
        search_count_times(&count, (uint32_t)(n - k + i));
        divide(&count, (uint32_t)i);
    }
    return count;
}

SearchCount search_count_power(uint32_t base, int32_t exponent) {
    SearchCount count = search_count(1);
    for (int32_t i = 0; i < exponent; i++) search_count_times(&count, base);
    return count;
}

bool search_count_equal(const SearchCount *a, const SearchCount *b) {
    return !memcmp(a->limb, b->limb, sizeof a->limb);
}

double search_count_double(const SearchCount *count) {
    double value = 0;
    for (int i = SEARCH_COUNT_LIMBS - 1; i >= 0; i--) value = value * 4294967296.0 + count->limb[i];
    return value;
}

void search_count_print(const SearchCount *count, Text *out) {
    enum { THREES = SEARCH_COUNT_LIMBS * 32 / 9 };
    uint32_t threes[THREES];
    int n = 0;
    SearchCount left = *count, zero = { { 0 } };
    do threes[n++] = divide(&left, 1000);
    while (!search_count_equal(&left, &zero) && n < THREES);
    text_printf(out, "%u", threes[--n]);
    while (n > 0) text_printf(out, " %03u", threes[--n]);
}
