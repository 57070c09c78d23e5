local m = require "moec"
local function f(x)
  return m.linear("out", x, 512, { bais = true })
end
return m.model { name = "a", vocab = 512, width = 512, sequence = 128, layers = { f } }
