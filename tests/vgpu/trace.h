// SPDX-License-Identifier: Apache-2.0
// Which instructions of the table (VgIsa) were executed, by root.
//
// Every decoded instruction of a loaded module is given a handler that notes its root when a lane
// executes it, and then runs the instruction's own. One module at a time, on one host thread.
#ifndef MOEC_TESTS_VGPU_TRACE_H
#define MOEC_TESTS_VGPU_TRACE_H

#include "runtime/vgpu/module.h"

// Roots of the table, each once, in its order; names are the table's own.
int trace_roots(const char **roots, int most);
// From now on `module` is traced; the one before it need not exist any more.
void trace_module(VgModule *module);
// Whether an instruction of this root was executed in any module that was traced.
bool trace_executed(const char *root);
void trace_finish(void);

#endif
