local m = require "moec"
local function half(x)
  return m.linear("out", x, x:size() // 2)
end
return m.model { name = "a", vocab = 512, width = 512, sequence = 128, layers = { half } }
