// SPDX-License-Identifier: Apache-2.0
// Where a spec is, and how its errors are told.
//
// The place of an error or a node is the innermost line of user code on the Lua stack; frames of
// dsl/ are never shown. While m.model runs its layers there may be none: then it is the line on
// which the innermost block was constructed. Where a field is to blame and a built-in block is at
// work inside the innermost user frame, the place is that field. Lua knows lines only: columns are
// found by reading the source from the constructor's line on, skipping strings and comments
// (scan_*). What cannot be found that way (a table built elsewhere) falls back to the whole line;
// the message names the field anyway.
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "compiler/spec/internal.h"

const char spec_diag_type[] = "moec.diag";

/* Reading source ------------------------------------------------------------------------------ */

typedef struct Token {
    const char *at;
    size_t bytes;
    char kind /* i: name, s: string, or itself; 0: end */;
} Token;

// Past a long bracket "[==[ ... ]==]" that starts at `s`, or NULL if none starts there.
static const char *scan_long(const char *s) {
    size_t level = strspn(s + 1, "=");
    if (s[level + 1] != '[') return NULL;
    for (const char *p = s + level + 2; *p; p++) {
        if (*p == ']' && strspn(p + 1, "=") == level && p[level + 1] == ']') return p + level + 2;
    }
    return s + strlen(s);
}

static const char *scan_blank(const char *s) {
    for (;;) {
        s += strspn(s, " \t\r\n");
        if (s[0] != '-' || s[1] != '-') return s;
        const char *end = s[2] == '[' ? scan_long(s + 2) : NULL;
        s = end ? end : s + strcspn(s, "\n");
    }
}

static Token scan_token(const char *s) {
    s = scan_blank(s);
    Token t = { s, 1, *s };
    const char *end = *s == '[' ? scan_long(s) : NULL;
    if (!*s) {
        t.bytes = 0;
    } else if (isalpha((unsigned char)*s) || *s == '_') {
        while (isalnum((unsigned char)s[t.bytes]) || s[t.bytes] == '_') t.bytes++;
        t.kind = 'i';
    } else if (isdigit((unsigned char)*s)) {
        while (isalnum((unsigned char)s[t.bytes]) || s[t.bytes] == '.') t.bytes++;
        t.kind = '0';
    } else if (*s == '"' || *s == '\'') {
        while (s[t.bytes] && s[t.bytes] != *s && s[t.bytes] != '\n')
            t.bytes += s[t.bytes] == '\\' && s[t.bytes + 1] ? 2 : 1;
        if (s[t.bytes] == *s) t.bytes++;
        t.kind = 's';
    } else if (end) {
        t.bytes = (size_t)(end - s);
        t.kind = 's';
    }
    return t;
}

static bool token_is(Token t, const char *name) {
    return t.kind == 'i' && strlen(name) == t.bytes && !memcmp(t.at, name, t.bytes);
}

// The field `name =` of the table whose inside begins at `s`.
static Token scan_field(const char *s, const char *name) {
    int depth = 0;
    char before = ',';
    for (Token t = scan_token(s); t.kind && depth >= 0; t = scan_token(t.at + t.bytes)) {
        if (strchr("({[", t.kind)) depth++;
        if (strchr(")}]", t.kind)) depth--;
        if (!depth && token_is(t, name) && (before == ',' || before == ';')) {
            Token next = scan_token(t.at + t.bytes);
            if (next.kind == '=' && next.at[1] != '=') return t;
        }
        before = t.kind;
    }
    return (Token){ 0 };
}

// The name `name` between `s` and `end`; as a field (`name =`) if `field`.
static Token scan_name(const char *s, const char *end, const char *name, bool field) {
    for (Token t = scan_token(s); t.kind && t.at < end; t = scan_token(t.at + t.bytes)) {
        if (!token_is(t, name)) continue;
        Token next = scan_token(t.at + t.bytes);
        if (!field || (next.kind == '=' && next.at[1] != '=')) return t;
    }
    return (Token){ 0 };
}

static const char *line_start(const char *text, uint32_t line) {
    for (uint32_t i = 1; text && i < line; i++) {
        text = strchr(text, '\n');
        if (text) text++;
    }
    return text;
}

// The last part of `path` that the source shows as written there: constructor, then fields. `t` is
// the constructor's name. `whole`: everything was found.
static Token scan_fields(Token t, const char *path, const char *field, bool *whole) {
    char name[64];
    size_t n = strcspn(path, "/");
    Token found = t;
    *whole = false;
    while (t.kind) {
        Token open = scan_token(t.at + t.bytes);
        if (open.kind == '(' || open.kind == '=') open = scan_token(open.at + 1);
        if (open.kind != '{') return found;
        path += n;
        if (*path == '/') path++;
        n = strcspn(path, "/");
        if (!n) break;
        snprintf(name, sizeof name, "%.*s", (int)n, path);
        t = scan_field(open.at + 1, name);
        if (t.kind) found = t;
    }
    if (!t.kind) return found;
    *whole = !field;
    Token open = scan_token(t.at + t.bytes);
    if (open.kind != '{') open = scan_token(open.at + 1);
    t = field ? scan_field(open.at + 1, field) : (Token){ 0 };
    if (!t.kind) return found;
    *whole = true;
    return t;
}

// A line may hold several calls of one constructor: the first that shows the whole path, else the
// first.
static Token scan_path(const char *s, const char *path, const char *field, bool *whole) {
    const char *eol = s + strcspn(s, "\n");
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(path, "/"), path);
    Token first = { 0 };
    *whole = false;
    for (Token t = scan_name(s, eol, name, false); t.kind;
         t = scan_name(t.at + t.bytes, eol, name, false)) {
        Token found = scan_fields(t, path, field, whole);
        if (*whole) return found;
        if (!first.kind) first = found;
    }
    return first;
}

/* Places -------------------------------------------------------------------------------------- */

static const SourceText *source_of(const Spec *S, const char *chunk) {
    for (uint32_t i = 0; i < S->n_sources; i++) {
        if (!strcmp(S->sources[i].chunk, chunk)) return &S->sources[i];
    }
    return NULL;
}

static const SourceText *source_at(const Spec *S, uint32_t file) {
    for (uint32_t i = 0; i < S->n_sources; i++) {
        if (S->sources[i].file == file) return &S->sources[i];
    }
    return NULL;
}

uint32_t place_add_source(Spec *S, const char *path, const char *text) {
    const char *chunk = arena_printf(S->arena, "@%s", path);
    const SourceText *old = source_of(S, chunk);
    if (old) return old->file;
    SourceText source = { model_add_file(S->m, path, text), chunk, NULL, strlen(text) };
    source.text = S->m->files[source.file - 1].text;
    *ARENA_PUSH(S->arena, S->sources, S->n_sources, S->cap_sources) = source;
    return source.file;
}

// Called from the allocator too, so it may not allocate.
Loc place_now(Spec *S) {
    lua_Debug ar;
    for (int level = 0; lua_getstack(S->L, level, &ar); level++) {
        if (!lua_getinfo(S->L, "Sl", &ar) || ar.source[0] != '@' || ar.currentline <= 0) continue;
        const SourceText *source = source_of(S, ar.source);
        if (source) return (Loc){ .file = source->file, .line = (uint32_t)ar.currentline };
    }
    for (const BlockFrame *f = S->blocks; f; f = f->up) {
        if (f->block->place.loc.line) return f->block->place.loc;
    }
    return (Loc){ 0 };
}

static bool has_field(const Define *d, const char *name) {
    for (int i = 0; i < d->n_rows; i++) {
        if (!strcmp(d->rows[i].name, name)) return true;
    }
    return false;
}

// The innermost block at work, inside the innermost user frame, that has the field.
static const Block *block_to_blame(Spec *S, const char *field) {
    lua_Debug ar;
    const BlockFrame *frame = S->blocks;
    for (int level = 0; frame && lua_getstack(S->L, level, &ar); level++) {
        lua_getinfo(S->L, "Sf", &ar);
        bool is_call = lua_tocfunction(S->L, -1) == block_call;
        lua_pop(S->L, 1);
        if (ar.source[0] == '@') return NULL;
        if (!is_call) continue;
        if (has_field(frame->block->define, field)) return frame->block;
        frame = frame->up;
    }
    return NULL;
}

bool place_blames(Spec *S, const char *field) { return block_to_blame(S, field) != NULL; }

static Loc loc_of_token(Loc loc, const char *text, Token t) {
    for (const char *s = line_start(text, loc.line); s && s < t.at;) {
        size_t n = strcspn(s, "\n");
        if (s + n >= t.at || !s[n]) {
            loc.col = (uint16_t)(t.at - s + 1);
            break;
        }
        s += n + 1;
        loc.line++;
    }
    if (!loc.col) loc.col = 1;
    size_t rest = strcspn(t.at, "\n");
    loc.len = (uint16_t)(t.bytes < rest ? t.bytes : rest);
    return loc;
}

static Loc whole_line(Loc loc, const char *s) {
    size_t n = strcspn(s, "\r\n"), from = strspn(s, " \t");
    while (n > from && (s[n - 1] == ' ' || s[n - 1] == '\t')) n--;
    if (n > 4000) n = from + 1;
    loc.col = (uint16_t)(from + 1);
    loc.len = (uint16_t)(n - from);
    return loc;
}

// `word` at the beginning of a string, or after a comma in one.
static const char *find_quoted(const char *text, const char *word) {
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word)) {
        if (at > text && strchr("\"' ,", at[-1])) return at;
    }
    return NULL;
}

// Finds the column: the word of the fault on its line or after, else the line.
static Loc find_column(Spec *S, const Fault *fault, Place place) {
    const SourceText *source = source_at(S, place.loc.file);
    const char *s = source ? line_start(source->text, place.loc.line) : NULL;
    if (!s || !place.loc.line) return place.loc;
    const char *eol = s + strcspn(s, "\n");
    Token t = { 0 };
    bool whole = false;
    if (place.path) t = scan_path(s, place.path, fault->field ? fault->word : NULL, &whole);
    if (fault->word && !(fault->field && whole)) {
        Token named = { 0 };
        if (fault->field) {
            const char *end = eol;
            for (int i = 0; i < 30 && *end; i++) end += 1 + strcspn(end + 1, "\n");
            if (!t.kind) named = scan_name(s, end, fault->word, true);
        } else if (place.path) { // text inside a string of the constructor's table, or before it
            const char *at = find_quoted(s, fault->word);
            if (!at && (at = find_quoted(source->text, fault->word))) place.loc.line = 1;
            if (at) named = (Token){ at, strlen(fault->word), 's' };
        } else {
            named = scan_name(s, eol, fault->word, false);
        }
        if (named.kind)
            t = named;
        else if (!fault->field)
            t = (Token){ 0 };
    }
    return t.kind ? loc_of_token(place.loc, source->text, t) : whole_line(place.loc, s);
}

Loc place_of_word(Spec *S, Place place, const char *word) {
    return find_column(S, &(Fault){ .word = word }, place);
}

/* Origins ------------------------------------------------------------------------------------- */

uint32_t weight_of(const Model *m, uint32_t id, int *hops) {
    for (;; ++*hops) {
        const Node *n = &m->nodes[id];
        if (n->op == OP_PARAM) return id;
        if (op_info[n->op].class != CLASS_VIEW) return 0;
        id = m->args[n->args];
    }
}

// Back through maps and views of one operand, not far, to what made the shape.
static uint32_t origin_of(const Model *m, uint32_t id) {
    for (int i = 0; i < 64; i++) {
        const Node *n = &m->nodes[id];
        uint8_t class = op_info[n->op].class;
        if (n->n_args != 1 || (class != CLASS_VIEW && class != CLASS_MAP) || n->op == OP_PAD) break;
        id = m->args[n->args];
    }
    return id;
}

void place_origin(Spec *S, uint32_t id, Text *out) {
    const Model *m = S->m;
    id = origin_of(m, id);
    const Node *n = &m->nodes[id];
    int hops = 0;
    uint32_t weight = n->op == OP_MATMUL ? weight_of(m, model_arg(m, id, 1), &hops) : 0;
    if (weight)
        text_add(out, model_name(m, m->nodes[weight].addr));
    else if (n->op == OP_PARAM || n->op == OP_STATE)
        text_add(out, model_name(m, n->addr));
    else
        text_add(out, op_info[n->op].text);
}

static void note_origin(Spec *S, const Fault *fault, int i, Loc loc) {
    Text *out = &S->notes[i];
    uint32_t id = fault->origin[i];
    Loc made = S->m->nodes[origin_of(S->m, id)].loc;
    type_print(S->m, model_type(S->m, id), out);
    text_add(out, " is made ");
    if (made.line && made.file == loc.file)
        text_printf(out, "on line %u ", made.line);
    else if (made.line)
        text_printf(out, "at %s:%u ", S->m->files[made.file - 1].path, made.line);
    text_add(out, "from ");
    place_origin(S, id, out);
}

/* Faults -------------------------------------------------------------------------------------- */

static void text_clear(Text *text) {
    text->bytes = 0;
    if (text->at) text->at[0] = 0;
}

// Renders the fault with S->message as its text and pushes a Diag.
static void push_diag(Spec *S, const Fault *fault) {
    lua_State *L = S->L;
    luaL_checkstack(L, 8, "error");
    Place place = fault->at;
    bool blamed = false;
    if (!place.loc.line && fault->word && fault->field) {
        const Block *b = block_to_blame(S, fault->word);
        blamed = b != NULL;
        if (b) place = b->place;
    }
    if (!place.loc.line && !place.loc.file) place.loc = place_now(S);
    Loc loc = find_column(S, fault, place);
    const SourceText *source = source_at(S, loc.file);
    S->steps += 1000 + (source ? (int64_t)source->bytes / 16
                               : 0); // a loop over errors reads the source each time

    const char *notes[3];
    int n_notes = 0;
    if (fault->note) notes[n_notes++] = fault->note;
    for (int i = 0; i < 2; i++) {
        if (!fault->origin[i] || blamed) continue;
        text_clear(&S->notes[i]);
        note_origin(S, fault, i, loc);
        notes[n_notes++] = text_cstr(&S->notes[i]);
    }
    const char *in = fault->plain || n_notes || !S->scope ? NULL : model_name(S->m, S->scope->addr);
    text_clear(&S->rendered);
    diag_print(S->m, loc, text_cstr(&S->message), in, notes, n_notes, fault->hint, &S->rendered);

    lua_newuserdatauv(L, 0, 2);
    lua_pushlstring(L, text_cstr(&S->message), S->message.bytes);
    lua_setiuservalue(L, -2, 1);
    lua_pushlstring(L, text_cstr(&S->rendered), S->rendered.bytes);
    lua_setiuservalue(L, -2, 2);
    luaL_setmetatable(L, spec_diag_type);
}

#define SET_MESSAGE(S, format)                                                                     \
    do {                                                                                           \
        va_list list_;                                                                             \
        va_start(list_, format);                                                                   \
        text_clear(&(S)->message);                                                                 \
        text_vprintf(&(S)->message, format, list_);                                                \
        va_end(list_);                                                                             \
    } while (0)

void fault_raise(Spec *S, const Fault *fault, const char *format, ...) {
    SET_MESSAGE(S, format);
    push_diag(S, fault);
    lua_error(S->L);
    abort();
}

void fault_simple(Spec *S, const char *format, ...) {
    SET_MESSAGE(S, format);
    push_diag(S, &(Fault){ 0 });
    lua_error(S->L);
    abort();
}

void fault_of_model(Spec *S, const char *field) {
    const Diag *d = &S->m->diag;
    text_clear(&S->message);
    text_add(&S->message, d->message);
    text_clear(&S->hint);
    text_add(&S->hint, d->hint);
    Fault fault = { .word = field, .field = field != NULL, .hint = text_cstr(&S->hint) };
    // A hint says what to do; without one, where the operands come from helps most.
    if (!*d->hint) memcpy(fault.origin, d->blame, sizeof fault.origin);
    push_diag(S, &fault);
    lua_error(S->L);
    abort();
}

const char *fault_hint(Spec *S, const char *format, ...) {
    text_clear(&S->hint);
    va_list list;
    va_start(list, format);
    text_vprintf(&S->hint, format, list);
    va_end(list);
    return text_cstr(&S->hint);
}

static void hook_again(lua_State *L, lua_Debug *ar) {
    (void)ar;
    fault_again(spec_of(L));
}

// The limit stays hit: whatever catches the error, or runs while it unwinds, meets it again at
// once.
void fault_fatal(Spec *S, const Fault *fault, const char *format, ...) {
    SET_MESSAGE(S, format);
    if (!S->fatal) {
        push_diag(S, fault);
        S->fatal_ref = luaL_ref(S->L, LUA_REGISTRYINDEX);
        S->fatal = true;
        lua_sethook(S->L, hook_again, LUA_MASKCOUNT, 1);
    }
    fault_again(S);
}

void fault_again(Spec *S) {
    luaL_checkstack(S->L, 1, "error");
    lua_rawgeti(S->L, LUA_REGISTRYINDEX, S->fatal_ref);
    lua_error(S->L);
    abort();
}

// Whether `message` begins with the place "chunk:line: " of a user's chunk or of dsl/; strips it.
static const char *strip_place(Spec *S, const char *message, Loc *loc) {
    for (uint32_t i = 0; i < S->n_sources; i++) {
        const char *path = S->sources[i].chunk + 1;
        size_t n = strlen(path);
        char name[LUA_IDSIZE]; // Lua shortens long names to their end
        if (n + 1 > LUA_IDSIZE)
            snprintf(name, sizeof name, "...%s", path + n - (LUA_IDSIZE - 4));
        else
            snprintf(name, sizeof name, "%s", path);
        n = strlen(name);
        if (strncmp(message, name, n) || message[n] != ':' ||
            !isdigit((unsigned char)message[n + 1]))
            continue;
        char *end;
        loc->line = (uint32_t)strtoul(message + n + 1, &end, 10);
        loc->file = S->sources[i].file;
        if (end[0] == ':' && end[1] == ' ') return end + 2;
    }
    size_t n = strcspn(message, ":");
    if (!strncmp(message, "dsl/", 4) && message[n] == ':' &&
        isdigit((unsigned char)message[n + 1])) {
        n += 1 + strspn(message + n + 1, "0123456789");
        if (message[n] == ':' && message[n + 1] == ' ') return message + n + 2;
    }
    return message;
}

int fault_handler(lua_State *L) {
    Spec *S = spec_of(L);
    int value = lua_gettop(L);
    if (luaL_testudata(L, value, spec_diag_type)) return 1;
    Fault fault = { 0 };
    text_clear(&S->message);
    if (lua_type(L, value) == LUA_TSTRING && !strcmp(lua_tostring(L, value), "not enough memory"))
        S->out_of_memory = true;
    if (lua_type(L, value) == LUA_TSTRING) {
        text_add(&S->message, strip_place(S, lua_tostring(L, value), &fault.at.loc));
    } else {
        text_printf(&S->message, "the spec raised an error that is %s", describe(L, value));
        fault.hint = "error(message) takes a string";
    }
    push_diag(S, &fault);
    return 1;
}

void fault_memory_text(Spec *S, Text *out) {
    Loc loc = find_column(S, &(Fault){ 0 }, (Place){ .loc = S->memory_loc });
    if (!loc.file && S->n_sources) loc.file = S->sources[0].file;
    diag_print(S->m, loc, "the spec needs more than 64 MiB, or a string of more than 64 KiB", NULL,
               NULL, 0, "sizes are numbers, not tables; is something growing without end?", out);
}

void fault_command(Spec *S, const char *path, Text *out, const char *message, const char *hint) {
    Loc loc = { 0 };
    for (uint32_t i = 0; i < S->n_sources; i++) {
        if (!strcmp(S->sources[i].chunk + 1, path)) loc.file = S->sources[i].file;
    }
    diag_print(S->m, loc, message, NULL, NULL, 0, hint, out);
}

// Like text_nearest, but a word that contains the other one is nearer than a shorter edit:
// 'num_heads' is 'heads' rather than 'kv_heads'.
const char *spec_nearest(const char *word, const char *const *words, int n_words) {
    const char *best = NULL;
    size_t least = 0, n = strlen(word);
    for (int i = 0; i < n_words; i++) {
        size_t k = strlen(words[i]), gap = n > k ? n - k : k - n;
        if (n < 3 || k < 3 || !strstr(n > k ? word : words[i], n > k ? words[i] : word)) continue;
        if (!best || gap < least) best = words[i], least = gap;
    }
    return best && least <= 4 ? best : text_nearest(word, words, n_words);
}
