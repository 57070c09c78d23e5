local m = require "moec"
local mlp = m.define("mlp", {}, function(f, x) return x end)
