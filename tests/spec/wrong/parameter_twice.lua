local m = require "moec"
local ffn = m.mlp { hidden = 1024 }
local function twice(x)
  return ffn(x) + ffn(m.relu(x))
end
return m.model { name = "a", vocab = 512, width = 512, sequence = 128, layers = { m.block { ffn = twice } } }
