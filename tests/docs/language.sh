#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# docs/language.md is the language: every name of the module is on the page and nothing else is, its
# table of fields is that of dsl/, its specs load, and docs/moec.lua has the types for editors.
# language.sh SOURCE BUILD; MOEC_UPDATE=1 writes docs/moec.lua
set -euo pipefail
source=$1 moec=$2/moec
page=$source/docs/language.md
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
bad=0

# Specs: whole ones are checked, fragments that return a cluster or a layout are built.
awk '/^```lua/ { n++; file = "part" n ".lua"; print "local m = require \"moec\"" > file; next }
     /^```/ { file = ""; next }
     file && !/local m = require/ { print > file }' "$page"
model='return m.model { name = "a", vocab = 8, width = 8, sequence = 8, layers = {}'
for part in part*.lua; do
    case $(<"$part") in
    *'return m.model'*) ;;
    *'parameters ='*)
        { echo 'local m = require "moec" local layers = 2'
          echo "return m.model { name = 'a', vocab = 8, width = 8, sequence = 8, layers = m.stack(layers, m.block {"
          echo "  attention = { heads = 2 }, ffn = m.experts { count = 2, top_k = 1, expert = { hidden = 8 } } }),"
          tail -n +2 "$part"
          echo '}'; } >whole.lua && sed -i 's/layers\.1\.ffn\.w_\*/layers.1.ffn.*/' whole.lua && mv whole.lua "$part" ;;
    *) sed -i 's/^return m\./local made = m./' "$part" && echo "$model }" >>"$part" ;;
    esac
    "$moec" check "$part" >out 2>&1 || { cat out; bad=1; }
done

# Names.
printf 'local m = require "moec"\nfor k in pairs(m) do print(k) end\n%s }\n' "$model" >names.lua
"$moec" check names.lua 2>&1 | grep -E '^[a-z_0-9]+$' | sort -u >have
grep -oE '\bm\.[a-z_0-9]+' "$page" | cut -c3- | sort -u >named
grep -oE '[a-z_0-9]+' "$page" | sort -u >words
comm -23 have words | sed 's/^/not on the page: m./' | grep . && bad=1
comm -13 have named | sed 's/^/no such name: m./' | grep . && bad=1

# Fields.
cat >fields.lua <<'LUA'
local m, names, rows = {}, {}, {}
package.preload.moec = function() return m end
setmetatable(m, { __index = function(_, k)
  local f = function() end
  names[f] = "m." .. k
  rawset(m, k, f)
  return f
end })
rawset(m, "define", function(block, fields)
  for _, f in ipairs(fields) do
    local default, types = "required", f[2]:gsub("|", " or ")
    local value = f[3]
    if value == false then default = types:find("^boolean") and "false" or "none"
    elseif type(value) == "table" then default = "{}"
    elseif type(value) == "string" then default = '"' .. value .. '"'
    elseif names[value] then default = names[value]
    elseif value ~= nil then default = value end
    rows[#rows + 1] = { block, f[1], types, default, f.doc }
  end
end)
for name, f in pairs { swiglu = 1, softmax = 1 } do local _ = m[name] end
local chunk = assert(loadfile(arg[1]))
setmetatable(m, { __index = getmetatable(m).__index, __newindex = function(_, k, v)
  if type(v) == "function" then names[v] = "m." .. k end
  rawset(m, k, v)
end })
m.swiglu = nil
chunk()
for _, r in ipairs(rows) do
  print(table.concat({ r[1], r[2], r[3], tostring(tonumber(r[4]) or r[4]), r[5] }, "\t"))
end
LUA
for file in blocks cluster; do lua5.4 fields.lua "$source/dsl/$file.lua" >"$file.fields"; done
sort blocks.fields >of_code
awk -F' *\\| *' '/^\| block \| field/ { on = 1; next } !/^\|/ { on = 0 }
     on && !/---/ { if ($2 != "") { block = $2; gsub(/\*/, "", block) } gsub(/`/, "", $3)
                    print block "\t" $3 "\t" $4 "\t" $5 "\t" $6 }' "$page" |
    lua5.4 -e 'for l in io.lines() do
        local a, d, z = l:match("^([^\t]*\t[^\t]*\t[^\t]*\t)([^\t]*)(.*)$")
        print(a .. tostring(tonumber(d) or d) .. z) end' | sort >of_page
diff of_page of_code || bad=1
(($(wc -l <of_code) > 50)) || { echo "too few fields"; bad=1; }

# Types for editors.
cat blocks.fields cluster.fields >all.fields
lua5.4 "$source/tests/docs/annotations.lua" all.fields "$page" have >moec.lua
lua5.4 moec.lua >lint 2>&1 || { cat lint; echo "docs/moec.lua is no Lua"; bad=1; }
[[ -z ${MOEC_UPDATE:-} ]] || cp moec.lua "$source/docs/moec.lua"
diff "$source/docs/moec.lua" moec.lua || { echo "docs/moec.lua is old: MOEC_UPDATE=1 ./dev test docs.language"; bad=1; }
((bad == 0)) && echo "$(wc -l <have) names, $(wc -l <of_code) fields"
exit $bad
