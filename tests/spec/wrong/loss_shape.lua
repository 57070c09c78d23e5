local m = require "moec"
local function f(x)
  m.loss("square", x ^ 2)
  return x
end
return m.model { name = "a", vocab = 512, width = 512, sequence = 128, layers = { f } }
