local m = require "moec"
local function f(x)
  return x:reshape(8, 64)
end
return m.model { name = "a", vocab = 512, width = 512, sequence = 128, layers = { f } }
