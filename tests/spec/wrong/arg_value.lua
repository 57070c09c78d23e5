-- args: experts=many
local m = require "moec"
local n = m.arg("experts", 8)
