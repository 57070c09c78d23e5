-- SPDX-License-Identifier: Apache-2.0
-- lua5.4 annotations.lua FIELDS PAGE NAMES: prints type annotations (LuaCATS) of the language for
-- editors. FIELDS has a line per field of a block: block, field, type, default, meaning, with tabs
-- between; PAGE is docs/language.md, whose operations have their arguments there; NAMES are the module's.
local page, names = assert(io.open(arg[2])):read "a", {}
local order, is_block = {}, {}
for line in io.lines(arg[1]) do
  local block, field, types, default, doc = line:match "^(.-)\t(.-)\t(.-)\t(.-)\t(.*)$"
  if not is_block[block] then
    is_block[block] = {}
    order[#order + 1] = block
  end
  table.insert(is_block[block], { name = field, types = types, default = default, doc = doc })
end
for name in io.lines(arg[3]) do names[#names + 1] = name end

print [[
-- SPDX-License-Identifier: Apache-2.0
-- Types of the language for editors: add docs/ to the library of your Lua language server.
-- Written from dsl/ and docs/language.md by `MOEC_UPDATE=1 ./dev test docs.language`.
---@meta moec

---@alias size integer|number
---@alias list table
---@class tensor
---@field size fun(self: tensor, axis?: integer): integer
---@operator add(tensor|number): tensor
---@operator sub(tensor|number): tensor
---@operator mul(tensor|number): tensor
---@operator div(tensor|number): tensor
---@operator pow(tensor|number): tensor
---@operator mod(tensor|number): tensor
---@operator idiv(tensor|number): tensor
---@operator unm: tensor
---@class block
---@field with fun(self: block, fields: table): block
---@overload fun(...): ...

local m = {}]]

-- A field that wants a block takes a block, a function, the fields of the usual one, or a boolean.
local function field_type(types)
  local out = {}
  for one in (types .. " or "):gmatch "(.-) or " do
    out[#out + 1] = is_block[one] and ("block|function|boolean|%s.fields"):format(one)
                    or one == "block" and "block|function" or one
  end
  return table.concat(out, "|")
end

for _, block in ipairs(order) do
  print(("\n---@class %s.fields"):format(block))
  for _, f in ipairs(is_block[block]) do
    local types = field_type(f.types)
    if f.default == "none" then types = types .. "|false" end
    local default = (f.default == "none" or f.default == "required") and "" or " [" .. f.default .. "]"
    print(("---@field %s%s %s %s%s"):format(f.name, f.default == "required" and "" or "?", types, f.doc, default))
  end
  print(("---@param fields? %s.fields\n---@return block\nfunction m.%s(fields) end"):format(block, block))
end

-- "x, gain, {over=1, eps}" -> "x, gain, options", and what the options are.
local function arguments(text)
  local options = text:match "{(.-)}"
  if text:find '^"' then return "name", nil end
  text = text:gsub("{sizes}", "sizes"):gsub("{.-}", "options"):gsub("=[^,]*", ""):gsub("%f[%w]n%.%.%.", "...")
  text = text:gsub("%f[%w]end%f[%W]", "")
  return text, options ~= "sizes" and options or nil
end

local operations = page:match "\n## Operations(.-)\n## "
-- Where the page shows no argument list of the operation's own.
local shown = {
  sum = "(x, axis, {keep})", mean = "(x, axis, {keep})", amax = "(x, axis, {keep})", max = "(a, b)",
  arg = "(name, default)", hardware = "(name)",
  stack = "(n, block)", constant = "(numbers)", swiglu = "(gate, up)", geglu = "(gate, up)",
}
for name in ("lt le gt ge eq ne"):gmatch "%S+" do shown[name] = "(a, b)" end

for _, name in ipairs(names) do
  if not is_block[name] then
    local call, quoted = page:match("m%." .. name .. "(%b())"), page:match("m%." .. name .. ' (".-")')
    local row = operations:match("\n(|[^\n]*m%." .. name .. "%([^\n]*)") or ""
    local shapes, meaning = row:match "^|.-|%s*(.-)%s*|%s*(.-)%s*|$"
    call = shown[name] or row:match("m%." .. name .. "(%b())") or call
    local text, options = arguments(call and call:sub(2, -2) or quoted or "x")
    print ""
    if meaning and #meaning > 0 then print(("--- %s: %s"):format(shapes:gsub("`", ""), (meaning:gsub("`", "")))) end
    if options then print("---@param options? table " .. options) end
    print(("function m.%s(%s) end"):format(name, text))
  end
end
print "\nreturn m"
