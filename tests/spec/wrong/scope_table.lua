local m = require "moec"
local function f(x)
  return m.scope("ffn", { hidden = 64 }, x)
end
return m.model { name = "a", vocab = 512, width = 512, sequence = 128, layers = { f } }
