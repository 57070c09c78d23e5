// SPDX-License-Identifier: Apache-2.0
// resume, eval, sample: the runtime's commands, with the driver's way of failing.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compiler/driver/driver.h"
#include "runtime/train/train.h"

static Text *held;

void driver_hold(Text *into) {
    held = into;
}

void driver_say(const char *text) {
    if (held) text_add(held, text);
    else fputs(text, stderr);
}

int driver_fail(Status status) {
    Text text = { 0 };
    text_printf(&text, "moec: error: %s\n", status_message());
    driver_say(text_cstr(&text));
    text_finish(&text);
    log_debug("%s", status_trail_text());
    return status_exit(status);
}

Status driver_quote(const char *before, Text *text) {
    static const char own[] = "moec: error: ";
    const char *said = text_cstr(text);
    if (!strncmp(said, own, sizeof own - 1)) said += sizeof own - 1;
    int n = (int)strlen(said);
    while (n && said[n - 1] == '\n') n--;
    Status status = status_fail(ERR_INPUT, "%s%.*s", before, n, said);
    text_finish(text);
    return status;
}

Status driver_lua_name(const char *flag, const char *path) {
    size_t n = strlen(path);
    if (!strncmp(path, "/dev/", 5) || (n > 4 && !strcmp(path + n - 4, ".lua"))) return OK;
    return status_fail(ERR_ARGUMENT, "%s: expected a name that ends in .lua, got '%s'\n  hint: %s %s.lua", flag, path,
                       flag, n ? path : "found");
}

Status driver_writable(const char *path) {
    struct stat info;
    char target[PATH_MAX];
    if (!file_target(path, target)) return status_fail(ERR_IO, "cannot write %s: %s", path, strerror(errno));
    const char *slash = strrchr(target, '/');
    Text folder = { 0 };
    if (slash) text_add_n(&folder, target, (size_t)(slash - target) + 1);
    bool there = !stat(path, &info), is_folder = there && S_ISDIR(info.st_mode);
    // A file is replaced by its name, anything else is written to.
    int error = is_folder ? EISDIR
                : access(there && !S_ISREG(info.st_mode) ? path : slash ? text_cstr(&folder) : ".", W_OK) ? errno
                                                                                                      : 0;
    text_finish(&folder);
    return error ? status_fail(ERR_IO, "cannot write %s: %s", path, strerror(error)) : OK;
}

static bool same_inode(const char *a, const char *b) {
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

// Whether the paths lead to one file, or would to what is not there yet: the same name in the same folder.
static bool same_file(const char *a, const char *b) {
    char target[2][PATH_MAX];
    if (!strcmp(a, b) || same_inode(a, b)) return true;
    if (!file_target(a, target[0]) || !file_target(b, target[1])) return false;
    const char *folder[2], *name[2];
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(target[i], '/');
        name[i] = slash ? slash + 1 : target[i];
        folder[i] = !slash ? "." : slash == target[i] ? "/" : target[i];
        if (slash) *slash = 0;
    }
    return !strcmp(name[0], name[1]) && same_inode(folder[0], folder[1]);
}

Status driver_apart(const char *flag, const char *path, const char *read) {
    if (!path || !read || !same_file(path, read) || !strncmp(path, "/dev/", 5)) return OK;
    return status_fail(ERR_ARGUMENT, "%s %s would overwrite %s, which this command needs too\n  hint: another name", flag,
                       path, read);
}

int driver_refuse(const Model *model) {
    const Diag *diag = &model->diag;
    Text text = { 0 };
    if (!diag->loc.file) text_add(&text, "moec: ");
    diag_print(model, diag->loc, diag->message, NULL, NULL, 0, diag->hint[0] ? diag->hint : NULL,
               &text);
    driver_say(text_cstr(&text));
    text_finish(&text);
    return status_exit(ERR_INPUT);
}

int cmd_resume(int argc, char **argv) {
    return command_on_ranks("moec", command_resume, driver_plan_again, argc, argv);
}

int cmd_eval(int argc, char **argv) {
    return command_on_ranks("moec", command_eval, driver_plan_again, argc, argv);
}

int cmd_sample(int argc, char **argv) {
    return command_on_ranks("moec", command_sample, NULL, argc, argv);
}
