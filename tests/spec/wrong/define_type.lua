local m = require "moec"
local odd = m.define("odd", { { "width", "sise" } }, function(f, x) return x end)
