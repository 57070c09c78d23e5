// SPDX-License-Identifier: Apache-2.0
// The operation table: the one place that knows which operations exist. Everything else (enum, names,
// arity, printer, shape and adjoint dispatch, FLOPs, how fusion treats a node) is derived from it.
//
// OP(ENUM, "text", least args, most args, CLASS, shape rule, adjoint rule, FLOPs per result element)
//
// shape rule r is `shape_r` (shape.c), adjoint rule r is `adjoint_r` (adjoint_*.c); `none` = no gradient.
// "text" is the name in printed graphs and in errors; operators print as quoted symbols.
//
//   class      meaning                                              kernel family
//   SOURCE     stored before the program starts                     none
//   GENERATOR  function of the inputs and step scalars, no operand  none: read where used
//   VIEW       an index map, never stored                           none
//   MAP        element by element, implicit broadcasting            row
//   REDUCE     over feature axes of one row                         row
//   WHOLE      needs a whole row of its operand                     row
//   PARTIAL    sum (max) over rows: partial records, then a finish  row
//   INDEX      rows or elements picked through ids, from memory     row (move)
//   CONTRACT   contraction, attention, table gradient               contraction
//   BARRIER    needs every row (route), every rank (across) or another stage (recv)   move
//   EFFECT     writes state that outlives the program; no result    row
//
// Semantics, with x, g real unless said otherwise ([..] are feature axes, row axis apart):
//   const          attr.num, any kind. constant: vector attr.index (offset) into model->constants.
//   tokens(k)      int [T]: id k tokens ahead in the document, -1 past its end. labels(k): target k ahead,
//                  -1 where masked. positions: in the document, from 0. segments: document number inside
//                  the microbatch, never falling. valid: 1.0 where labels(1) >= 0.
//   uniform        real [T, n..] in [0,1): hash_uniform(seed, step ^ hash of address, global token * count + element)
//   n_valid(set)   real: valid tokens of the microbatch (rowless) or of each sequence ([S]).
//   inv_step       real, rowless: 1 / max(1, valid tokens of the whole step).
//   total(x)       rowless x summed over the step's microbatches; read in the update part only.
//   arithmetic     int with int gives int, else real: an int operand of a real operation counts as that
//                  real number. Unary real maps (exp, ..) take ints alike.
//   div            IEEE. recip 1/a. idiv, mod: floor division of ints, as Lua. pow(a, c).
//   min, max       the second operand where neither is strictly smaller (greater); NaN operands give NaN
//                  or the other value, either is allowed.
//   where(c,a,b)   c bool. Comparisons give bool. sign: -1, 0, 1.
//   sum, amax      attr.axes: bit i = feature axis i, which becomes 1. Rank is kept.
//   broadcast      to the declared type: features aligned at the right, unit axes grow, leading axes
//                  appear; rowless -> any row axis, E -> R of one route, S -> T. reshape: row-major.
//                  transpose: last two features. slice(axis, at): declared size; pad: its reverse, zeros.
//   stop_gradient, keep, recompute: identity. cast: attr.precision, round to nearest even.
//   top_k          int ids of the attr.k largest, descending; ties to the lower id; NaN counts as -inf.
//   one_hot        attr.k wide; id -1 gives zeros. gather(x, ids): last axis, [a.., n] by [a.., k]; x may
//                  have unit or missing leading axes; id -1 gives 0. scatter(g, ids): attr.k wide, duplicates
//                  add in k order, -1 is skipped.
//   rotate(x, freq, positions): angle = position * freq[i]; pairs half: (i, i + r/2) of the first r = 2|freq|
//                  features, adjacent: (2i, 2i+1). (a, b) -> factor * (a cos - s b sin, b cos + s a sin),
//                  s = attr.turn.sign; features past r are copied. The factor multiplies turned ones only.
//   row_sum(x)     attr.set: all, microbatch, global -> rowless; sequence: T -> S; expert: R -> E.
//                  Sums every row (masking by `valid` is the caller's). row_max alike, 0 of no rows.
//   across(x)      rowless: the sum of what the ranks that divide the tokens (model->ranks) have, in their
//                  order. Made by programs of many ranks for sums of set global; on one rank it is x.
//   matmul(x, w)   [e.., a.., k..] x [e.., k.., n..] -> [e.., a.., n..]; attr.mm.each = |e|, over = |k|.
//                  w on E: x on R of that route, each row with its expert's weight.
//   matmul_t(g, w) [e.., a.., n..] x [e.., k.., n..] -> [e.., a.., k..] (same attr as its matmul).
//   matmul_w(x, g) sums over rows and a: -> [e.., k.., n..], rowless or on E when the rows are R.
//   attend(q, k, v, segments [, sinks]): q [T,H,a], k [T,G,a], v [T,G,b] -> [T,H,b]; a query sees keys of
//                  its segment, at most itself if causal, only the last `window` ones if window > 0;
//                  softmax of scale * q.k, plus one extra logit sinks[h] without value. attend_lse: [T,H],
//                  natural log of the denominator, sinks included.
//   attend_grad(q, k, v, segments, y, lse, g [, sinks]): attr.attend.part 0..3 = gradient of q, k, v, sinks.
//   embed(w, ids)  w [V, n..], ids int [T, a..] -> [T, a.., n..]; -1 gives 0. embed_w(g, ids): attr.k = V
//                  rows, the reverse, added in ascending token order.
//   shift(x, segments): the value attr.k rows earlier in the document (later if negative), else 0.
//   route(ids)     int [T, k] -> route; attr.route. Rows are expert-major, then by token, then by choice;
//                  id -1 and ids out of range take no row.
//   dispatch(x, route): [T, k, n..] -> [R, n..]; collect(x, route): [R, n..] -> [T, k, n..], 0 if no row.
//   send(x), recv: the same value on two stages of a pipeline, attr.cross; made when a program is cut into
//                  its stages (compiler/lower/cut.c), after which nothing is differentiated.
//   accumulate(p, g): gradient of parameter p += g. record(x): metric attr.index += x, x rowless scalar
//                  or vector. update(state, next): after the optimizer. output(x): attr.index-th result.

#define OP_TABLE(OP)                                                                               \
    /* sources */                                                                                  \
    OP(PARAM, "param", 0, 0, SOURCE, declared, none, 0)                                            \
    OP(STATE, "state", 0, 0, SOURCE, declared, none, 0)                                            \
    OP(CONST, "const", 0, 0, SOURCE, declared, none, 0)                                            \
    OP(CONSTANT, "constant", 0, 0, SOURCE, declared, none, 0)                                      \
    /* generators */                                                                               \
    OP(TOKENS, "tokens", 0, 0, GENERATOR, declared, none, 0)                                       \
    OP(LABELS, "labels", 0, 0, GENERATOR, declared, none, 0)                                       \
    OP(POSITIONS, "positions", 0, 0, GENERATOR, declared, none, 0)                                 \
    OP(SEGMENTS, "segments", 0, 0, GENERATOR, declared, none, 0)                                   \
    OP(VALID, "valid", 0, 0, GENERATOR, declared, none, 0)                                         \
    OP(UNIFORM, "uniform", 0, 0, GENERATOR, declared, none, 0)                                     \
    OP(N_VALID, "n_valid", 0, 0, GENERATOR, declared, none, 0)                                     \
    OP(INV_STEP, "inv_step", 0, 0, GENERATOR, declared, none, 0)                                   \
    OP(TOTAL, "total", 1, 1, GENERATOR, total, none, 0)                                            \
    /* maps */                                                                                     \
    OP(ADD, "'+'", 2, 2, MAP, arithmetic, add, 1)                                                  \
    OP(SUB, "'-'", 2, 2, MAP, arithmetic, sub, 1)                                                  \
    OP(MUL, "'*'", 2, 2, MAP, arithmetic, mul, 1)                                                  \
    OP(DIV, "'/'", 2, 2, MAP, real2, div, 1)                                                       \
    OP(NEG, "neg", 1, 1, MAP, arithmetic, neg, 1)                                                  \
    OP(RECIP, "recip", 1, 1, MAP, real1, recip, 1)                                                 \
    OP(POW, "'^'", 2, 2, MAP, real2, pow, 8)                                                       \
    OP(IDIV, "'//'", 2, 2, MAP, integer2, none, 1)                                                 \
    OP(MOD, "'%'", 2, 2, MAP, integer2, none, 1)                                                   \
    OP(EXP, "exp", 1, 1, MAP, real1, exp, 8)                                                       \
    OP(LOG, "log", 1, 1, MAP, real1, log, 8)                                                       \
    OP(SQRT, "sqrt", 1, 1, MAP, real1, sqrt, 8)                                                    \
    OP(RSQRT, "rsqrt", 1, 1, MAP, real1, rsqrt, 8)                                                 \
    OP(ABS, "abs", 1, 1, MAP, arithmetic, abs, 1)                                                  \
    OP(SIGN, "sign", 1, 1, MAP, real1, none, 1)                                                    \
    OP(SIGMOID, "sigmoid", 1, 1, MAP, real1, sigmoid, 8)                                           \
    OP(TANH, "tanh", 1, 1, MAP, real1, tanh, 8)                                                    \
    OP(ERF, "erf", 1, 1, MAP, real1, erf, 8)                                                       \
    OP(MIN, "min", 2, 2, MAP, arithmetic, min, 1)                                                  \
    OP(MAX, "max", 2, 2, MAP, arithmetic, max, 1)                                                  \
    OP(LT, "lt", 2, 2, MAP, compare, none, 1)                                                      \
    OP(LE, "le", 2, 2, MAP, compare, none, 1)                                                      \
    OP(GT, "gt", 2, 2, MAP, compare, none, 1)                                                      \
    OP(GE, "ge", 2, 2, MAP, compare, none, 1)                                                      \
    OP(EQ, "eq", 2, 2, MAP, compare, none, 1)                                                      \
    OP(NE, "ne", 2, 2, MAP, compare, none, 1)                                                      \
    OP(WHERE, "where", 3, 3, MAP, where, where, 1)                                                 \
    OP(CAST, "cast", 1, 1, MAP, real1, cast, 1)                                                    \
    OP(ROTATE, "rotate", 3, 3, MAP, rotate, rotate, 6)                                             \
    OP(PAD, "pad", 1, 1, MAP, pad, pad, 0)                                                         \
    OP(CONCAT, "concat", 2, 8, MAP, concat, concat, 0)                                             \
    /* reductions over features */                                                                 \
    OP(SUM, "sum", 1, 1, REDUCE, reduce, sum, 1)                                                   \
    OP(AMAX, "amax", 1, 1, REDUCE, reduce, amax, 1)                                                \
    /* views */                                                                                    \
    OP(BROADCAST, "broadcast", 1, 1, VIEW, broadcast, broadcast, 0)                                \
    OP(RESHAPE, "reshape", 1, 1, VIEW, reshape, reshape, 0)                                        \
    OP(TRANSPOSE, "transpose", 1, 1, VIEW, transpose, transpose, 0)                                \
    OP(SLICE, "slice", 1, 1, VIEW, slice, slice, 0)                                                \
    OP(STOP_GRADIENT, "stop_gradient", 1, 1, VIEW, same, none, 0)                                  \
    OP(KEEP, "keep", 1, 1, VIEW, same, same, 0)                                                    \
    OP(RECOMPUTE, "recompute", 1, 1, VIEW, same, same, 0)                                          \
    /* whole rows */                                                                               \
    OP(TOP_K, "top_k", 1, 1, WHOLE, top_k, none, 1)                                                \
    OP(ONE_HOT, "one_hot", 1, 1, WHOLE, one_hot, none, 1)                                          \
    OP(GATHER, "gather", 2, 2, WHOLE, gather, gather, 1)                                           \
    OP(SCATTER, "scatter", 2, 2, WHOLE, scatter, scatter, 1)                                       \
    /* over rows */                                                                                \
    OP(ROW_SUM, "row_sum", 1, 1, PARTIAL, row_sum, row_sum, 1)                                     \
    OP(ROW_MAX, "row_max", 1, 1, PARTIAL, row_sum, row_max, 1)                                     \
    OP(ACROSS, "across", 1, 1, BARRIER, across, across, 1)                                         \
    /* contractions */                                                                             \
    OP(MATMUL, "matmul", 2, 2, CONTRACT, matmul, matmul, 0)                                        \
    OP(MATMUL_T, "matmul_t", 2, 2, CONTRACT, matmul_t, matmul_t, 0)                                \
    OP(MATMUL_W, "matmul_w", 2, 2, CONTRACT, matmul_w, matmul_w, 0)                                \
    OP(ATTEND, "attend", 4, 5, CONTRACT, attend, attend, 0)                                        \
    OP(ATTEND_LSE, "attend_lse", 4, 5, CONTRACT, attend, none, 0)                                  \
    OP(ATTEND_GRAD, "attend_grad", 7, 8, CONTRACT, attend_grad, none, 0)                           \
    OP(EMBED_W, "embed_w", 2, 2, CONTRACT, embed_w, embed_w, 0)                                    \
    /* moves */                                                                                    \
    OP(EMBED, "embed", 2, 2, INDEX, embed, embed, 0)                                               \
    OP(SHIFT, "shift", 2, 2, INDEX, shift, shift, 0)                                               \
    OP(DISPATCH, "dispatch", 2, 2, INDEX, dispatch, dispatch, 0)                                   \
    OP(COLLECT, "collect", 2, 3, INDEX, collect, collect, 0)                                       \
    OP(ROUTE, "route", 1, 2, BARRIER, route, none, 0)                                              \
    /* between stages */                                                                           \
    OP(RECV, "recv", 0, 0, BARRIER, declared, none, 0)                                             \
    OP(SEND, "send", 1, 1, EFFECT, effect, none, 0)                                                \
    /* effects */                                                                                  \
    OP(ACCUMULATE, "accumulate", 2, 2, EFFECT, effect, none, 0)                                    \
    OP(RECORD, "record", 1, 1, EFFECT, effect, none, 0)                                            \
    OP(UPDATE, "update", 2, 2, EFFECT, effect, none, 0)                                            \
    OP(OUTPUT, "output", 1, 1, EFFECT, effect, none, 0)
