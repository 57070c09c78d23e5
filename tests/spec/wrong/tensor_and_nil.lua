local m = require "moec"
local scale = {}
local function f(x)
  return x * scale.value
end
return m.model { name = "a", vocab = 512, width = 512, sequence = 128, layers = { f } }
