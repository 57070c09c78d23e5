// SPDX-License-Identifier: Apache-2.0
// Files that travel inside the binary (CMakeLists.txt: embed).
#ifndef MOEC_EMBED_H
#define MOEC_EMBED_H

// `at` .. `end`, with a zero byte at `end`. Names are paths from the root: "dsl/ops.lua".
typedef struct EmbeddedFile { const char *name, *at, *end; } EmbeddedFile;

#endif
