// SPDX-License-Identifier: Apache-2.0
#include "tests/vgpu/edit.h"

void edit_load(Gpu *gpu, const char *text, const Edit *edit) {
    const char *at = strstr(text, edit->from);
    Text t = { 0 };
    if (!at) fail_msg("'%s' is not in the text", edit->from);
    text_add_n(&t, text, (size_t)(at - text));
    text_add(&t, edit->to);
    text_add(&t, at + strlen(edit->from));
    gpu_load(gpu, text_cstr(&t));
    text_finish(&t);
}

void edit_expect(Gpu *gpu, const Edit *edit, VgFault got) {
    if (got != edit->fault)
        fail_msg("'%s' -> '%s': fault %d, expected %d\n%s", edit->from, edit->to, got, edit->fault,
                 gpu_report(gpu));
    for (int k = 0; k < COUNT_OF(edit->says) && edit->says[k] && got; k++)
        if (!strstr(gpu_report(gpu), edit->says[k]))
            fail_msg("'%s' -> '%s': no '%s' in\n%s", edit->from, edit->to, edit->says[k],
                     gpu_report(gpu));
}
