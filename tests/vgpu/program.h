// SPDX-License-Identifier: Apache-2.0
// Random programs for the comparison with the reference: straight-line ones of all arithmetic
// forms, and structured control flow in which lanes part and meet. Everything they do has one
// answer: shuffles read lanes that are there, divisors are not 0, membermasks are those of the
// lanes that come by.
#ifndef TESTS_VGPU_PROGRAM_H
#define TESTS_VGPU_PROGRAM_H

#include <stdint.h>
#include <stdio.h>

// An instruction form: opcode, and one letter per operand, the destination first:
//   r R h  registers of 32, 64, 16 bits       f g  .f32 and .f64 registers     p  predicate
//   q      p|q                                P    predicate, perhaps negated
//   n N k  r, R, h that are not 0             B    r of 0..31                  m  immediate 0..255
typedef struct Form { const char *op, *operands; } Form;
extern const Form program_forms[];
extern const int program_n_forms;

typedef struct Random { uint64_t state; } Random;
uint64_t random_next(Random *random);
int random_below(Random *random, int n);
uint64_t random_value(Random *random, int bits);       // often an edge of some type

// Words that a program reads and writes per thread.
enum { PROGRAM_IN = 24, PROGRAM_OUT = 48 };
// Which output words are halves of .f64 registers, of which a NaN's bits are nobody's promise.
enum { PROGRAM_DOUBLES = 30, PROGRAM_N_DOUBLES = 4 };

void program_straight(FILE *to, uint64_t seed, int n_instructions);
void program_flow(FILE *to, uint64_t seed);
// Form `i` alone: sources from the thread's input words 2k and 2k + 1, the result in output words 0
// to 2.
void program_form(FILE *to, int i);

#endif
