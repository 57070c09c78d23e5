local m = require "moec"
local double = m.define("double", { { "hidden", "size" } }, function(f, x)
  return m.linear("in", x, f.hiden)
end)
return m.model { name = "a", vocab = 512, width = 512, sequence = 128, layers = { double { hidden = 64 } } }
